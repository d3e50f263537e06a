"""Calls that are answered out of the client's sight, in a stream that stays live and in a whole answer.

The upstream's answer is edited while it passes (:class:`~proxy.core.dialects.answers.AnswerEditor`), its
rounds are counted by :mod:`proxy.engine.tool_rounds`; here the next request is sent and its answer takes the
place of the one before. What was said is in the store before the client is told that its answer is over.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.conversation.messages import extend, read_message
from proxy.core.conversation.records import HiddenCalls
from proxy.core.dialects.answers import AnswerEditor
from proxy.core.formats.json import as_mapping, loads
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.engine.answers.sending import Sender
from proxy.engine.flow import Exchange, Sent, header_of, is_stream
from proxy.engine.recording.recorder import Recorder
from proxy.engine.tool_rounds import Answerers, FreshResults, Rounds
from proxy.errors import UpstreamError, UpstreamInvalidResponse
from proxy.ports import Clock, UpstreamResponse
from proxy.tracing import ROUND, step

_OK = 200
_ANSWER_BYTES = 64 * 2**20
_ABOUT_BYTES = (b"content-encoding", b"content-length")
_DRAINED = 0.05
"""Seconds for which the end of an answer that has said `[DONE]` is waited for, to keep its connection."""
UNSAVED = "hidden-calls"
"""How it is said that what stands upstream for an answer could not be stored."""


@dataclass(frozen=True)
class ToolLoop:
    """Answers calls, and records what stands upstream in their place."""

    sender: Sender
    recorder: Recorder
    clock: Clock

    async def run(self, exchange: Exchange, sent: Sent) -> Sent:
        """An answer as the client is told it.

        Where it is no stream all rounds are over then. Raises UpstreamUnreachable, UpstreamTimeout and
        UpstreamInvalidResponse.
        """
        fresh = [FreshResults(exchange.tools)] if exchange.tools.serves_any else []
        answerers = Answerers([*exchange.answerers, *fresh])
        if sent.response.status != _OK or not answerers or not exchange.request.history.body.may_hide_calls:
            return sent
        sent = _unpacked(sent)
        if not _is_plain(sent.response):
            return sent
        exchange.rounds = Rounds(
            wire=self.sender.wire,
            answerers=answerers,
            counter=self.recorder.counter,
            metrics=self.recorder.metrics,
            limit=exchange.request.incoming.policy.recall.rounds,
            room=exchange.request.budget.left(exchange.sent_tokens),
        )
        course = _Course(self, exchange, exchange.rounds)
        if is_stream(sent.response):
            return replace(sent, response=_Spliced(sent, course), begun=b"", is_over=False)
        return await _whole(sent, course)


@dataclass(frozen=True)
class _Course:
    """One answer: its rounds, how the upstream goes on, and what is left behind."""

    loop: ToolLoop
    exchange: Exchange
    rounds: Rounds

    async def go_on(self, sent: Sent) -> Sent:
        await sent.response.aclose()
        body = self.rounds.next_body(self.exchange.body)
        sender = self.loop.sender
        with step(ROUND):
            following = _unpacked(await sender.forward(self.exchange.request.incoming, body))
        refusal = sender.refusal(self.exchange, following)
        sender.learn_window(self.exchange, refusal, self.rounds.tokens)
        return following

    async def conclude(self, editor: AnswerEditor) -> None:
        """Record what stands upstream for the answer, as far as the client is told another message."""
        if not self.rounds.sequence:
            return
        answer = read_message(self.rounds.wire.read(editor.visible))
        hidden = HiddenCalls(
            hash=extend(self.exchange.request.history.tip, answer.identity),
            messages=tuple(self.rounds.sequence),
            tokens=self.rounds.tokens,
            at=self.loop.clock.now(),
        )
        if not await self.loop.recorder.keep_hidden(self.exchange, hidden):
            self.exchange.degraded.append(UNSAVED)

    def comment(self) -> bytes:
        """What came too late for the headers."""
        comments = [f"tool-cache hits={self.rounds.hits}"] if self.rounds.hits else []
        comments += [f"degraded {UNSAVED}"] if UNSAVED in self.exchange.degraded else []
        return b"".join(b": unabridged %b\n\n" % each.encode() for each in comments)


class _Spliced:
    """A stream whose continuations are spliced into it; stands where the upstream's answer would."""

    def __init__(self, sent: Sent, course: _Course) -> None:
        self.status = sent.response.status
        self.headers = sent.response.headers
        self._sent = sent
        self._course = course
        self._editor = course.rounds.wire.stream_editor(course.rounds.rules)

    async def chunks(self) -> AsyncIterator[bytes]:
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
        with contextlib.suppress(TimeoutError, UpstreamError):
            async with asyncio.timeout(_DRAINED):
                async for _ in chunks:
                    pass
        self._sent = await self._course.go_on(self._sent)
        self._editor.go_on(may_ask=self._course.rounds.may_ask)
        sent = self._sent
        if sent.response.status == _OK and is_stream(sent.response) and _is_plain(sent.response):
            return b""
        try:
            error = as_mapping(loads(sent.opening or sent.begun)).get("error")
        except ValueError:
            error = None
        body = {"error": error} if error else UpstreamInvalidResponse().body()
        return self._course.rounds.wire.error_event(body)

    async def aclose(self) -> None:
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
    editor = course.rounds.wire.answer_editor(course.rounds.rules)
    try:
        while True:
            read = bytearray()
            async for chunk in sent.chunks():
                read += chunk
                if len(read) > _ANSWER_BYTES:
                    break
            body = bytes(read)
            if sent.response.status != _OK or len(body) > _ANSWER_BYTES:
                return replace(sent, begun=body, is_over=len(body) <= _ANSWER_BYTES)
            editor.feed(body)
            if not await course.rounds.settle(editor):
                break
            sent = await course.go_on(sent)
            editor.go_on(may_ask=course.rounds.may_ask)
        if editor.has_given_up and editor.end() is not body:
            raise UpstreamInvalidResponse  # noqa: TRY301 - it cannot be read, nor passed on as it came
        await course.conclude(editor)
    except BaseException:
        await sent.response.aclose()
        raise
    edited = editor.end()
    response = sent.response if edited is body else _Rewritten(sent.response, len(edited))
    return replace(sent, response=response, begun=edited, is_over=True)


def _is_plain(response: UpstreamResponse) -> bool:
    return header_of(response, b"content-encoding") in (b"", b"identity")


# --- answers that come compressed though nobody has asked for that ---


def _unpacked(sent: Sent) -> Sent:
    """The same answer, plain; as it is where it is plain already, or packed in a way that is not known."""
    coding = header_of(sent.response, b"content-encoding")
    if coding not in CODINGS:
        return sent
    return Sent(_Unpacked(sent, Unpacker(coding, _ANSWER_BYTES)), b"", is_over=False, opening=sent.opening)


class _Unpacked:
    """Stands where the upstream's answer would."""

    def __init__(self, sent: Sent, unpacker: Unpacker) -> None:
        self.status = sent.response.status
        self.headers: Sequence[tuple[bytes, bytes]] = [
            pair for pair in sent.response.headers if pair[0].lower() not in _ABOUT_BYTES
        ]
        self._sent = sent
        self._unpacker = unpacker
        self.aclose = sent.response.aclose

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises UpstreamInvalidResponse where it cannot be unpacked."""
        async for chunk in self._sent.chunks():
            try:
                plain = self._unpacker.feed(chunk)
            except UnpackingError as error:
                raise UpstreamInvalidResponse from error
            if plain:
                yield plain
