"""Our own calls to the upstream: of the client's request they carry only its auth headers.

The exception is a question that follows a conversation, which includes the messages that the provider has
cached.

A model that refuses a schema or temperature is asked again without them. When a call may be made is decided
by :mod:`proxy.engine.foreground`.
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
from proxy.ports import Header, SessionKey, Upstream, UpstreamResponse, header_of
from proxy.tracing import current

_ANSWER_BYTES = 2**20
_REFUSED_PARAMETERS = (400, 422)
_TOO_MANY, _UNAVAILABLE = 429, 503
_PASSING = frozenset({408, 409, 425})
"""Status codes below 500 with which the same request may succeed a minute later."""
_LONGEST_LIMIT = 3_600.0
"""Most seconds of a Retry-After that are obeyed."""
_NAME = 256
"""Characters of a model's name that are used as a key: clients choose names of any length."""


@dataclass(frozen=True)
class Caller:
    """The caller in whose name the model is asked."""

    model: str
    headers: Sequence[Header]
    """The caller's credentials; held in memory only."""
    timeout: float
    """Seconds that one call may take."""
    purpose: Literal["summaries", "memory", "proof"] = "summaries"
    """The kind of cost as which its calls are billed."""
    session: SessionKey | None = None
    """The session whose bill the calls go to, if they are for one session alone."""
    ttl: float = 0.0
    """Seconds that this session lives."""

    def billed_to(self, session: SessionKey, ttl: float) -> Self:
        """Return this caller for work that is for one session alone."""
        return replace(self, session=session, ttl=ttl)

    @classmethod
    def for_summaries(cls, rules: Summary, model: str, credentials: Sequence[Header] = ()) -> Self:
        """Return the caller for summaries of a conversation with this model, as the policy says."""
        return cls(rules.model or model, credentials, rules.timeout)


class Unanswered(Exception):  # noqa: N818 - no bad answer, which may be better a second time
    """The upstream did not answer with a completion; the message is the metric's label."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_passing = is_passing
        """Whether the upstream may answer the same question a minute later."""


class RateLimited(Unanswered):
    """The upstream accepts no more calls for now."""

    def __init__(self, seconds: float) -> None:
        super().__init__("rate_limited", is_passing=True)
        self.seconds = seconds
        """Seconds until it may be asked again; 0 where it does not say."""


class Accounts(Protocol):
    """Gets the outcomes of our own calls."""

    def called(self, caller: Caller, usage: Usage | None) -> None:
        """Called when the model has answered, whether the answer is of use or not."""
        ...

    def failed(self, caller: Caller, reason: str) -> None:
        """Called when the result could not be obtained."""
        ...


class Asking:
    """Asks the upstream model."""

    def __init__(self, dialect: Dialect, upstream: Upstream, memory: Memory, accounts: Accounts) -> None:
        self.dialect = dialect
        self.accounts = accounts
        self._upstream = upstream
        self._plain: Lru[str, bool] = Lru(memory)
        """Models that refused a schema or temperature."""

    async def answer(self, caller: Caller, ask: Ask, after: bytes = b"") -> Answer:
        """Return the model's answer, asked ``after`` the messages of another request's body if there is one.

        Raises Unanswered, TimeoutError and what the upstream port raises.
        """
        plain = bool(self._plain.get(caller.model[:_NAME]))
        async with asyncio.timeout(caller.timeout):
            while True:
                if after:
                    body = self.dialect.question_after(after, ask, plain=plain)
                else:
                    body = self.dialect.question(ask, caller.model, plain=plain)
                answer = await self._post(caller, body, may_refuse=not plain)
                if answer is not None:
                    break
                plain = True
        if plain:  # if this is refused too, the parameters were not the cause
            self._plain.put(caller.model[:_NAME], value=True)
        return answer

    async def again(self, caller: Caller, body: bytes) -> Answer:
        """Return the model's answer to a client's request sent once more. Raises as :meth:`answer` does."""
        async with asyncio.timeout(caller.timeout):
            answer = await self._post(caller, self.dialect.repeated(body))
        if answer is None:
            raise Unanswered("refused")
        return answer

    async def _post(self, caller: Caller, body: bytes, *, may_refuse: bool = False) -> Answer | None:
        """Return the answer and bill it; None where parameters were refused, if that ``may_refuse``."""
        request = "POST", self.dialect.path, caller.headers, body
        status, content, limit = await fetch(self._upstream, *request, _ANSWER_BYTES)
        if limit is not None:
            raise RateLimited(limit)
        if content is None:
            raise Unanswered("too_long")
        if status in _REFUSED_PARAMETERS and may_refuse:
            return None
        if status != 200:
            raise Unanswered("refused", is_passing=status >= 500 or status in _PASSING)
        answer = self.dialect.read_answer(content)
        self.accounts.called(caller, answer.usage)
        if (trace := current()) is not None:
            trace.answered(answer)
        return answer


class Fetched(NamedTuple):
    """The response to one of our own calls."""

    status: int
    content: bytes | None
    """The body; None if it is too large."""
    limit: float | None
    """The result of :func:`rate_limit`."""


async def fetch(
    upstream: Upstream,
    method: str,
    place: str,
    headers: Sequence[Header],
    body: bytes | None,
    most: int,
    *,
    at_root: bool = False,
) -> Fetched:
    """Make one of our own calls; at most ``most`` bytes of the response body are read.

    Raises what the upstream port raises; the caller limits the time.
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
    """Return for how many seconds a response asks for no calls, 0 if it does not say; else None.

    That is a 429, or a 503 with a Retry-After (RFC 9110, section 10.2.3).
    """
    after = (header_of(response.headers, b"retry-after") or b"").decode("latin-1").strip()
    if response.status != _TOO_MANY and not (response.status == _UNAVAILABLE and after):
        return None
    if after.isascii() and after.isdigit():
        seconds = float(after[:6])
    else:
        try:  # a date, relative to the response's own date
            now = (header_of(response.headers, b"date") or b"").decode("latin-1")
            seconds = (parsedate_to_datetime(after) - parsedate_to_datetime(now)).total_seconds()
        except (TypeError, ValueError):  # one of them is no date, or has no time zone
            seconds = 0.0
    return min(max(seconds, 0.0), _LONGEST_LIMIT)
