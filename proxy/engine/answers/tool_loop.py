"""Answer tool calls without the client seeing them, in a live stream or in a whole answer.

The upstream's answer is edited while it passes (:class:`~proxy.core.dialects.answers.AnswerEditor`), and
:mod:`proxy.engine.tool_rounds` runs its rounds. This module sends the next request, whose answer takes the
place of the one before. The hidden messages are in the store before the client is told that its answer is
over.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from msgspec.structs import replace

from proxy.core.conversation.messages import next_hash, read_message
from proxy.core.conversation.records import HiddenCalls
from proxy.core.dialects.answers import AnswerEditor, Refusal
from proxy.core.formats.json import as_mapping, loads
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.engine.answers.sending import Sender
from proxy.engine.flow import Exchange, PeekedResponse
from proxy.engine.recording.collector import ANSWER_BYTES
from proxy.engine.recording.recorder import Recorder
from proxy.engine.tool_rounds import Answerers, FreshResults, Rounds
from proxy.errors import UpstreamError, UpstreamInvalidResponse
from proxy.ports import ChangedResponse, coding_of
from proxy.tracing import ROUND, step

_ERROR_BYTES = 2**20
_ABOUT_BYTES = (b"content-encoding", b"content-length")
_ABOUT_LENGTH = (b"content-length", b"transfer-encoding")
_EDITED_BYTES = 8 * 1024
"""Bytes of a stream that are edited before other requests have their turn: an upstream may send thousands of
events at once, and each is read by itself."""
_DRAINED = 0.05
"""Seconds to wait for the end of an answer that has sent `[DONE]`, so that its connection can be reused."""
_UNSAVED = "hidden-calls"
"""The degradation reported where an answer's hidden messages could not be stored."""


@dataclass(frozen=True)
class ToolLoop:
    """Answers tool calls, and records the messages that the upstream got in their place."""

    sender: Sender
    recorder: Recorder

    async def run(self, exchange: Exchange, sent: PeekedResponse) -> PeekedResponse:
        """Return the answer as the client gets it.

        Where it is not a stream, all rounds are over when this returns. Raises UpstreamUnreachable,
        UpstreamTimeout and UpstreamInvalidResponse.
        """
        # A model that must call a tool would make a call again that is answered here.
        body = exchange.request.history.body
        serves = exchange.tool_cache.serves_any and not body.demands_call
        members = [exchange.recaller, FreshResults(exchange.tool_cache) if serves else None]
        answerers = Answerers([each for each in members if each is not None])
        if sent.response.status != HTTPStatus.OK or not answerers or not body.may_hide_calls:
            return sent
        sent = _unpacked(sent)
        if coding_of(sent.response) != b"identity":
            return sent
        exchange.rounds = Rounds(
            dialect=self.sender.dialect,
            answerers=answerers,
            counter=self.recorder.counter,
            metrics=self.recorder.metrics,
            limit=exchange.request.incoming.policy.recall.rounds,
            room=exchange.request.budget.left(exchange.counted_tokens),
        )
        course = _Course(self, exchange, exchange.rounds)
        if sent.is_stream:
            return replace(sent, response=_Spliced(sent, course), peeked=b"", is_over=False)
        has_failed = True
        try:
            whole = await _whole(sent, course)
            has_failed = whole.response.status != HTTPStatus.OK
        finally:
            if has_failed and exchange.rounds.count:
                self.recorder.bill_unanswered(exchange, exchange.rounds)
        return whole


