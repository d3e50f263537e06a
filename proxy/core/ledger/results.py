"""Tool results in the ledger: what is cut and still fresh is told whole, so that nobody need ask again.

Each takes one line, as a call and JSON, whatever the tool wrote: a text with lines of its own cannot pass for
another part of the note, let alone for what a user laid down.
"""

from collections.abc import Iterator

from proxy.core.jsonvalue import dumps, loads
from proxy.core.notes import result_lines
from proxy.core.plan import Plan
from proxy.core.situation import Situation
from proxy.core.tools.cache import Fresh

_SHARE = 0.5
"""Of the room of identifiers: what results take before them."""
_DENSEST = 12
"""Characters that a token has at most, about; a longer text is not even counted."""
_MOST = 50


def fresh_results(situation: Situation, plan: Plan, room: int, language: str) -> str:
    """The results that a plan leaves out and that are still fresh, as lines; whole ones, the newest first.

    ``room`` is the counted tokens that identifiers may have.
    """
    left = int(room * _SHARE)
    if left <= 0 or not situation.fresh:
        return ""
    left -= situation.count(result_lines(("",), language))
    lines: list[str] = []
    for entry in _absent(situation, plan):
        if len(entry.text) <= left * _DENSEST and len(lines) < _MOST:
            line = _line(entry)
            size = situation.count(f"> {line}\n")
            if size <= left:
                left -= size
                lines.append(line)
    return result_lines(lines[::-1], language)


def _absent(situation: Situation, plan: Plan) -> Iterator[Fresh]:
    """Fresh results that the view does not show, the newest first."""
    positions = {place: position for position, place in enumerate(situation.chain.hashes)}
    edited = {edit.position for edit in plan.replacements}
    start_of = {place: unit.start for unit in situation.units for place in range(unit.start, unit.end)}
    for entry in reversed(list(situation.fresh)):
        position = positions[entry.place]
        is_absent = plan.covers(position) or position in edited
        both = (position, start_of[position])  # the arguments stand in the call
        if is_absent and all(situation.classes.may_be_quoted(place) for place in both):
            yield entry


def _line(entry: Fresh) -> str:
    name = entry.tool if entry.tool.isidentifier() else dumps(entry.tool).decode()
    return f"{name}({_compact(entry.arguments)}): {_compact(entry.text)}"


def _compact(text: str) -> str:
    """A text as JSON of one line: itself, where it is an object or an array, else as a string."""
    try:
        value: object = loads(text) if text.lstrip()[:1] in ("{", "[") else text
    except ValueError:
        value = text
    return dumps(value).decode()
