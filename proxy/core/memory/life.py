"""How an item lives: it is born, used, fades from day to day, and is told with less right the weaker it is.

Everything here is a function of what is handed in, the time (seconds since 1970, UTC) among it: the same
items at the same moment have the same scores on every worker. What becomes of an item is told by the event
that is returned beside it.
"""

from msgspec.structs import replace

from proxy.core.memory.records import Event, EventKind, Item, event_of

BORN = 0.5
_USE = 0.1
_FADED_TO, _WEEK = 0.95, 7 * 86_400.0
_USERS = 64
"""Sessions that an item remembers to have been used in."""
_DIGITS = 9
"""Of a score: three uses come to 0.8, and not to a hair less."""


def score_of(item: Item, now: float, low: float) -> float:
    """What an item is worth now: it halves in about 14 weeks, and each use adds a tenth.

    What stays true does not fall below ``low``, as long as nothing newer says otherwise.
    """
    weeks = max(now - item.created_at, 0.0) / _WEEK
    score = BORN * _FADED_TO**weeks * (1 + _USE * item.access_count)
    least = low if item.is_standing and not item.superseded_by else 0.0
    return round(min(max(score, least), 1.0), _DIGITS)


def rescored(item: Item, now: float, low: float) -> tuple[Item, Event | None]:
    """An item as the daily run leaves it; no event where its score stays."""
    after = score_of(item, now, low)
    if after == item.importance_score:
        return item, None
    event = event_of(item, EventKind.SCORE_UPDATE, now, after=after)
    return replace(item, importance_score=after, decay_applied_at=now), event


def used(item: Item, session: bytes, now: float, details: str = "") -> tuple[Item, Event | None]:
    """An item that a session was told, has recalled, or has said again; each session counts once.

    ``session`` is a digest of its name, all of which are of one length.
    """
    users, length = (
        b"".join((item.used_by,) if isinstance(item.used_by, bytes) else item.used_by),
        len(session),
    )
    if any(users.startswith(session, place) for place in range(0, len(users), length)):
        return item, None
    after = round(min(item.importance_score + _USE, 1.0), _DIGITS)
    event = event_of(item, EventKind.USE, now, after=after, details=details)
    raised = replace(
        item,
        importance_score=after,
        access_count=item.access_count + 1,
        last_accessed_at=now,
        used_by=(users + session)[-_USERS * length :],
    )
    return raised, event


def superseded(item: Item, newer: str, now: float) -> tuple[Item, Event]:
    """An item of which the one of id ``newer`` says otherwise."""
    details = f"superseded by {newer}"
    event = event_of(item, EventKind.SUPERSEDE, now, after=item.importance_score, details=details)
    return replace(item, superseded_by=newer), event


def reborn(item: Item, now: float) -> tuple[Item, Event]:
    """An item that is taken back from the archive: as if it had been said now, and never used."""
    event = event_of(item, EventKind.RESTORE, now, after=BORN)
    born = replace(
        item,
        importance_score=BORN,
        access_count=0,
        created_at=now,
        last_accessed_at=now,
        decay_applied_at=now,
        superseded_by="",
        used_by=b"",
    )
    return born, event
