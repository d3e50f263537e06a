"""The rounds of one answer: calls are answered, the upstream goes on, until only the client's are left.

Keeps law 4 (bounded): the view and all that is put after it fit the budget. A result that does not fit is not
given; the client then makes the call, and a tool that only we know gives what fits. Rounds are limited; past
them nothing is answered, and the last request does not offer our own tools any more. Nor does the one that
is sent because an answer would be empty, having called for nothing but what has no room.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.hidden.calls import Call, Rules
from proxy.core.hidden.continuation import continued, without_tools
from proxy.core.jsonvalue import dumps
from proxy.core.messages import Content
from proxy.engine.answerers import Answerers
from proxy.ports import TokenCounter
from proxy.telemetry import Metrics

_NO_ROOM = "The result is too large for what is left of the context."
"""What a tool of ours says where nothing else fits."""
_NOT_NOW = "This cannot be answered now."
"""What it says where it has no answer."""


class Editor(Protocol):
    """What makes one answer of several: a stream's, or that of answers in one piece."""

    @property
    def has_given_up(self) -> bool: ...

    def asked(self) -> list[Call]: ...

    def shown(self) -> list[Call]: ...

    def message(self, without: Sequence[Call] = ()) -> bytes: ...

    def settle(self, hidden: Sequence[Call]) -> None: ...


class _Result(NamedTuple):
    """A result that fits."""

    message: bytes
    tokens: int
    """Counted tokens of it."""


@dataclass
class Rounds:
    """What has been said out of the client's sight within one answer."""

    answerers: Answerers
    counter: TokenCounter
    metrics: Metrics
    limit: int
    """Requests that may follow the first one."""
    room: int
    """Counted tokens that are left of the budget."""
    count: int = 0
    """Requests that have followed the first one."""
    hits: int = 0
    """Calls that the client would have made."""
    sequence: list[bytes] = field(default_factory=list[bytes])
    """The messages that stand upstream in the place of the client's one."""
    tokens: int = 0
    """Counted tokens of them."""

    @property
    def rules(self) -> Rules:
        """Which calls may be answered."""
        return Rules(self.answerers.holds, self.answerers.is_ours)

    @property
    def may_ask(self) -> bool:
        """Whether the upstream may be asked to go on once more."""
        return self.count < self.limit

    async def settle(self, editor: Editor) -> bool:
        """Answer what a round calls for; whether the upstream is to go on, else the answer is settled."""
        results = await self._results(editor)
        unanswered = [call for call in editor.asked() if call not in results]
        dropped = [call for call in unanswered if self.answerers.is_ours(call.tool)]
        is_left = bool(editor.shown()) or len(dropped) < len(unanswered)
        if dropped and not results and not is_left and not _says_anything(editor.message(dropped)):
            self.limit = self.count + 1
            return True
        goes_on = bool(results) and not is_left
        if not goes_on:
            editor.settle(list(results))
        if (results or self.sequence) and not editor.has_given_up:
            await self._append(editor.message(dropped), results.values())
        self._count(results, unanswered)
        return goes_on

    def next_body(self, body: bytes) -> bytes:
        """The request after ``body`` and all that was said since."""
        self.count += 1
        following = continued(body, self.sequence)
        return following if self.may_ask else without_tools(following, self.answerers.is_ours)

    async def _results(self, editor: Editor) -> dict[Call, _Result]:
        """The results of the calls that are answered, in their order."""
        asked = editor.asked()
        if not asked:
            return {}
        for call in editor.shown():
            self.answerers.passes(call.tool, call.arguments or "")
        room = self.room - self.tokens - await self._cost(editor.message())
        each = room // len(asked) - MESSAGE_TOKENS
        texts = await asyncio.gather(*(self._answer(call, each) for call in asked))
        return await self._fitting(zip(asked, texts, strict=True), room)

    async def _answer(self, call: Call, room: int) -> str | None:
        if call.arguments is None or room < 0:
            return None
        return await self.answerers.answer(call.tool, call.arguments, room)

    async def _fitting(self, results: "zip[tuple[Call, str | None]]", room: int) -> dict[Call, _Result]:
        """Those of the results that fit, one after the other."""
        fitting: dict[Call, _Result] = {}
        for call, text in results:
            for said in self._sayings(call, text):
                message = _result(call, said)
                cost = await self._cost(message)
                if cost <= room:
                    fitting[call] = _Result(message, cost)
                    room -= cost
                    break
        return fitting

    def _sayings(self, call: Call, text: str | None) -> list[str]:
        """What a call may be answered with, best first; the client cannot make a call of ours."""
        if self.answerers.is_ours(call.tool):
            return [_NOT_NOW if text is None else text, _NO_ROOM]
        return [] if text is None else [text]

    async def _append(self, message: bytes, results: Iterable[_Result]) -> None:
        """Let a message, unless it says nothing, and its results stand in the answer's place."""
        if _says_anything(message):
            self.sequence.append(message)
            self.tokens += await self._cost(message)
        for result in results:
            self.sequence.append(result.message)
            self.tokens += result.tokens

    async def _cost(self, message: bytes) -> int:
        (tokens,) = await self.counter.count_all([Content.of(message).countable()])
        return MESSAGE_TOKENS + tokens

    def _count(self, results: Collection[Call], unanswered: Sequence[Call]) -> None:
        for result, calls in (("hit", results), ("miss", unanswered)):
            several = sum(not self.answerers.is_ours(call.tool) for call in calls)
            if several:
                self.metrics.tool_cache.labels(result=result).inc(several)
            self.hits += several if result == "hit" else 0


def _result(call: Call, text: str) -> bytes:
    return dumps({"role": "tool", "tool_call_id": call.id, "content": text})


def _says_anything(message: bytes) -> bool:
    content = Content.of(message)
    return content.role == "tool" or any(content.tool_calls()) or bool(content.countable())
