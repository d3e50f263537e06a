"""`unabridged replay --learn`: learns weights and rules from recorded sessions, and tests them on others.

What is printed is a policy file: what was learned, and above it, as remarks, what it did on the half of the
sessions that it was not learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from proxy.adapters.files.toml_file import toml_value
from proxy.cli.terminal import CommandError, notes
from proxy.core.economics.bill import NANO
from proxy.core.policy.policy import Policy
from proxy.core.proof.evidence import Signal
from proxy.core.proof.learning import Played, Recording, proposals

Play = Callable[[Recording, Policy], Played]
_HOW = {
    Signal.USED: "exact strings used by answers",
    Signal.RERUN: "tools run again",
    Signal.REREAD: "files read again",
    Signal.SAID_AGAIN: "said again by users",
}


@dataclass(frozen=True)
class Learned:
    """What was learned, and its effect."""

    before: Policy
    after: Policy
    changes: Sequence[str]
    dear: Sequence[str]
    """Changes that were rejected because they send too many tokens, though less would be missed."""
    learned_from: int
    tried_on: int
    played: tuple[Played, Played]
    """The outcome for the other half of the sessions, before and after."""


def learn(recordings: Sequence[Recording], policy: Policy, play: Play) -> Learned:
    """Learn from one half of the sessions, and test the result on the other. Raises CommandError."""
    halves = [[each for each in recordings if each.is_learned_from is own] for own in (True, False)]
    if not all(halves):
        raise CommandError("there is nothing to learn: both halves of the sessions, by their ids, need one")
    console = notes()
    columns = (TextColumn("learning: {task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("as it is", total=None)

        def played(half: Sequence[Recording], tried: Policy) -> Played:
            return sum((play(each, tried) for each in half), Played())

        best, result = policy, played(halves[0], policy)
        changes, dear = list[str](), list[str]()
        for name, change in proposals(policy, result):
            progress.update(task, description=name)
            tried = change(best)
            outcome = played(halves[0], tried)
            if outcome.is_better_than(result):
                best, result = tried, outcome
                changes.append(name)
            elif outcome.misses_less_than(result):
                missed = _change(result.missed.total(), outcome.missed.total())
                dear.append(f"{name}: missed{missed}, tokens{_change(result.sent, outcome.sent)}")
        progress.update(task, description="trying it on the others")
        before = played(halves[1], policy)
        after = played(halves[1], best) if changes else before
    return Learned(policy, best, changes, dear, len(halves[0]), len(halves[1]), (before, after))


def as_toml(learned: Learned, file: str) -> str:
    """Return what was learned as a policy file, with remarks about its effect."""
    before, after = learned.before.importance, learned.after.importance
    lines = [f"# {line}".rstrip() for line in _remarks(learned, file)]
    lines += "", f"extends = {toml_value(learned.before.name)}"
    parts = ("recency", "role", "content", "roles")
    if changed := [name for name in parts if getattr(before, name) != getattr(after, name)]:
        lines += "", "[importance]", *(f"{name} = {toml_value(getattr(after, name))}" for name in changed)
    if learned.before.retention != learned.after.retention:
        for rule in learned.after.retention:
            match = toml_value(rule.match.model_dump(exclude_none=True))
            lines += "", "[[retention]]", f"match = {match}", f"class = {toml_value(rule.class_)}"
    return "\n".join([*lines, ""])


def _remarks(learned: Learned, file: str) -> Iterator[str]:
    of = learned.learned_from + learned.tried_on
    yield f"Learned under `{learned.before.name}` from {learned.learned_from} of {of} sessions of {file}."
    before, after = learned.played
    if not learned.changes:
        yield "Nothing that was tried misses less for as many tokens: this is the policy as it was."
    yield from (f"- {change}" for change in learned.changes)
    if learned.dear:
        yield "Tried there and left, for the tokens that it takes:"
        yield from (f"- {each}" for each in learned.dear)
    yield f"On the other {learned.tried_on}, {before.turns:,} turns, before and after:"
    yield f"- tokens sent: {before.sent:,} and {after.sent:,}{_change(before.sent, after.sent)}"
    dollars = [each.bill.spent / NANO for each in learned.played]
    yield f"- dollars for prompts and summaries: {dollars[0]:.4f} and {dollars[1]:.4f}{_change(*dollars)}"
    missed = [each.missed.total() for each in learned.played]
    yield f"- missed by the view: {missed[0]:,} and {missed[1]:,}{_change(*missed)}"
    for signal, how in _HOW.items():
        if before.missed[signal] or after.missed[signal]:
            yield f"  - {how}: {before.missed[signal]:,} and {after.missed[signal]:,}"
    if learned.changes and not after.is_better_than(before):
        yield "On those it is no better: what was learned is of the sessions that it was learned from."


def _change(before: float, after: float) -> str:
    return f" ({after / before - 1:+z.1%})" if before else ""


def as_json(learned: Learned, file: str) -> dict[str, Any]:
    """Return everything as JSON."""
    return {
        "policy": learned.before.name,
        "learned_from": learned.learned_from,
        "tried_on": learned.tried_on,
        "changes": list(learned.changes),
        "dear": list(learned.dear),
        **{
            when: {
                "turns": played.turns,
                "sent_tokens": played.sent,
                "full_tokens": played.full,
                "dollars": played.bill.spent / NANO,
                "missed": {signal.value: played.missed[signal] for signal in _HOW},
            }
            for when, played in zip(("before", "after"), learned.played, strict=True)
        },
        "toml": as_toml(learned, file),
    }
