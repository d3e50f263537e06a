"""A scripted model that signs its reasoning, and accepts it only after the messages it was made after.

The signature is a hash of the tools and of the exact bytes of all messages before the answer, as they stood
in the request. One in which a signed answer stands behind anything else is refused, as Anthropic does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from tests.support.servers import Exchange
from tests.support.upstreams import Message, Model


@dataclass
class SigningModel(Model):
    """`refusals` says of each refused request which of its messages was signed for something else."""

    random: Random = field(default_factory=lambda: Random(0))
    refusals: list[str] = field(default_factory=list[str])
    thinks: float = 0.8
    """Share of its answers that have reasoning."""

    async def _chat(self, exchange: Exchange, body: Message) -> None:
        raw = bytes(exchange.request.body)
        for number, (message, prefix) in enumerate(_prefixes(raw)):
            if any(signature != prefix for signature in _signatures(message)):
                fault = (
                    f"messages.{number}.content.0: Invalid `signature` in `thinking` block. The block is"
                    " bound to a different conversation."
                )
                self.refusals.append(fault)
                refusal = {"error": {"message": fault, "type": "invalid_request_error"}}
                await exchange.answer_json(refusal, 400)
                return
        reply = self.replies.popleft() if self.replies else self._usual(body)
        if not callable(reply) and self.random.random() < self.thinks:
            reply = {**reply, **self._thought(behind(raw))}
        await self._reply(exchange, body, reply)

    def _thought(self, signature: str) -> Message:
        """Return reasoning in one of the forms that gateways use."""
        text = f"Thought number {len(self.chats)}."
        block = {"type": "thinking", "thinking": text, "signature": signature}
        detail = {"type": "reasoning.text", "text": text, "signature": signature, "index": 0}
        encrypted = {"type": "reasoning.encrypted", "data": signature, "format": "openai-responses-v1"}
        shapes: list[Message] = [
            {"thinking_blocks": [block], "reasoning_content": text},
            {"reasoning": text, "reasoning_details": [detail]},
            {"reasoning_details": [encrypted]},
        ]
        return self.random.choice(shapes)


def behind(raw: bytes) -> str:
    """Return the signature of reasoning after a request's last message."""
    return [prefix for _, prefix in _prefixes(raw)][-1]


def _prefixes(raw: bytes) -> Iterator[tuple[Message, str]]:
    """Yield each message of a request with the signature of all before it; finally an empty one."""
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    digest = hashlib.sha256(bytes(members.get("tools", b"")))
    for message in msgspec.json.decode(members["messages"], type=list[msgspec.Raw]):
        yield json.loads(bytes(message)), digest.hexdigest()
        digest.update(b"\0" + bytes(message))
    yield {}, digest.hexdigest()


def _signatures(message: Message) -> Iterator[str]:
    for name in ("thinking_blocks", "reasoning_details"):
        for block in message.get(name) or ():
            yield block.get("signature") or block["data"]
