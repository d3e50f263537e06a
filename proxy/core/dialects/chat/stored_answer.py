"""An answer out of a transcript, told once more as the API tells answers.

It has the shape of OpenAI's "chat completion object", or of its chunks: the message as it was told, under the
id, model and usage that it had. What else the upstream wrote around it was not kept.
"""

from typing import Any

import msgspec
from msgspec import Raw

from proxy.core.dialects.answers import Reply
from proxy.core.formats.json import elements, members

DONE = b"data: [DONE]\n\n"


def stored_answer(
    message: bytes, reply: Reply, *, name: str, created: float, stream: bool, with_usage: bool
) -> bytes:
    """The body of a response: a stream, with a last chunk ``with_usage`` if asked for, or one piece."""
    top: dict[str, Any] = {
        "id": reply.id or f"chatcmpl-{name}",
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": int(created),
        "model": reply.model,
    }
    usage: dict[str, Any] = {}
    if reply.usage is not None:
        prompt, completion = reply.usage.prompt_tokens or 0, reply.usage.completion_tokens or 0
        usage = {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
        }
        if reply.usage.cached_tokens is not None:
            usage["usage"]["prompt_tokens_details"] = {"cached_tokens": reply.usage.cached_tokens}
    end = {"index": 0, "finish_reason": reply.finish_reason}
    if not stream:
        return msgspec.json.encode({**top, "choices": [{**end, "message": Raw(message)}], **usage})
    said = members(message) or {}
    delta: dict[str, object] = {**said}
    if calls := elements(said.get("tool_calls", Raw(b"null"))):  # they have numbers in a delta
        delta["tool_calls"] = [
            {"index": number, **(members(call) or {})} for number, call in enumerate(calls)
        ]
    first = {"index": 0, "delta": delta, "finish_reason": None}
    choices: list[list[object]] = [[first], [{**end, "delta": {}}]]
    chunks = [{**top, "choices": each} for each in choices]
    if with_usage and usage:
        chunks.append({**top, "choices": [], **usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + DONE
