"""An answer out of a transcript, told once more as the API tells answers.

It has the shape of OpenAI's "chat completion object", or of its chunks: the message as it was told, under the
id, model and usage that it had. What else the upstream wrote around it was not kept.
"""

from typing import Any

import msgspec
from msgspec import Raw

from proxy.core.conversation.records import Node, Reply
from proxy.core.formats.json import elements, members

DONE = b"data: [DONE]\n\n"


def stored_answer(answer: Node, reply: Reply, *, stream: bool, with_usage: bool) -> bytes:
    """The body of a response: a stream, with a last chunk ``with_usage`` if asked for, or one piece."""
    top: dict[str, Any] = {
        "id": reply.id or f"chatcmpl-{answer.hash.hex()[:24]}",
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": int(answer.at),
        "model": reply.model,
    }
    usage: dict[str, Any] = {}
    if reply.usage is not None:
        prompt, said = reply.usage.prompt_tokens or 0, reply.usage.completion_tokens or 0
        usage = {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": said,
                "total_tokens": prompt + said,
            }
        }
        if reply.usage.cached_tokens is not None:
            usage["usage"]["prompt_tokens_details"] = {"cached_tokens": reply.usage.cached_tokens}
    end = {"index": 0, "finish_reason": reply.finish_reason}
    if not stream:
        return msgspec.json.encode({**top, "choices": [{**end, "message": Raw(answer.raw)}], **usage})
    first = {"index": 0, "delta": _delta(answer.raw), "finish_reason": None}
    choices: list[list[object]] = [[first], [{**end, "delta": {}}]]
    chunks = [{**top, "choices": each} for each in choices]
    if with_usage and usage:
        chunks.append({**top, "choices": [], **usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + DONE


def _delta(message: bytes) -> dict[str, object]:
    """A message as one delta: its calls have numbers there."""
    said = members(message) or {}
    calls = elements(said.get("tool_calls", Raw(b"null"))) or []
    numbered = [{"index": number, **(members(call) or {})} for number, call in enumerate(calls)]
    return {**said, "tool_calls": numbered} if calls else dict(said)