@dataclass(frozen=True)
class _Course:
    """The course of one answer: its rounds, the next requests, and what is recorded at its end."""

    loop: ToolLoop
    exchange: Exchange
    rounds: Rounds

    async def go_on(self, sent: PeekedResponse, editor: AnswerEditor) -> PeekedResponse | None:
        """Send the next request; None where its results are refused and the answer ends without them.

        No client sees the refusal of what is not its own, such as a length or a content. Where the client
        could have made all calls of the round, it gets them too if the upstream cannot be reached or fails:
        a client tries failed requests again, but not answers that end with an error. Raises
        UpstreamUnreachable, UpstreamTimeout.
        """
        await sent.response.aclose()
        sender, before = self.loop.sender, self.rounds.snapshot
        are_clients = before is not None and self.rounds.own_tool_tokens == before.own_tool_tokens
        body = self.rounds.next_body(self.exchange.body)
        try:
            following, refusal = await self._sent(body)
            is_refused = refusal.rejects_reasoning or (refusal.is_invalid and refusal.overflow is None)
            if is_refused and (with_tools := self.rounds.with_tools(self.exchange.body)) != body:
                await following.response.aclose()
                following, refusal = await self._sent(with_tools)
        except UpstreamError:
            if before is None or not are_clients:
                raise
            self.rounds.refused += 1
            await self.rounds.settle_without_results(editor, before)
            return None
        sender.learn_window(self.exchange, refusal, self.rounds.tokens)
        is_refused = refusal.overflow is not None or refusal.is_invalid
        if before is not None and (is_refused or (are_clients and not _goes_on(sent, following))):
            self.rounds.refused += 1
            if await self.rounds.settle_without_results(editor, before):
                return await self.go_on(following, editor)
            await following.response.aclose()
            return None
        editor.go_on(may_ask=self.rounds.may_ask)
        return following

    async def _sent(self, body: bytes) -> tuple[PeekedResponse, Refusal]:
        sender, request, dialect = self.loop.sender, self.exchange.request, self.rounds.dialect
        refused = request.model.refused_members
        while True:
            taken = dialect.without_members(body, refused)
            with step(ROUND):
                sent = _unpacked(await sender.forward(request, taken, is_first=False))
            refusal = sender.refusal(self.exchange, sent)
            if sent.response.status == HTTPStatus.OK:
                request.model.refused_members |= refused
            if dialect.without_members(body, refused | refusal.refused_members) == taken:
                return sent, refusal
            # What an answer of these rounds has may be refused for the first time.
            await sent.response.aclose()
            refused |= refusal.refused_members

    async def conclude(self, editor: AnswerEditor) -> None:
        """Record the upstream messages of the answer, where the client gets another message instead."""
        if not self.rounds.sequence:
            return
        answer = read_message(self.rounds.dialect.read(editor.visible))
        hidden = HiddenCalls(
            hash=next_hash(self.exchange.request.history.tip, answer.identity),
            messages=tuple(self.rounds.sequence),
            tokens=self.rounds.tokens,
            own_tool_tokens=self.rounds.own_tool_tokens,
            at=self.loop.recorder.clock.now(),
        )
        if not await self.loop.recorder.keep_hidden(self.exchange, hidden):
            self.exchange.degraded.append(_UNSAVED)

    def comment(self) -> bytes:
        """Return stream comments with what was known too late for the headers."""
        comments = [f"tool-cache hits={self.rounds.hits}"] if self.rounds.hits else []
        comments += [f"degraded {_UNSAVED}"] if _UNSAVED in self.exchange.degraded else []
        return b"".join(b": unabridged %b\n\n" % each.encode() for each in comments)


