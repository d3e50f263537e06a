"""For models that insist on alternating roles: what a note would set side by side becomes one message.

A note is a user message, and so may be its neighbours. Such a run goes out as one user message whose parts
are the run's own, untouched. What the client itself sent side by side stays as it is, unless a note joins it.
The same holds for what a caller has handed in. Its tool results end with a word of the assistant's where the
user speaks next: such models know no user who answers a tool.
"""

from collections.abc import Sequence
from typing import cast

from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import Content, as_mapping
from proxy.core.plan import Plan

_WELL = dumps({"role": "assistant", "content": "OK."})


def alternating(plan: Plan, view: Sequence[bytes], prelude: Sequence[bytes] = ()) -> list[bytes]:
    """``prelude`` and ``apply(plan, …)``, every run of user messages that holds a note made one message."""
    notes = _note_places(plan)
    merged = _closed(prelude, view)
    holds_note = bool(prelude)
    for place, raw in enumerate(view):
        is_note = place in notes
        if merged and (is_note or holds_note) and _is_user(merged[-1]) and _is_user(raw):
            merged[-1] = _joined(merged[-1], raw)
            holds_note = True
        else:
            merged.append(raw)
            holds_note = is_note
    return merged


def _note_places(plan: Plan) -> set[int]:
    """Where the notes stand in a view."""
    places: set[int] = set()
    absent = 0
    for number, gap in enumerate(plan.gaps):
        places.add(gap.start - absent + number)
        absent += gap.count
    return places


def _closed(prelude: Sequence[bytes], view: Sequence[bytes]) -> list[bytes]:
    ends_with_result = bool(prelude) and Content.of(prelude[-1]).role == "tool"
    return [*prelude, _WELL] if ends_with_result and view and _is_user(view[0]) else list(prelude)


def _is_user(raw: bytes) -> bool:
    return Content.of(raw).role == "user"


def _joined(first: bytes, second: bytes) -> bytes:
    """The second message with the parts of the first before its own."""
    members = dict(as_mapping(loads(second)))
    members["content"] = [*_parts(as_mapping(loads(first)).get("content")), *_parts(members.get("content"))]
    return dumps(members)


def _parts(content: object) -> list[object]:
    if isinstance(content, list):
        return cast("list[object]", content)
    return [{"type": "text", "text": content}] if content else []
