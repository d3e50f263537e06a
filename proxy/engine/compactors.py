"""Compactors: rules of their own for what stands in place of a gap, before the built-in summary.

`[[compactors]]` names them in order, and the first that can takes the gap. Those of other distributions are
found by the entry-point group `unabridged.compactors`; they need to import nothing of this one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.compaction import GapUnit
from proxy.core.policy_sections import Compactor as Named
from proxy.core.registry import COMPACTORS
from proxy.core.summary import LANGUAGES, Ask
from proxy.core.working_flow import Surroundings, ask_for_report, is_working_flow, report_in
from proxy.telemetry import log_fault


class AskModel(Protocol):
    """Asks the conversation's model, with the caller's credentials, for at most ``max_tokens``."""

    def __call__(self, task: str, text: str, *, max_tokens: int, temperature: float) -> Awaitable[str]: ...


@dataclass(frozen=True)
class Context:
    """All that a compactor gets beside the units."""

    task_goal: str
    """The conversation's first user message."""
    progress_summary: str
    """What earlier summaries say of the same gap; the new text takes their place too."""
    system_context: str
    """The leading system messages, as far as they are kept."""
    language: str
    """Of the conversation: `en`, `de`, `fr`, `es`, `ja` or `zh`."""
    max_tokens: int
    """Tokens that the text may have."""
    room: int
    """Counted tokens that a prompt may have."""
    count: Callable[[str], int]
    """Counts the tokens of a text."""
    ask: AskModel


class Compactor(Protocol):
    """What a compactor must have."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether it is made for these units; quick, and without side effects."""
        ...

    async def compact(self, units: Sequence[GapUnit], context: Context) -> str:
        """The text in their place. What it raises leaves the gap to the built-in summary."""
        ...


@dataclass(frozen=True)
class Compaction:
    """A gap that a compactor has taken."""

    compactor: Compactor
    units: tuple[GapUnit, ...]
    hashes: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    """Chain hashes of the units' messages, by number."""
    goal: str = ""
    progress: str = ""


class WorkingFlow:
    """An agent's working steps as a report of progress (:mod:`proxy.core.working_flow`)."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether these are mostly working steps."""
        return is_working_flow(units)

    async def compact(self, units: Sequence[GapUnit], context: Context) -> str:
        """One question, one report."""
        about = Surroundings(
            context.task_goal, context.progress_summary, context.system_context, LANGUAGES[context.language]
        )
        ask = ask_for_report(units, about, context.max_tokens, context.room, context.count)
        return report_in(await _said(context, ask))


async def _said(context: Context, ask: Ask) -> str:
    return await context.ask(ask.task, ask.text, max_tokens=ask.max_tokens, temperature=ask.temperature)


BUILT_IN: Mapping[str, Compactor] = {"working_flow": WorkingFlow()}


def first_for(named: Sequence[Named], units: Sequence[GapUnit]) -> Compactor | None:
    """The first of the compactors that a policy names that can compact these units."""
    for each in named:
        compactor = BUILT_IN.get(each.name) or COMPACTORS[each.name]
        if units and _can(compactor, units):
            return compactor
    return None


def _can(compactor: Compactor, units: Sequence[GapUnit]) -> bool:
    try:
        return compactor.can_compact(units)
    except Exception as error:  # noqa: BLE001 - foreign code; the next compactor, or the summary, does it
        log_fault("a compactor failed", error)
        return False
