"""Questions of our own to the upstream: they carry nothing of the client's but its auth.

Beside that, one that is asked behind a conversation has what the provider has kept of that.

A model that refuses schema or temperature is asked again in plain words. When a call may be made is the
business of :mod:`proxy.engine.foreground`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple, Protocol, Self

from proxy.cache import Lru, Memory
from proxy.core.dialects.answers import Answer, Ask, Usage
from proxy.core.dialects.dialect import Dialect
from proxy.core.policy.sections import Summary
from proxy.ports import SessionKey, Upstream, UpstreamResponse
from proxy.tracing import current

_ANSWER_BYTES = 2**20
_REFUSED_PARAMETERS = (400, 422)
_TOO_MANY, _UNAVAILABLE = 429, 503
_PASSING = frozenset({408, 409, 425})
"""Refusals below 500 that may be none a minute later."""
_LONGEST_LIMIT = 3_600.0
"""Seconds for which an upstream's word to come later counts at most."""
_NAME = 256
"""Characters of a model's name by which it is remembered: clients choose names of any length."""


@dataclass(frozen=True)
class Caller:
    """In whose name the model is asked."""

    model: str
    headers: Sequence[tuple[bytes, bytes]]
    """The caller's credentials; held in memory only."""
    timeout: float
    """Seconds that one call may take."""
    purpose: Literal["summaries", "memory", "proof"] = "summaries"
    """As what its calls are billed."""
    session: SessionKey | None = None
    """To whose bill, where that is one's alone,"""
    ttl: float = 0.0
    """and how many seconds that lives."""

    def billed_to(self, session: SessionKey, ttl: float) -> Self:
        """The same, for work that is one session's alone."""
        return replace(self, session=session, ttl=ttl)

    @classmethod
    def for_summaries(
        cls, rules: Summary, model: str, credentials: Sequence[tuple[bytes, bytes]] = ()
    ) -> Self:
        """Who has a conversation with this model summarised, as the policy says."""
        return cls(rules.model or model, credentials, rules.timeout)


class Unanswered(Exception):  # noqa: N818 - no bad answer, which may be better a second time
    """The upstream did not answer with a completion; the message is the metric's label."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_passing = is_passing
        """Whether it may answer the same question a minute later."""


class RateLimited(Unanswered):
    """The upstream takes no more calls for now."""

    def __init__(self, seconds: float) -> None:
        super().__init__("rate_limited", is_passing=True)
        self.seconds = seconds
        """Until it may be asked again; 0 where it does not say."""


class Accounts(Protocol):
    """Who is told what calls of our own came to."""

    def called(self, caller: Caller, usage: Usage | None) -> None:
        """The model has answered, with something of use or not."""
        ...

    def failed(self, caller: Caller, reason: str) -> None:
        """What was asked for could not be had."""
        ...


class Unbilled:
    """Tells nobody."""

    def called(self, caller: Caller, usage: Usage | None) -> None:
        """Nothing."""

    def failed(self, caller: Caller, reason: str) -> None:
        """Nothing."""


class Asking:
    """Asks the upstream model."""

    def __init__(
        self,
        wire: Dialect,
        upstream: Upstream,
        memory: Memory,
        accounts: Accounts | None = None,
    ) -> None:
        self.wire = wire
        self.accounts = accounts or Unbilled()
        self._upstream = upstream
        self._plain: Lru[str, bool] = Lru(memory)
        """Models that refused schema or temperature."""

    async def answer(self, caller: Caller, ask: Ask, behind: bytes = b"") -> Answer:
        """What the model answers, ``behind`` the messages of another request's body if there is one.

        Raises Unanswered, TimeoutError and what the upstream port raises.
        """
        plain = bool(self._plain.get(caller.model[:_NAME]))
        async with asyncio.timeout(caller.timeout):
            return await self._answer(caller, ask, behind, plain=plain)

    async def _answer(self, caller: Caller, ask: Ask, behind: bytes, *, plain: bool) -> Answer:
        if behind:
            body = self.wire.question_after(behind, ask, plain=plain)
        else:
            body = self.wire.question(ask, caller.model, plain=plain)
        answer = await self._post(caller, body, may_refuse=not plain)
        if answer is None:
            return await self._answer(caller, ask, behind, plain=True)
        if plain:  # what is refused in plain words too, was not refused for its parameters
            self._plain.put(caller.model[:_NAME], value=True)
        return answer

    async def again(self, caller: Caller, body: bytes) -> Answer:
        """What the model answers to a client's request, asked once more. Raises as :meth:`answer` does."""
        async with asyncio.timeout(caller.timeout):
            answer = await self._post(caller, self.wire.repeated(body))
        if answer is None:
            raise Unanswered("refused")
        return answer

    async def _post(self, caller: Caller, body: bytes, *, may_refuse: bool = False) -> Answer | None:
        """The answer, which is billed; None where parameters were refused, and ``may_refuse`` be."""
        request = "POST", self.wire.path, caller.headers, body
        status, content, limit = await fetch(self._upstream, *request, _ANSWER_BYTES)
        if limit is not None:
            raise RateLimited(limit)
        if content is None:
            raise Unanswered("too_long")
        if status in _REFUSED_PARAMETERS and may_refuse:
            return None
        if status != 200:
            raise Unanswered("refused", is_passing=status >= 500 or status in _PASSING)
        answer = self.wire.read_answer(content)
        self.accounts.called(caller, answer.usage)
        if (trace := current()) is not None:
            trace.answered(answer)
        return answer


class Fetched(NamedTuple):
    """An answer to a question of our own."""

    status: int
    content: bytes | None
    """None for a body that is too large."""
    limit: float | None
    """As :func:`rate_limit` has it."""


async def fetch(
    upstream: Upstream,
    method: str,
    place: str,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes | None,
    most: int,
    *,
    at_root: bool = False,
) -> Fetched:
    """Ask something of our own; of the answer's body at most ``most`` bytes are read.

    Raises what the upstream port raises; whoever asks bounds the time.
    """
    kind = [(b"content-type", b"application/json")] if body is not None else []
    response = await upstream.send(method, place, [*headers, *kind], body, at_root=at_root)
    content = bytearray()
    try:
        async for chunk in response.chunks():
            content += chunk
            if len(content) > most:
                return Fetched(response.status, None, rate_limit(response))
    finally:
        await response.aclose()
    return Fetched(response.status, bytes(content), rate_limit(response))


def rate_limit(response: UpstreamResponse) -> float | None:
    """Seconds for which an answer asks to be left alone, 0 where it does not say; None where it does not ask.

    That is a 429, and a 503 that says when to come again (RFC 9110, section 10.2.3).
    """
    headers = {name.lower(): value.decode("latin-1").strip() for name, value in response.headers}
    after = headers.get(b"retry-after", "")
    if response.status != _TOO_MANY and not (response.status == _UNAVAILABLE and after):
        return None
    if after.isascii() and after.isdigit():
        seconds = float(after[:6])
    else:
        try:  # a date, which counts from the answer's own
            until = parsedate_to_datetime(after) - parsedate_to_datetime(headers.get(b"date", ""))
            seconds = until.total_seconds()
        except (TypeError, ValueError):  # one of them is none, or names no zone
            seconds = 0.0
    return min(max(seconds, 0.0), _LONGEST_LIMIT)
