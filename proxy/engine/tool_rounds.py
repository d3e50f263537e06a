"""The rounds of one answer: calls are answered and the upstream continues until only the client's are left.

Keeps law 4 (bounded): the view and all messages added after it fit the budget. A result that does not fit, or
that the upstream refuses, is not given: the client then makes the call itself, and a tool of the proxy
returns as much as fits. After the last round no call is answered, and the last request no longer offers the
proxy's own tools. Nor does the one that is sent because the answer would be empty, having only called for
results that do not fit. If either is refused without these tools, it is sent once more with them.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.dialects.answers import AnswerEditor, HiddenCallRules, ToolCall, Usage
from proxy.core.dialects.dialect import Dialect
from proxy.core.tool_cache.cache import ToolCache
from proxy.ports import TokenCounter
from proxy.telemetry import Metrics, log_fault, log_warning

# --- answerers of calls ---


_TIMEOUT = 10.0
"""Seconds that an answerer may take; after that the call has no result from the proxy."""


class Answerer(Protocol):
    """Answers calls of certain tools."""

    @property
    def is_own_tool(self) -> bool:
        """Whether only the proxy knows these tools, so that their calls never reach the client."""
        ...

    def may_answer(self, tool: str) -> bool:
        """Whether it may answer calls of this tool; the arguments are not known yet."""
        ...

    def observe_client_call(self, tool: str, arguments: str) -> None:
        """Take note of a call in the same message that goes to the client."""
        ...

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """Return a call's result of at most ``room`` counted tokens; None if the client is to make it."""
        ...


class FreshResults:
    """Answers calls whose results are fresh (:mod:`proxy.core.tool_cache`)."""

    is_own_tool = False

    def __init__(self, cache: ToolCache) -> None:
        self._cache = cache

    def may_answer(self, tool: str) -> bool:
        return self._cache.may_answer(tool)

    def observe_client_call(self, tool: str, arguments: str) -> None:
        """Drop the results that the call makes stale."""
        self._cache = self._cache.after_call(tool)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        fresh = self._cache.answer(tool, arguments)
        if fresh is None:
            return None
        self._cache = self._cache.after_serving(tool, arguments)
        return fresh.text


@dataclass
class Answerers:
    """All answerers of one request."""

    members: list[Answerer]

    def __bool__(self) -> bool:
        return bool(self.members)

    def may_answer(self, tool: str) -> bool:
        return self._of(tool) is not None

    def is_own_tool(self, tool: str) -> bool:
        found = self._of(tool)
        return found is not None and found.is_own_tool

    def observe_client_call(self, tool: str, arguments: str) -> None:
        for each in self.members:
            each.observe_client_call(tool, arguments)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """Return the result of a call; None also after a fault or a timeout of ours (law 7)."""
        found = self._of(tool)
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await found.answer(tool, arguments, room) if found is not None else None
        except TimeoutError:
            log_warning("a call was not answered in time")
        except Exception as error:  # noqa: BLE001 - law 7: the client makes the call, or the answer ends without
            log_fault("a call could not be answered", error)
        return None

    def _of(self, tool: str) -> Answerer | None:
        return next((each for each in self.members if each.may_answer(tool)), None)


# --- the rounds ---


_NO_ROOM = "The result is too large for what is left of the context."
"""The result of a tool of ours where nothing else fits."""
_NOT_NOW = "This cannot be answered now."
"""The result of a tool of ours that has no answer."""


class _Result(NamedTuple):
    """A result that fits the budget."""

    message: bytes
    tokens: int
    """Counted tokens of the message."""


