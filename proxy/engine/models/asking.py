"""Our own calls to the upstream: of the client's request they carry only its auth headers and API version.

The exception is a question that follows a conversation, which includes the messages that the provider has
cached.

A model that refuses a schema or temperature is asked again without them, one whose thoughts take up the
tokens of its answer with more of them, and one that only streams for a stream. When a call may be made is
decided by :mod:`proxy.engine.foreground`.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal, NamedTuple, Protocol, Self

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.messages import begins_with_thought
from proxy.core.dialects.answers import Answer, Ask, Usage
from proxy.core.dialects.dialect import MODEL_NAME_CHARACTERS, Dialect
from proxy.core.policy.sections import Summary
from proxy.core.summaries.prompt import TOKEN_CHARACTERS
from proxy.core.text.cutting import size
from proxy.ports import Header, SessionKey, Upstream, UpstreamResponse, header_of, is_stream
from proxy.tracing import current

_AT_ONCE = 65_536
"""Bytes of an answer that is read on the loop."""
_ANSWER_BYTES = 2**23
"""Most bytes of an answer: in a stream, each token may have some hundreds."""
_REFUSED_PARAMETERS = (400, 422)
_ABOUT_STREAMS = re.compile(
    rb"only [^.]{0,40}\bstream|non-stream|\bstream\w* (?:must|is required)|\bstream\W{1,4}true", re.IGNORECASE
)
"""As in "only support stream mode" and "for non-streaming calls"."""
_TRANSIENT = frozenset({408, 409, 425})
"""Status codes below 500 with which the same request may succeed a minute later."""
_THOUGHTS = 8_000
"""Output tokens on top for a model whose thoughts count towards its limit."""
_LEAST_ROOM = 1_000
"""Output tokens on top below which a model is not asked again."""
_LONGEST_LIMIT = 3_600.0
"""Most seconds of a Retry-After that are obeyed."""


@dataclass(frozen=True)
class CallOptions:
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
    window: int | None = None
    """The model's context window in tokens, if it is known."""
    query: str = ""
    """What the upstream wants in the query of each request."""

    def billed_to(self, session: SessionKey, ttl: float) -> Self:
        """Return this caller for work that is for one session alone."""
        return replace(self, session=session, ttl=ttl)

    @classmethod
    def for_summaries(
        cls,
        rules: Summary,
        model: str,
        credentials: Sequence[Header] = (),
        window: int | None = None,
        query: str = "",
    ) -> Self:
        """Return the caller for summaries of a conversation with this model, as the policy says.

        ``window`` is that of the conversation's model.
        """
        window = window if rules.model in ("", model) else None
        return cls(rules.model or model, credentials, rules.timeout, window=window, query=query)


