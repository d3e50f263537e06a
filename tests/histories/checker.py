"""The oracle: what a history must be, whatever its clients did and whatever failed.

*Each answered turn is in the transcript once, in order, or that session's next answer and a metric said that
it was degraded.* `check` is a pure function of a recorded history. What holds for clients that send their
history is in :mod:`tests.histories.full`, for those that append in :mod:`tests.histories.appended`; here is
what holds for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.histories import appended, full
from tests.histories.evidence import Evidence, Kind, Violation
from tests.histories.history import Attempt, History, Mode, Outcome, attempts_named

_UNSTORED = frozenset({"history_unavailable", "history_not_saved", "session_busy", "session_expired"})
"""Error codes with which an appending client learns that its turn was not stored."""

_FAULTS = frozenset({"store", "previous-turn", "epoch-not-saved"})
"""Degradations that only a fault causes."""


def check(history: History) -> list[Violation]:
    """Yield everything that is wrong with a history."""
    evidence = Evidence(history)
    found = [*_outcomes(evidence), *_leaks(evidence), *full.check(evidence), *appended.check(evidence)]
    return list(dict.fromkeys(found))


def lost_turns(history: History) -> int:
    """Return answered turns that are in no transcript; a metric must have counted at least as many."""
    return len(full.lost(Evidence(history)))


def _outcomes(evidence: Evidence) -> Iterator[Violation]:
    history = evidence.history
    for attempt in history.attempts:
        if attempt.outcome not in (Outcome.ANSWERED, Outcome.LEFT) and not _is_excused(evidence, attempt):
            told = f"{attempt.outcome} {attempt.status} {attempt.code}"
            yield Violation(Kind.UNANSWERED, attempt.id, told)
        if attempt.code == "no answer in time":
            yield Violation(Kind.UNANSWERED, attempt.id, attempt.code)
        if history.is_calm and _FAULTS & set(attempt.degraded):
            yield Violation(Kind.DEGRADED, attempt.id, ", ".join(attempt.degraded))


def _is_excused(evidence: Evidence, attempt: Attempt) -> bool:
    """Whether there was a valid reason not to answer."""
    if attempt.fate.startswith(("429", "500", "break", "error")):
        return True
    if evidence.crashed(attempt.began, attempt.ended):
        return True
    return (
        attempt.mode is Mode.APPEND
        and not evidence.history.is_calm
        and (attempt.code in _UNSTORED or attempt.outcome is Outcome.CUT)
    )


def _leaks(evidence: Evidence) -> Iterator[Violation]:
    """Check that no words of one conversation were forwarded in another."""
    for forwarded in evidence.history.forwarded:
        attempt = evidence.attempts.get(forwarded.attempt)
        if attempt is None:
            continue
        named = {name for message in forwarded.messages for name in attempts_named(message)}
        foreign = sorted(name for name in named if evidence.talk_of(name) != attempt.talk)
        if foreign:
            yield Violation(Kind.LEAKED, attempt.id, f"words of {', '.join(foreign)} were forwarded with it")
