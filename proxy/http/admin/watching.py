"""For whoever watches: what is degraded now, and sessions as they change, by server-sent events (HTML, 9.2).

Any worker may serve a session, so what changed is read from the store, which lists sessions by their last
turn. A stream ends by itself after a while, and when the server is about to: a browser comes back with the
id of the last event that it got, and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proxy.core.formats.json import dumps
from proxy.engine.admin.inspection import Inspection
from proxy.engine.admin.notices import Notice, Notices
from proxy.errors import InvalidType, StoreUnavailable
from proxy.http.admin.api import Query, number, operation
from proxy.http.admin.schemas import NoBody, SessionReport, Shape
from proxy.http.admin.sessions import session_report

_EVERY = 1.0
"""Seconds between two looks."""
_MOST = 50
"""Sessions that one look may find changed; older ones are found in the listing."""
_USUAL, _LONGEST = 60, 3_600
"""Seconds that a stream lasts."""
_SECONDS = Query("seconds", f"How long to listen, at most {_LONGEST:,}; {_USUAL} if absent.", "integer")
_AFTER = Query(
    "after", "Sessions that changed after this time, in seconds since 1970; from now on if absent.", "string"
)
_EVENTS = "text/event-stream"


class NoticesReport(Shape):
    """All that is degraded now."""

    notices: list[Notice]


@dataclass(frozen=True)
class WatchOperations:
    """The operations for whoever watches. ``now`` returns seconds since 1970."""

    notices: Notices
    inspection: Inspection
    now: Callable[[], float]
    is_ending: Callable[[], bool]
    """Whether the server is about to end: then streams do."""

    @operation("GET", "/notices")
    async def listed(self, request: Request, body: NoBody) -> NoticesReport:
        """Read what is degraded now, in plain words, and what to do about it."""
        return NoticesReport(notices=await self.notices.now())

    @operation("GET", "/events", _SECONDS, _AFTER, media=_EVENTS)
    async def events(self, request: Request, body: NoBody) -> SessionReport | Response:
        """Sessions as they change: an event `session` for each, whose id a client may come back with."""
        lasts = number(request, "seconds", _USUAL, _LONGEST)
        after, last = request.query_params.get("after"), _time(request.headers.get("last-event-id", ""))
        since = self.now() if after is None else _time(after)
        if since is None:
            raise InvalidType("`after` must be a time in seconds since 1970.", param="after")
        since = since if last is None else last
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(since, lasts), media_type=_EVENTS, headers=headers)

    async def _stream(self, since: float, lasts: int) -> AsyncIterator[bytes]:
        """Events for so many seconds, of sessions that were used later than ``since``."""
        yield b"retry: 1000\n\n"
        for _ in range(int(lasts / _EVERY)):
            if self.is_ending():
                return
            try:
                changed, _ = await self.inspection.newest(_MOST, since)
            except StoreUnavailable as error:
                yield _event("fault", error.body()["error"])
            else:
                for found in reversed(changed):
                    since = max(since, found.session.updated)
                    yield _event("session", session_report(found).model_dump(), f"{since!r}")
            yield b":\n\n"  # so that whoever has left is noticed
            await asyncio.sleep(_EVERY)


def _time(text: str) -> float | None:
    """Return seconds since 1970; None where the text is no such time."""
    return float(text) if text.isascii() and text.replace(".", "", 1).isdecimal() else None


def _event(name: str, data: object, number: str = "") -> bytes:
    last = f"id: {number}\n" if number else ""
    return f"event: {name}\n{last}data: ".encode() + dumps(data) + b"\n\n"