class _Spliced:
    """A response whose stream has the answers of all rounds spliced into one."""

    def __init__(self, sent: PeekedResponse, course: _Course) -> None:
        self.status = sent.response.status
        self.headers = sent.response.headers
        self._sent = sent
        self._course = course
        self._editor = course.rounds.dialect.stream_editor(course.rounds.rules)

    async def chunks(self) -> AsyncIterator[bytes]:
        editor, course = self._editor, self._course
        while True:
            chunks = self._sent.chunks()
            async for passed in self._round(chunks):
                yield passed
            if not await course.rounds.settle(editor):
                break
            with contextlib.suppress(TimeoutError, UpstreamError):  # the rest of the round
                async with asyncio.timeout(_DRAINED):
                    async for _ in chunks:
                        pass
            following = await course.go_on(self._sent, editor)
            if following is None:
                chunks = replace(self._sent, peeked=b"", is_over=True).chunks()  # they were read before
                break
            self._sent = following
            if refusal := await self._refusal(following):
                course.rounds.is_refused = True
                yield refusal
                return
        if not editor.has_given_up:
            await course.conclude(editor)
        if last := editor.end(course.comment()):
            yield last
        async for chunk in chunks:
            yield editor.feed(chunk)

    async def _round(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the part of one upstream answer that the client gets, while it arrives."""
        editor, fault = self._editor, None
        try:
            async for chunk in chunks:
                for start in range(0, len(chunk), _EDITED_BYTES):
                    if start:
                        await asyncio.sleep(0)
                    if passed := editor.feed(chunk[start : start + _EDITED_BYTES]):
                        yield passed
                if editor.is_over:
                    return
        except UpstreamError as error:
            fault = None if editor.has_ended else error
        if left := editor.rest():
            yield left
        if fault is not None:
            raise fault

    async def _refusal(self, sent: PeekedResponse) -> bytes:
        """Return an error event if the upstream does not continue, else empty."""
        if sent.is_stream and coding_of(sent.response) == b"identity":
            return b""
        error = _error_in(sent.possible_error or await _read(sent, _ERROR_BYTES))
        body = {"error": error} if error else UpstreamInvalidResponse().body()
        return self._course.rounds.dialect.error_event(body)

    async def aclose(self) -> None:
        await self._sent.response.aclose()


def _goes_on(sent: PeekedResponse, following: PeekedResponse) -> bool:
    """Whether an answer has begun, a stream if the one before was one."""
    response, is_empty = following.response, following.is_over and not following.peeked
    is_same = response.status == HTTPStatus.OK and following.is_stream == sent.is_stream
    return is_same and not is_empty and not _error_in(following.possible_error)


def _error_in(body: bytes) -> object:
    """Return the error that a body reports, which some upstreams do with status 200; None if it has none."""
    try:
        return as_mapping(loads(body)).get("error")
    except ValueError:
        return None


async def _read(sent: PeekedResponse, most: int) -> bytes:
    """Return a whole body; of one of more than ``most`` bytes what was read by then."""
    read = bytearray()
    async for chunk in sent.chunks():
        read += chunk
        if len(read) > most:
            break
    return bytes(read)


async def _whole(sent: PeekedResponse, course: _Course) -> PeekedResponse:
    """Return a whole answer once all its rounds are over; a refusal where the upstream does not continue."""
    editor = course.rounds.dialect.answer_editor(course.rounds.rules)
    try:
        while True:
            body = await _read(sent, ANSWER_BYTES)
            if sent.response.status != HTTPStatus.OK or len(body) > ANSWER_BYTES:
                return replace(sent, peeked=body, is_over=len(body) <= ANSWER_BYTES)
            editor.feed(body)
            if not await course.rounds.settle(editor):
                break
            following = await course.go_on(sent, editor)
            if following is None:
                break
            sent = following
        if editor.has_given_up and editor.end() is not body:
            if not _error_in(body):
                raise UpstreamInvalidResponse  # noqa: TRY301 - it cannot be read, nor passed on as it came
            return replace(sent, peeked=body, is_over=True)
        await course.conclude(editor)
    except BaseException:
        await sent.response.aclose()
        raise
    edited, response = editor.end(), sent.response
    if edited is not body:
        others = [pair for pair in response.headers if pair[0].lower() not in _ABOUT_LENGTH]
        headers = [*others, (b"content-length", b"%d" % len(edited))]
        response = ChangedResponse(response.status, headers, response.chunks, response.aclose)
    return replace(sent, response=response, peeked=edited, is_over=True)


# --- answers that are compressed though nobody has asked for that ---


def _unpacked(sent: PeekedResponse) -> PeekedResponse:
    """Return the answer decompressed; unchanged where it is plain, or compressed in an unknown way."""
    response, coding = sent.response, coding_of(sent.response)
    if coding not in CODINGS:
        return sent
    unpacker = Unpacker(coding, ANSWER_BYTES)

    async def chunks() -> AsyncIterator[bytes]:
        async for chunk in sent.chunks():
            try:
                plain = unpacker.feed(chunk)
            except UnpackingError as error:
                raise UpstreamInvalidResponse from error
            if plain:
                yield plain

    headers = [pair for pair in response.headers if pair[0].lower() not in _ABOUT_BYTES]
    unpacked = ChangedResponse(response.status, headers, chunks, response.aclose)
    return replace(sent, response=unpacked, peeked=b"", is_over=False)
