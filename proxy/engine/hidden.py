"""Calls that are answered out of the client's sight, in a stream that stays live and in a whole answer.

The upstream's answer is edited while it passes (:mod:`proxy.core.hidden`), its rounds are counted by
:mod:`proxy.engine.rounds`; here the next request is sent and its answer takes the place of the one before.
What was said is in the store before the client is told that its answer is over.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from proxy.core.hidden.completion import CompletionEditor
from proxy.core.hidden.continuation import may_hide
from proxy.core.hidden.editor import StreamEditor
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import Content, as_mapping
from proxy.core.records import HiddenCalls
from proxy.engine.answerers import Answerers, FreshResults
from proxy.engine.exchange import Incoming, Prepared, Sent
from proxy.engine.record import Recorder
from proxy.engine.request import Engine
from proxy.engine.rounds import Rounds
from proxy.errors import UpstreamError, UpstreamInvalidResponse
from proxy.ports import UpstreamResponse

_OK = 200
_ANSWER_BYTES = 64 * 2**20
_DRAINED = 0.05
"""Seconds for which the end of an answer that has said `[DONE]` is waited for, to keep its connection."""
UNSAVED = "hidden-calls"
"""How it is said that what stands upstream for an answer could not be stored."""

GoOn = Callable[[], Awaitable[Sent]]
"""Lets the upstream go on."""
Conclude = Callable[[bytes], Awaitable[None]]
"""Records what was hidden in an answer, of which the client is told this message."""


@dataclass(frozen=True)
class Hidden:
    """Answers calls, and records what stands upstream in their place."""

    engine: Engine
    recorder: Recorder

    async def told(self, prepared: Prepared, incoming: Incoming, sent: Sent) -> Sent:
        """An answer as the client is told it.

        Where it is no stream all rounds are over then. Raises UpstreamUnreachable, UpstreamTimeout and
        UpstreamInvalidResponse.
        """
        try:
            if sent.response.status != _OK or not may_hide(prepared.history.body):
                return sent
            answerers = _answerers(prepared)
            if not answerers or not _is_plain(sent.response):
                return sent
            return await self._edited(prepared, incoming, sent, self._rounds(prepared, answerers))
        except BaseException:
            await sent.response.aclose()
            raise

    def _rounds(self, prepared: Prepared, answerers: Answerers) -> Rounds:
        rounds = prepared.rounds = Rounds(
            answerers=answerers,
            counter=self.recorder.counter,
            metrics=self.recorder.metrics,
            limit=prepared.policy.recall.rounds,
            room=prepared.budget.limit - prepared.sent_tokens,
        )
        return rounds

    async def _edited(self, prepared: Prepared, incoming: Incoming, sent: Sent, rounds: Rounds) -> Sent:
        async def go_on() -> Sent:
            return await self.engine.forward(incoming, rounds.next_body(prepared.body))

        async def conclude(visible: bytes) -> None:
            await self._record(prepared, rounds, visible)

        if _header(sent.response, b"content-type").startswith(b"text/event-stream"):
            return replace(
                sent, response=_Spliced(sent, prepared, rounds, go_on, conclude), begun=b"", is_over=False
            )
        return await _whole(sent, rounds, go_on, conclude)

    async def _record(self, prepared: Prepared, rounds: Rounds, visible: bytes) -> None:
        """Write down what stands upstream for the answer, before the client is told that it is over."""
        if not rounds.sequence:
            return
        hidden = HiddenCalls(
            hash=prepared.hash_after(Content.of(visible)),
            messages=tuple(rounds.sequence),
            tokens=rounds.tokens,
            at=self.engine.clock.now(),
        )
        if not await self.recorder.keep_hidden(prepared, hidden):
            prepared.degraded.append(UNSAVED)


def _answerers(prepared: Prepared) -> Answerers:
    """All who may answer calls in the answer to this request."""
    fresh = [FreshResults(prepared.tools)] if prepared.tools.serves_any else []
    return Answerers([*prepared.answerers, *fresh])


class _Spliced:
    """A stream whose continuations are spliced into it; stands where the upstream's answer would."""

    def __init__(
        self, sent: Sent, prepared: Prepared, rounds: Rounds, go_on: GoOn, conclude: Conclude
    ) -> None:
        self.status = sent.response.status
        self.headers = sent.response.headers
        self._sent = sent
        self._prepared = prepared
        self._rounds = rounds
        self._go_on = go_on
        self._conclude = conclude
        self._editor = StreamEditor(rounds.rules)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answer as the client is told it."""
        editor = self._editor
        while True:
            chunks = self._sent.chunks()
            async for passed in self._round(chunks):
                yield passed
            if not await self._rounds.settle(editor):
                break
            if refusal := await self._continue(chunks):
                yield refusal
                return
        await self._conclude(editor.visible) if not editor.has_given_up else None
        yield editor.end(self._comment())
        async for chunk in chunks:
            yield editor.feed(chunk)

    async def _round(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What of one answer of the upstream goes to the client while it comes in."""
        editor, fault = self._editor, None
        try:
            async for chunk in chunks:
                if passed := editor.feed(chunk):
                    yield passed
                if editor.is_over:
                    return
        except UpstreamError as error:
            fault = None if editor.has_ended else error
        if left := editor.rest():
            yield left
        if fault is not None:
            raise fault

    async def _continue(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Let the upstream go on; an event that says why, where it does not."""
        await _drain(chunks)
        await self._sent.response.aclose()
        self._sent = await self._go_on()
        self._editor.go_on(may_ask=self._rounds.may_ask)
        return _refusal(self._sent)

    def _comment(self) -> bytes:
        """What came too late for the headers."""
        told = [f"tool-cache hits={self._rounds.hits}"] if self._rounds.hits else []
        told += [f"degraded {UNSAVED}"] if UNSAVED in self._prepared.degraded else []
        return b"".join(b": unabridged %b\n\n" % each.encode() for each in told)

    async def aclose(self) -> None:
        """Close the upstream's answer."""
        await self._sent.response.aclose()


class _Rewritten:
    """An answer in one piece, with another body than the upstream's."""

    def __init__(self, response: UpstreamResponse, length: int) -> None:
        self.status = response.status
        others = [pair for pair in response.headers if pair[0].lower() not in _ABOUT_LENGTH]
        self.headers: Sequence[tuple[bytes, bytes]] = [*others, (b"content-length", b"%d" % length)]
        self.chunks = response.chunks
        self.aclose = response.aclose


_ABOUT_LENGTH = (b"content-length", b"transfer-encoding")


async def _whole(sent: Sent, rounds: Rounds, go_on: GoOn, conclude: Conclude) -> Sent:
    """An answer in one piece, once all its rounds are over; a refusal where the upstream does not go on."""
    editor = CompletionEditor(rounds.rules)
    try:
        while True:
            body = await _read(sent)
            if len(body) > _ANSWER_BYTES:
                return replace(sent, begun=body, is_over=False)
            editor.feed(body)
            _check(editor, rounds)
            if not await rounds.settle(editor):
                break
            await sent.response.aclose()
            sent = await go_on()
            if sent.response.status != _OK:
                return sent
            editor.go_on(may_ask=rounds.may_ask)
        await conclude(editor.visible)
    except BaseException:
        await sent.response.aclose()
        raise
    told = editor.end()
    response = sent.response if told is body else _Rewritten(sent.response, len(told))
    return replace(sent, response=response, begun=told, is_over=True)


def _check(editor: CompletionEditor, rounds: Rounds) -> None:
    """Raise UpstreamInvalidResponse where the upstream goes on with something that is no completion."""
    if editor.has_given_up and rounds.count:
        raise UpstreamInvalidResponse


async def _read(sent: Sent) -> bytes:
    body = bytearray()
    async for chunk in sent.chunks():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            break
    return bytes(body)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAINED):
            async for _ in chunks:
                pass
    except (TimeoutError, UpstreamError):
        return


def _refusal(sent: Sent) -> bytes:
    """The event that ends a stream whose upstream did not go on; empty where it does."""
    is_stream = _header(sent.response, b"content-type").startswith(b"text/event-stream")
    if sent.response.status == _OK and is_stream and _is_plain(sent.response):
        return b""
    try:
        error = as_mapping(loads(sent.told or sent.begun)).get("error")
    except ValueError:
        error = None
    return b"data: %b\n\n" % dumps({"error": error} if error else UpstreamInvalidResponse().body())


def _is_plain(response: UpstreamResponse) -> bool:
    return _header(response, b"content-encoding") in (b"", b"identity")


def _header(response: UpstreamResponse, wanted: bytes) -> bytes:
    found = (value.strip().lower() for name, value in response.headers if name.lower() == wanted)
    return next(found, b"")