@dataclass
class Rounds:
    """The calls and results of one answer that the client does not see."""

    dialect: Dialect
    answerers: Answerers
    counter: TokenCounter
    metrics: Metrics
    limit: int
    """Most requests that may follow the first one."""
    room: int
    """Counted tokens left of the budget when the rounds begin."""
    count: int = 0
    """Number of requests that have followed the first one."""
    refused: int = 0
    """How many of these were refused or failed, so that the answer went on without their results."""
    hits: int = 0
    """Answered calls that the client would have made otherwise."""
    answered: int = 0
    """All answered calls, including those of the proxy's own tools."""
    earlier_usage: Usage = field(default_factory=Usage)
    """Usage of the requests before the newest one that was answered."""
    total_usage: Usage = field(default_factory=Usage)
    """Usage of all requests that were answered."""
    sequence: list[bytes] = field(default_factory=list[bytes])
    """The messages that the upstream has in place of the client's one message."""
    tokens: int = 0
    """Counted tokens of ``sequence``."""
    own_tool_tokens: int = 0
    """Those of calls of the proxy's own tools and of their results."""
    is_refused: bool = False
    """Whether the upstream refused to continue, which ended a stream."""
    snapshot: Self | None = None
    """The rounds before the newest one, if any of its calls was answered."""

    @property
    def rules(self) -> HiddenCallRules:
        return HiddenCallRules(self.answerers.may_answer, self.answerers.is_own_tool)

    @property
    def own_tool_tokens_sent(self) -> int:
        """Those of the newest request, which has not had the results of the last round."""
        return (self.snapshot or self).own_tool_tokens

    @property
    def may_ask(self) -> bool:
        """Whether the upstream may be asked to go on once more."""
        return self.count < self.limit

    async def settle(self, editor: AnswerEditor) -> bool:
        """Answer the calls of a round; return whether the upstream is to continue.

        If not, the answer is settled.
        """
        results = await self._results(editor)
        self.snapshot = replace(self, sequence=[*self.sequence]) if results else None
        self.answered += len(results)
        self.earlier_usage, self.total_usage = editor.earlier_usage, editor.total_usage
        unanswered = [call for call in editor.answerable_calls() if call not in results]
        dropped = [call for call in unanswered if self.answerers.is_own_tool(call.tool)]
        is_left = bool(editor.client_calls()) or len(dropped) < len(unanswered)
        if dropped and not results and not is_left and not await self._cost(editor.message(dropped)):
            self.limit = self.count + 1
            return True
        goes_on = bool(results) and not is_left
        if not goes_on:
            editor.settle(list(results))
        if (results or self.sequence) and not editor.has_given_up:
            message = editor.message(dropped)
            if cost := await self._cost(message):
                self.sequence.append(message)
                self.tokens += cost
            if ours := [call for call in results if self.answerers.is_own_tool(call.tool)]:
                rest = await self._cost(editor.message([*dropped, *ours]))
                self.own_tool_tokens += cost - rest + sum(results[call].tokens for call in ours)
            for each in results.values():
                self.sequence.append(each.message)
                self.tokens += each.tokens
        for result, calls in (("hit", [*results]), ("miss", unanswered)):
            several = sum(not self.answerers.is_own_tool(call.tool) for call in calls)
            if several:
                self.metrics.tool_cache.labels(result=result).inc(several)
            self.hits += several if result == "hit" else 0
        return goes_on

    async def settle_without_results(self, editor: AnswerEditor, before: Self) -> bool:
        """Settle the newest round again, because the upstream refused its results or failed to go on.

        Without them, what may be asked next is no more than what the upstream has accepted ``before``.
        """
        self.sequence, self.tokens, self.room = before.sequence, before.tokens, 0
        self.own_tool_tokens = before.own_tool_tokens
        self.hits, self.answered = before.hits, before.answered
        return await self.settle(editor)

    def next_body(self, body: bytes) -> bytes:
        """Return the next request: ``body`` followed by the messages since."""
        self.count += 1
        following = self.with_tools(body)
        return (
            following if self.may_ask else self.dialect.without_tools(following, self.answerers.is_own_tool)
        )

    def with_tools(self, body: bytes) -> bytes:
        """Return the next request with the proxy's own tools, even if it is the last one.

        Some upstreams want the tools of all calls in the messages, or those that signed reasoning came with.
        """
        return self.dialect.followed_by(body, self.sequence)

    async def _results(self, editor: AnswerEditor) -> dict[ToolCall, _Result]:
        """Return the results of the calls that are answered and fit, in the order of the calls."""
        requested = editor.answerable_calls()
        if not requested:
            return {}
        for call in editor.client_calls():
            self.answerers.observe_client_call(call.tool, call.arguments or "")
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
            if self.answerers.is_own_tool(call.tool):  # the client cannot make a call of ours
                sayings = [_NOT_NOW if text is None else text, _NO_ROOM]
            for candidate in sayings:  # the first that fits
                message = self.dialect.result(call.id, candidate)
                cost = await self._cost(message)
                if cost <= room:
                    fitting[call] = _Result(message, cost)
                    room -= cost
                    break
        return fitting

    async def _cost(self, message: bytes) -> int:
        """Return the counted tokens of a message; 0 for one that says nothing, which is not sent."""
        content = self.dialect.read(message)
        text = content.countable()
        if not (text or content.calls or content.role == "tool"):
            return 0
        (tokens,) = await self.counter.count_all([text])
        return MESSAGE_TOKENS + tokens
