"""What a compactor is given: the units of a gap with all that they say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.core.plan import Span
from proxy.core.situation import Situation


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    id: str
    name: str
    arguments: str
    """As the model wrote them, usually JSON."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    """Id of the call that it is the result of."""
    at: float | None = None
    """When it arrived, seconds since 1970, UTC; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class GapUnit:
    """What is cut together: an assistant message with tool calls and its results, else one message."""

    start: int
    """Number of its first message in the chain."""
    entries: tuple[Entry, ...]

    @property
    def is_step(self) -> bool:
        """Whether it is a step of work: a round of tool calls."""
        return any(entry.calls for entry in self.entries)


def units_within(situation: Situation, span: Span) -> tuple[GapUnit, ...]:
    """The units of a gap that no earlier summary is about, without units that no summary may tell of."""
    told = [range(anchor.start, anchor.end) for anchor in situation.plan.anchors]
    return tuple(
        GapUnit(unit.start, tuple(_entry(situation, place) for place in range(unit.start, unit.end)))
        for unit in situation.units
        if span[0] <= unit.start < span[1]
        and not any(unit.start in each for each in told)
        and all(map(situation.classes.may_be_summarised, range(unit.start, unit.end)))
    )


def dated(units: Sequence[GapUnit], arrivals: Mapping[int, float]) -> tuple[GapUnit, ...]:
    """The units with the times at which their messages, by number, arrived."""
    return tuple(replace(unit, entries=tuple(_dated(unit, arrivals))) for unit in units)


def _dated(unit: GapUnit, arrivals: Mapping[int, float]) -> Iterator[Entry]:
    for number, entry in enumerate(unit.entries, unit.start):
        yield replace(entry, at=arrivals.get(number))


def _entry(situation: Situation, place: int) -> Entry:
    content = situation.content(place)
    return Entry(
        role=content.role,
        text=content.text,
        calls=tuple(Call(*call) for call in content.tool_calls()),
        answers=content.answers,
    )


def goal_of(situation: Situation) -> str:
    """What a conversation is about: its first user message."""
    messages = situation.chain.messages
    first = next((place for place, message in enumerate(messages) if message.role == "user"), None)
    if first is None or not situation.classes.may_be_summarised(first):
        return ""
    return situation.content(first).text


def progress_of(situation: Situation, span: Span) -> str:
    """What earlier summaries say of a gap."""
    return "\n\n".join(anchor.text for anchor in situation.plan.anchors_within(*span))
