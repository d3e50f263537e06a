"""For models that insist on alternating roles: notes become parts of a neighbouring user message.

The message's own content stays untouched beside them, so a clipped message takes none in. All merging is made
anew from the notes whenever a plan changes, so that a note is said once however gaps grow together.
"""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import Message, as_mapping
from proxy.core.plan import MERGED, Gap, Plan, Replacement
from proxy.core.situation import Chain
from proxy.core.units import last_user


def merge_notes(plan: Plan, chain: Chain) -> Plan:
    """The plan with each note inside a user message next to it, where there is one."""
    edits = {edit.position: edit for edit in plan.replacements}
    clipped = frozenset(edits)
    places = [_neighbour(chain.messages, gap, clipped) for gap in plan.gaps]
    merged = dict.fromkeys(place for place in places if place is not None)
    for place in merged:
        gaps = [gap for gap, home in zip(plan.gaps, places, strict=True) if home == place]
        tokens = chain.tokens[place] + sum(gap.tokens for gap in gaps)
        edits[place] = Replacement(place, _with_notes(chain.raws[place], place, gaps), tokens, MERGED)
    gaps = tuple(
        replace(gap, is_merged=home is not None) for gap, home in zip(plan.gaps, places, strict=True)
    )
    return Plan(gaps, tuple(edits[place] for place in sorted(edits)))


def _neighbour(messages: Sequence[Message], gap: Gap, clipped: frozenset[int]) -> int | None:
    """The user message that takes a note in: the one before unless it is the last, else the one after."""
    asked = last_user(messages)
    for place in (gap.start - 1, gap.end):
        is_there = 0 <= place < len(messages) and messages[place].role == "user" and place not in clipped
        if is_there and not (place == asked and place < gap.start):
            return place
    return None


def _with_notes(raw: bytes, place: int, gaps: Sequence[Gap]) -> bytes:
    members = dict(as_mapping(loads(raw)))
    content = members.get("content")
    own: list[object] = [{"type": "text", "text": content or ""}]
    if isinstance(content, list):
        own = cast("list[object]", content)
    earlier = [_part(gap) for gap in gaps if gap.end <= place]
    later = [_part(gap) for gap in gaps if gap.start > place]
    members["content"] = [*earlier, *own, *later]
    return dumps(members)


def _part(gap: Gap) -> dict[str, str]:
    return {"type": "text", "text": as_mapping(loads(gap.note))["content"]}