class Unanswered(Exception):  # noqa: N818 - no bad answer, which may be better a second time
    """The upstream did not answer with a completion; the message is the metric's label."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_passing
        """Whether the upstream may answer the same question a minute later."""


class RateLimited(Unanswered):
    """The upstream accepts no more calls for now."""

    def __init__(self, seconds: float) -> None:
        super().__init__("rate_limited", is_passing=True)
        self.seconds = seconds
        """Seconds until it may be asked again; 0 where it does not say."""


class Accounts(Protocol):
    """Gets the outcomes of our own calls."""

    def called(self, caller: CallOptions, usage: Usage | None) -> None:
        """Called when the model has answered, whether the answer is of use or not."""
        ...

    def failed(self, caller: CallOptions, reason: str) -> None:
        """Called when the result could not be obtained."""
        ...


class ModelClient:
    """Asks the upstream model."""

    def __init__(self, dialect: Dialect, upstream: Upstream, memory: CacheMemory, accounts: Accounts) -> None:
        self.dialect = dialect
        self.accounts = accounts
        self._upstream = upstream
        self._refuses_parameters: Lru[str, bool] = Lru(memory)
        """Models that refused a schema or temperature."""
        self._needs_reasoning_room: Lru[str, bool] = Lru(memory)
        """Models whose thoughts took up their answers, and whether room for both was of any help."""
        self._stream_only: Lru[str, bool] = Lru(memory)
        """Models that answer in streams alone."""

    async def answer(self, caller: CallOptions, ask: Ask, after: bytes = b"") -> Answer:
        """Return the model's answer, asked ``after`` the messages of another request's body if there is one.

        Raises Unanswered, TimeoutError and what the upstream port raises.
        """
        name, room = caller.model[:MODEL_NAME_CHARACTERS], _THOUGHTS
        if caller.window is not None:  # thoughts may have what it has room for
            sent = (len(after) + size(ask.task) + size(ask.text)) // TOKEN_CHARACTERS
            room = min(room, max(caller.window - sent - ask.max_tokens, 0))
        thinks, roomier = self._needs_reasoning_room.get(name), replace(ask, max_tokens=ask.max_tokens + room)
        async with asyncio.timeout(caller.timeout):
            answer = None
            if not (thinks and room):
                answer = await self._asked(caller, ask, after)
                if thinks is not None or room < _LEAST_ROOM or not self._has_run_out(answer):
                    return answer
            self._needs_reasoning_room.put(name, value=False)  # until it is known, as the time may run out
            try:
                longer = await self._asked(caller, roomier, after)
            except Unanswered as refusal:
                if refusal.is_transient:
                    self._needs_reasoning_room.drop(name)
                    raise
                return await self._asked(caller, ask, after) if answer is None else answer
            if not self._has_run_out(longer):
                self._needs_reasoning_room.put(name, value=True)
            elif room < _THOUGHTS:  # another caller's window may have room for more
                self._needs_reasoning_room.drop(name)
            return longer

    def _has_run_out(self, answer: Answer) -> bool:
        """Whether an answer ended for its length because the model was thinking."""
        message = answer.message
        if answer.finish_reason != "length" or answer.tool_calls or message is None:
            return False
        if answer.usage is not None and answer.usage.reasoning_tokens:
            return True
        text = self.dialect.read(message).text
        return not text.strip() or begins_with_thought(text) or self.dialect.holds_reasoning(message)

    async def _asked(self, caller: CallOptions, ask: Ask, after: bytes) -> Answer:
        """Return the answer to a question, asked without schema and temperature where these are refused."""
        plain = bool(self._refuses_parameters.get(caller.model[:MODEL_NAME_CHARACTERS]))
        while True:
            if after:
                body = self.dialect.question_after(after, ask, minimal=plain)
            else:
                body = self.dialect.question(ask, caller.model, minimal=plain)
            answer = await self._post(caller, body, may_refuse=not plain)
            if answer is not None:
                break
            plain = True
        if plain:  # if this is refused too, the parameters were not the cause
            self._refuses_parameters.put(caller.model[:MODEL_NAME_CHARACTERS], value=True)
        return answer

    async def again(self, caller: CallOptions, body: bytes) -> Answer:
        """Return the model's answer to a client's request sent once more. Raises as :meth:`answer` does."""
        async with asyncio.timeout(caller.timeout):
            answer = await self._post(caller, self.dialect.repeated(body))
        if answer is None:
            raise Unanswered("refused")
        return answer

    async def _post(self, caller: CallOptions, body: bytes, *, may_refuse: bool = False) -> Answer | None:
        """Return the answer and bill it; None where parameters were refused, if that ``may_refuse``."""
        name = caller.model[:MODEL_NAME_CHARACTERS]
        streams = bool(self._stream_only.get(name))
        path = f"{self.dialect.path}?{caller.query}" if caller.query else self.dialect.path
        while True:
            request = "POST", path, caller.headers, self.dialect.streamed(body) if streams else body
            status, content, limit, is_streamed = await fetch(self._upstream, *request, _ANSWER_BYTES)
            if limit is not None:
                raise RateLimited(limit)
            if content is None:
                raise Unanswered("too_long")
            if streams or status not in _REFUSED_PARAMETERS or not _ABOUT_STREAMS.search(content):
                break
            streams = True
        if status in _REFUSED_PARAMETERS and may_refuse:
            return None
        if status != 200:
            raise Unanswered("refused", is_passing=status >= 500 or status in _TRANSIENT)
        if streams:
            self._stream_only.put(name, value=True)
        read = self._read_stream if is_streamed else self.dialect.read_answer
        # The span of a call ends with this pass of the loop, and is told of what is read before.
        answer = read(content) if len(content) <= _AT_ONCE else await asyncio.to_thread(read, content)
        self.accounts.called(caller, answer.usage)
        if (trace := current()) is not None:
            trace.answered(answer)
        return answer

    def _read_stream(self, body: bytes) -> Answer:
        collector = self.dialect.answer_stream()
        collector.feed(body)
        return collector.answer()


class Fetched(NamedTuple):
    """The response to one of our own calls."""

    status: int
    content: bytes | None
    """The body; None if it is too large."""
    limit: float | None
    """The result of :func:`rate_limit`."""
    is_stream: bool = False
    """Whether the body is a stream of events."""


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
    return Fetched(response.status, bytes(content), rate_limit(response), is_stream(response))


def rate_limit(response: UpstreamResponse) -> float | None:
    """Return for how many seconds a response asks for no calls, 0 if it does not say; else None.

    That is a 429, or a 503 with a Retry-After (RFC 9110, section 10.2.3).
    """
    after = (header_of(response.headers, b"retry-after") or b"").decode("latin-1").strip()
    if response.status != HTTPStatus.TOO_MANY_REQUESTS and not (
        response.status == HTTPStatus.SERVICE_UNAVAILABLE and after
    ):
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
