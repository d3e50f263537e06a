"""Pass an upstream's answer on to the client: each chunk at once, with its true ending.

An answer that ends too early is reported as such. The answer to an appended turn is complete only once its
turn is stored: until then the last event of a stream is held back, or all of an answer that is not a stream.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from functools import partial

from starlette.types import Send

from proxy import errors
from proxy.core.dialects.answers import StreamFilter
from proxy.core.dialects.dialect import Dialect
from proxy.engine.recording.collector import ANSWER_BYTES, Collector

Begin = Callable[[], Awaitable[None]]
"""Sends the head of the answer."""
Acknowledged = Callable[[], Awaitable[None]]
"""Waits until an appended turn is stored. Raises HistoryNotSaved and UpstreamInvalidResponse."""


async def pump(
    chunks: AsyncIterable[bytes],
    send: Send,
    *,
    tee: Callable[[bytes], None] | None = None,
    ending: Callable[[errors.UpstreamError | None], bytes] | None = None,
) -> None:
    """Pass an answer's body on, each chunk unchanged and at once, and complete the answer.

    `tee` is called with each chunk after it was sent; it must not raise. `ending` returns the last bytes,
    given the fault that ended the body, if any; without `ending` the fault is raised and the answer stays
    incomplete.
    """
    fault: errors.UpstreamError | None = None
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if tee is not None:
                tee(chunk)
    except errors.UpstreamError as error:
        if ending is None:
            raise
        fault = error
    last = b"" if ending is None else ending(fault)
    await send({"type": "http.response.body", "body": last, "more_body": False})


async def send_answer(
    chunks: AsyncIterator[bytes], collector: Collector, send: Send, *, adds_usage: bool, tells_end: bool
) -> None:
    """Pass on an answer that has begun; ``adds_usage``: remove the usage that only the proxy asked for.

    ``tells_end`` decides whether an answer that ends too early gets an error event, or ends as the upstream's
    does.
    """
    ending = partial(_ending, collector) if tells_end else None
    if collector.is_plain_stream and adds_usage:
        left = _without_usage(_seen(chunks, collector), collector.dialect.usage_remover())
        await pump(left, send, ending=ending)
    else:
        await pump(chunks, send, tee=collector.feed, ending=ending)


async def send_appended(
    chunks: AsyncIterator[bytes],
    collector: Collector,
    begin: Begin,
    send: Send,
    acknowledged: Acknowledged,
    *,
    adds_usage: bool,
) -> None:
    """Pass on the answer to an appended turn.

    An answer that is no stream, or a compressed one, is held back as a whole; HistoryNotSaved and
    UpstreamError, also for an answer of more than `ANSWER_BYTES`, are then raised before anything was sent.
    """
    chunks = _seen(chunks, collector)
    if not collector.is_plain_stream:
        whole = bytearray()
        async for chunk in chunks:
            whole += chunk
            if len(whole) > ANSWER_BYTES:  # it could not be stored, and an upstream may never end
                raise errors.UpstreamInvalidResponse("too large")
        await acknowledged()
        await begin()
        await send({"type": "http.response.body", "body": bytes(whole), "more_body": False})
        return
    await begin()
    if adds_usage:
        chunks = _without_usage(chunks, collector.dialect.usage_remover())
    await pump(
        _until_stored(chunks, collector.dialect, acknowledged), send, ending=partial(_ending, collector)
    )


def _ending(collector: Collector, fault: errors.UpstreamError | None) -> bytes:
    """Return the last bytes of an answer: an error event if it is a stream that broke off, else nothing."""
    if fault is not None and not collector.can_tell:
        raise fault
    if not collector.is_truncated:
        return b""
    error = fault if isinstance(fault, errors.UpstreamTimeout) else errors.UpstreamTruncated()
    return collector.separator + collector.dialect.error_event(error.body())


async def _seen(chunks: AsyncIterator[bytes], collector: Collector) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        collector.feed(chunk)
        yield chunk


async def _without_usage(chunks: AsyncIterator[bytes], remover: StreamFilter) -> AsyncIterator[bytes]:
    fault: errors.UpstreamError | None = None
    try:
        async for chunk in chunks:
            if passed := remover.feed(chunk):
                yield passed
    except errors.UpstreamError as error:
        fault = error
    if left := remover.rest():
        yield left
    if fault is not None:
        raise fault


async def _until_stored(
    chunks: AsyncIterator[bytes], dialect: Dialect, acknowledged: Acknowledged
) -> AsyncIterator[bytes]:
    """Yield a stream whose final event waits until its turn is stored, and is an error if that fails."""
    final = dialect.final_event()
    async for chunk in chunks:
        if passed := final.feed(chunk):
            yield passed
        if final.has_found:
            break
    try:
        await acknowledged()
    except (errors.HistoryNotSaved, errors.UpstreamInvalidResponse) as error:
        yield dialect.error_event(error.body())
        async for _ in chunks:
            pass
    else:
        yield final.rest()
        async for chunk in chunks:
            yield chunk
