"""The rounds of one answer: calls are answered, the upstream goes on, until only the client's are left.

Keeps law 4 (bounded): the view and all that is put after it fit the budget. A result that does not fit is not
given; the client then makes the call, and a tool that only we know gives what fits. Rounds are limited; past
them nothing is answered, and the last request does not offer our own tools any more. Nor does the one that
is sent because an answer would be empty, having called for nothing but what has no room.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.dialects.answers import AnswerEditor, Rules, ToolCall, Usage
from proxy.core.dialects.dialect import Dialect
from proxy.core.tool_cache.cache import ToolCache
from proxy.ports import TokenCounter
from proxy.telemetry import Metrics, log_fault, log_warning

# --- who answers calls ---


_PATIENCE = 10.0
"""Seconds that an answer may take; after them nobody has one."""


class Answerer(Protocol):
    """Answers calls of some tools."""

    @property
    def is_ours(self) -> bool:
        """Whether only the proxy knows these tools, so that their calls never reach the client."""
        ...

    def holds(self, tool: str) -> bool:
        """Whether it may answer calls of a tool; its arguments are not known yet."""
        ...

    def passes(self, tool: str, arguments: str) -> None:
        """Know of a call in the same message that goes to the client."""
        ...

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result of a call, of at most ``room`` counted tokens; None where the client is to make it."""
        ...


class FreshResults:
    """Answers calls whose results are fresh (:mod:`proxy.core.tool_cache`)."""

    is_ours = False

    def __init__(self, cache: ToolCache) -> None:
        self._cache = cache

    def holds(self, tool: str) -> bool:
        return self._cache.holds(tool)

    def passes(self, tool: str, arguments: str) -> None:
        """Forget what the call makes stale."""
        self._cache = self._cache.after(tool, arguments, served=False)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        fresh = self._cache.answer(tool, arguments)
        if fresh is None:
            return None
        self._cache = self._cache.after(tool, arguments, served=True)
        return fresh.text


@dataclass
class Answerers:
    """All that answer for one request."""

    each: list[Answerer] = field(default_factory=list[Answerer])

    def __bool__(self) -> bool:
        return bool(self.each)

    def holds(self, tool: str) -> bool:
        return self._of(tool) is not None

    def is_ours(self, tool: str) -> bool:
        found = self._of(tool)
        return found is not None and found.is_ours

    def passes(self, tool: str, arguments: str) -> None:
        for each in self.each:
            each.passes(tool, arguments)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result of a call; None also where a fault of ours keeps it back (law 7)."""
        found = self._of(tool)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await found.answer(tool, arguments, room) if found is not None else None
        except TimeoutError:
            log_warning("a call was not answered in time")
        except Exception as error:  # noqa: BLE001 - law 7: the client makes the call, or the answer ends without
            log_fault("a call could not be answered", error)
        return None

    def _of(self, tool: str) -> Answerer | None:
        return next((each for each in self.each if each.holds(tool)), None)


# --- the rounds ---


_NO_ROOM = "The result is too large for what is left of the context."
"""What a tool of ours says where nothing else fits."""
_NOT_NOW = "This cannot be answered now."
"""What it says where it has no answer."""


class _Result(NamedTuple):
    """A result that fits."""

    message: bytes
    tokens: int
    """Counted tokens of it."""


@dataclass
class Rounds:
    """What has been said out of the client's sight within one answer."""

    wire: Dialect
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
    answered: int = 0
    """Calls that were answered, those of our own tools too."""
    spent: Usage = field(default_factory=Usage)
    """What the requests before the newest have used."""
    sequence: list[bytes] = field(default_factory=list[bytes])
    """The messages that stand upstream in the place of the client's one."""
    tokens: int = 0
    """Counted tokens of them."""

    @property
    def rules(self) -> Rules:
        return Rules(self.answerers.holds, self.answerers.is_ours)

    @property
    def may_ask(self) -> bool:
        """Whether the upstream may be asked to go on once more."""
        return self.count < self.limit

    async def settle(self, editor: AnswerEditor) -> bool:
        """Answer what a round calls for; whether the upstream is to go on, else the answer is settled."""
        results = await self._results(editor)
        self.answered += len(results)
        self.spent = editor.spent
        unanswered = [call for call in editor.requested() if call not in results]
        dropped = [call for call in unanswered if self.answerers.is_ours(call.tool)]
        is_left = bool(editor.shown()) or len(dropped) < len(unanswered)
        if dropped and not results and not is_left and not self._says_anything(editor.message(dropped)):
            self.limit = self.count + 1
            return True
        goes_on = bool(results) and not is_left
        if not goes_on:
            editor.settle(list(results))
        if (results or self.sequence) and not editor.has_given_up:
            message = editor.message(dropped)
            if self._says_anything(message):
                self.sequence.append(message)
                self.tokens += await self._cost(message)
            for each in results.values():
                self.sequence.append(each.message)
                self.tokens += each.tokens
        for result, calls in (("hit", [*results]), ("miss", unanswered)):
            several = sum(not self.answerers.is_ours(call.tool) for call in calls)
            if several:
                self.metrics.tool_cache.labels(result=result).inc(several)
            self.hits += several if result == "hit" else 0
        return goes_on

    def next_body(self, body: bytes) -> bytes:
        """The request after ``body`` and all that was said since."""
        self.count += 1
        following = self.wire.followed_by(body, self.sequence)
        return following if self.may_ask else self.wire.without_tools(following, self.answerers.is_ours)

    async def _results(self, editor: AnswerEditor) -> dict[ToolCall, _Result]:
        """The results of the calls that are answered and fit, in their order."""
        requested = editor.requested()
        if not requested:
            return {}
        for call in editor.shown():
            self.answerers.passes(call.tool, call.arguments or "")
        room = self.room - self.tokens - await self._cost(editor.message())
        each = room // len(requested) - MESSAGE_TOKENS

        async def answer(call: ToolCall) -> str | None:
            if call.arguments is None or each < 0:
                return None
            return await self.answerers.answer(call.tool, call.arguments, each)

        texts = await asyncio.gather(*map(answer, requested))
        fitting: dict[ToolCall, _Result] = {}
        for call, text in zip(requested, texts, strict=True):
            sayings = [] if text is None else [text]
            if self.answerers.is_ours(call.tool):  # the client cannot make a call of ours
                sayings = [_NOT_NOW if text is None else text, _NO_ROOM]
            for candidate in sayings:  # the first that fits
                message = self.wire.result(call.id, candidate)
                cost = await self._cost(message)
                if cost <= room:
                    fitting[call] = _Result(message, cost)
                    room -= cost
                    break
        return fitting

    async def _cost(self, message: bytes) -> int:
        (tokens,) = await self.counter.count_all([self.wire.read(message).countable()])
        return MESSAGE_TOKENS + tokens

    def _says_anything(self, message: bytes) -> bool:
        content = self.wire.read(message)
        return content.role == "tool" or bool(content.calls) or bool(content.countable())
