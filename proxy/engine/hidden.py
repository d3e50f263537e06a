"""Calls that are answered out of the client's sight, in a stream that stays live and in a whole answer.

The upstream's answer is edited while it passes (:mod:`proxy.core.hidden`), its rounds are counted by
:mod:`proxy.engine.rounds`; here the next request is sent and its answer takes the place of the one before.
What was said is in the store before the client is told that its answer is over.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.hidden.completion import CompletionEditor
from proxy.core.hidden.continuation import may_hide
from proxy.core.hidden.editor import StreamEditor
from proxy.core.identity import read_message
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import Content, as_mapping
from proxy.core.records import HiddenCalls
from proxy.engine.answerers import Answerers, FreshResults
from proxy.engine.exchange import Incoming, Prepared, Sent, header_of, is_stream
from proxy.engine.record import Recorder
from proxy.engine.request import Engine
from proxy.engine.rounds import Rounds
from proxy.engine.unpacked import unpacked
from proxy.errors import UpstreamError, UpstreamInvalidResponse
from proxy.ports import UpstreamResponse

_OK = 200
_ANSWER_BYTES = 64 * 2**20
_DRAINED = 0.05
"""Seconds for which the end of an answer that has said `[DONE]` is waited for, to keep its connection."""
UNSAVED = "hidden-calls"
"""How it is said that what stands upstream for an answer could not be stored."""


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
        answerers = _answerers(prepared)
        if sent.response.status != _OK or not answerers or not may_hide(prepared.history.body):
            return sent
        sent = unpacked(sent)
        if not _is_plain(sent.response):
            return sent
        prepared.rounds = self._rounds(prepared, answerers)
        course = _Course(self.engine, self.recorder, prepared, incoming, prepared.rounds)
        if is_stream(sent.response):
            return replace(sent, response=_Spliced(sent, course), begun=b"", is_over=False)
        return await _whole(sent, course)

    def _rounds(self, prepared: Prepared, answerers: Answerers) -> Rounds:
        return Rounds(
            answerers=answerers,
            counter=self.recorder.counter,
            metrics=self.recorder.metrics,
            limit=prepared.policy.recall.rounds,
            room=prepared.budget.limit - prepared.sent_tokens,
        )


def _answerers(prepared: Prepared) -> Answerers:
    """All who may answer calls in the answer to this request."""
    fresh = [FreshResults(prepared.tools)] if prepared.tools.serves_any else []
    return Answerers([*prepared.answerers, *fresh])


@dataclass(frozen=True)
class _Course:
    """One answer: its rounds, how the upstream goes on, and what is left behind."""

    engine: Engine
    recorder: Recorder
    prepared: Prepared
    incoming: Incoming
    rounds: Rounds

    async def go_on(self, sent: Sent) -> Sent:
        """The upstream's next answer in the place of this one."""
        await sent.response.aclose()
        body = self.rounds.next_body(self.prepared.body)
        following = unpacked(await self.engine.forward(self.incoming, body))
        self.engine.learn_refusal(self.prepared, following, self.rounds.tokens)
        return following

    async def conclude(self, editor: StreamEditor | CompletionEditor) -> None:
        """Record what stands upstream for the answer, as far as the client is told another message."""
        if not self.rounds.sequence:
            return
        hidden = HiddenCalls(
            hash=self.prepared.hash_after(read_message(Content.of(editor.visible))),
            messages=tuple(self.rounds.sequence),
            tokens=self.rounds.tokens,
            at=self.engine.clock.now(),
        )
        if not await self.recorder.keep_hidden(self.prepared, hidden):
            self.prepared.degraded.append(UNSAVED)

    def comment(self) -> bytes:
        """What came too late for the headers."""
        told = [f"tool-cache hits={self.rounds.hits}"] if self.rounds.hits else []
        told += [f"degraded {UNSAVED}"] if UNSAVED in self.prepared.degraded else []
        return b"".join(b": unabridged %b\n\n" % each.encode() for each in told)


class _Spliced:
    """A stream whose continuations are spliced into it; stands where the upstream's answer would."""

    def __init__(self, sent: Sent, course: _Course) -> None:
        self.status = sent.response.status
        self.headers = sent.response.headers
        self._sent = sent
        self._course = course
        self._editor = StreamEditor(course.rounds.rules)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answer as the client is told it."""
        editor, course = self._editor, self._course
        while True:
            chunks = self._sent.chunks()
            async for passed in self._round(chunks):
                yield passed
            if not await course.rounds.settle(editor):
                break
            if refusal := await self._go_on(chunks):
                yield refusal
                return
        if not editor.has_given_up:
            await course.conclude(editor)
        if last := editor.end(course.comment()):
            yield last
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

    async def _go_on(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Let the upstream go on; an event that says why, where it does not."""
        await _drain(chunks)
        self._sent = await self._course.go_on(self._sent)
        self._editor.go_on(may_ask=self._course.rounds.may_ask)
        return _refusal(self._sent)

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


async def _whole(sent: Sent, course: _Course) -> Sent:
    """An answer in one piece, once all its rounds are over; a refusal where the upstream does not go on."""
    editor = CompletionEditor(course.rounds.rules)
    try:
        while True:
            body = await _read(sent)
            if sent.response.status != _OK or len(body) > _ANSWER_BYTES:
                return replace(sent, begun=body, is_over=len(body) <= _ANSWER_BYTES)
            editor.feed(body)
            _check(editor, course.rounds)
            if not await course.rounds.settle(editor):
                break
            sent = await course.go_on(sent)
            editor.go_on(may_ask=course.rounds.may_ask)
        await course.conclude(editor)
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
    if sent.response.status == _OK and is_stream(sent.response) and _is_plain(sent.response):
        return b""
    try:
        error = as_mapping(loads(sent.told or sent.begun)).get("error")
    except ValueError:
        error = None
    return b"data: %b\n\n" % dumps({"error": error} if error else UpstreamInvalidResponse().body())


def _is_plain(response: UpstreamResponse) -> bool:
    return header_of(response, b"content-encoding") in (b"", b"identity")
