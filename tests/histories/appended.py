"""What must hold for clients that send only what is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.histories.evidence import Evidence, Kind, Violation, begins
from tests.histories.history import (
    Attempt,
    Forwarded,
    Kept,
    Message,
    Mode,
    Tree,
    all_said,
    attempts_named,
    is_whole,
    said,
    shorten,
    without_head,
)


def check(evidence: Evidence) -> Iterator[Violation]:
    """Yield what is wrong with the turns of these clients."""
    sessions: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in evidence.history.attempts:
        if attempt.mode is Mode.APPEND:
            sessions[attempt.tenant, attempt.header].append(attempt)
    for session, attempts in sessions.items():
        tree = evidence.history.trees.get(session, Tree({}, b""))
        line, faults = _line(evidence, tree)
        yield from faults
        yield from _turns(evidence, attempts, line)
        yield from _unexplained(evidence, tree, attempts)
        for attempt in attempts:
            for forwarded in evidence.forwarded.get(attempt.id, ())[-1:]:
                yield from _forwarding(evidence, tree, attempt, attempts, forwarded)


def _line(evidence: Evidence, tree: Tree) -> tuple[list[str], list[Violation]]:
    """The attempts whose turns make up the branch of the tip, in order, and what is wrong with the branch."""
    line: list[str] = []
    faults: list[Violation] = []
    new: list[Message] = []
    for node in tree.path(tree.tip):
        if node.message["role"] != "assistant":
            new.append(node.message)
            continue
        if not node.is_complete or not is_whole(node.message):
            faults.append(Violation(Kind.PARTIAL_IN_VIEW, shorten(node.message), "on the branch of the tip"))
        for name in sorted({_attempt(each) for each in attempts_named(node.message)}):
            line.append(name)
            attempt = evidence.attempts.get(name)
            if attempt is None or not _ends_with(new, attempt):
                shown = " | ".join(map(shorten, new))
                faults.append(Violation(Kind.INTERLEAVED, name, f"its answer follows {shown}"))
        new = []
    if new:
        faults.append(Violation(Kind.INTERLEAVED, shorten(new[-1]), "at the tip without an answer"))
    return line, faults


def _attempt(name: str) -> str:
    return name.partition("-")[0]


def _ends_with(new: Sequence[Message], attempt: Attempt) -> bool:
    """Whether messages end with those of an attempt; results from an unanswered turn may come before."""
    mine = all_said(without_head(attempt.sent))
    before = new[: len(new) - len(mine)]
    return all_said(new[len(before) :]) == mine and all(each["role"] == "tool" for each in before)


def _turns(evidence: Evidence, attempts: Sequence[Attempt], line: Sequence[str]) -> Iterator[Violation]:
    """Check that each acknowledged turn is there once, and none before one that was over when it began."""
    answered = [attempt for attempt in attempts if attempt.is_answered]
    named = {attempt.id: _answered(evidence, attempt) for attempt in answered}
    for attempt in answered:
        times = line.count(named[attempt.id])
        if times == 0:
            yield Violation(Kind.LOST, attempt.id, "acknowledged, and not on the branch of the tip")
        elif times > 1:
            yield Violation(Kind.TWICE, attempt.id, f"{times} times on the branch of the tip")
    placed = [attempt for attempt in answered if named[attempt.id] in line]
    for one, other in combinations(sorted(placed, key=lambda each: line.index(named[each.id])), 2):
        # A turn begins with the attempt that it was answered to, not with the one that heard of it later.
        if other.ended < evidence.attempts[named[one.id]].began:
            yield Violation(Kind.DISORDER, other.id, f"stands after {one.id}, which began later")


def _answered(evidence: Evidence, attempt: Attempt) -> str:
    """Return the attempt whose answer this one got: a repeated one, if its answer was not received."""
    heard, before = attempts_named(attempt.answer or {}), attempt
    while before.retries and not heard & {before.id}:
        before = evidence.attempts[before.retries]
    return before.id if heard & {before.id} else attempt.id


def _unexplained(evidence: Evidence, tree: Tree, attempts: Sequence[Attempt]) -> Iterator[Violation]:
    """Check that each stored message belongs to a turn, at its place in it."""
    for node in tree.kept.values():
        path = tree.path(node.hash)
        if not any(_is_of(evidence, path, attempt) for attempt in attempts):
            where = attempts[0].header
            yield Violation(
                Kind.UNEXPLAINED, where, f"{shorten(node.message)} after {len(path) - 1} messages"
            )


def _is_of(evidence: Evidence, path: Sequence[Kept], attempt: Attempt) -> bool:
    """Whether a path ends within an attempt's turn, and before that with the end of a turn, or nothing."""
    mine = all_said(without_head(attempt.sent))
    whole = all_said(node.message for node in path)
    if whole[-1][0] == "assistant":
        return whole[-len(mine) - 1 : -1] == mine and begins(whole[-1], evidence.intended(attempt))
    for count in range(1, len(mine) + 1):
        before = path[: len(path) - count]
        is_after_turn = not before or before[-1].message["role"] in ("assistant", "tool")
        if whole[-count:] == mine[:count] and is_after_turn:
            return True
    return False


def _forwarding(
    evidence: Evidence, tree: Tree, attempt: Attempt, attempts: Sequence[Attempt], forwarded: Forwarded
) -> Iterator[Violation]:
    """Check that each request was forwarded with all acknowledged turns, whole, before its new messages."""
    view, new = without_head(forwarded.messages), without_head(attempt.sent)
    if list(view[len(view) - len(new) :]) != list(new):
        yield Violation(Kind.ALTERED, attempt.id, "forwarded without its own messages at the end")
        return
    past = view[: len(view) - len(new)]
    for message in past:
        if message["role"] == "assistant" and not is_whole(message):
            yield Violation(Kind.PARTIAL_IN_VIEW, attempt.id, f"forwarded after {shorten(message)}")
    if attempt.cut != 0:
        return
    if past and not evidence.find(tree, all_said(past)):
        yield Violation(Kind.UNEXPLAINED, attempt.id, "forwarded after a history that is not kept")
    heard = [said(message) for message in past]
    for earlier in attempts:
        is_before = earlier.is_answered and earlier.answer and earlier.ended < attempt.began
        if is_before and heard.count(said(earlier.answer or {})) != 1:
            yield Violation(Kind.HISTORY_MISSING, attempt.id, f"forwarded without the answer to {earlier.id}")
