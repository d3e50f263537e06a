"""What must hold for clients that send their whole history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.histories.evidence import GRACE, Evidence, Kind, Violation, begins
from tests.histories.history import (
    Attempt,
    Message,
    Mode,
    Said,
    Tree,
    all_said,
    said,
    shorten,
    without_head,
)

_ANSWER = 200
_CONFESSIONS = frozenset({"previous-turn", "store"})


def check(evidence: Evidence) -> Iterator[Violation]:
    """Yield what is wrong with the turns of these clients."""
    yield from _turns(evidence)
    yield from _unexplained(evidence)
    yield from _tips(evidence)
    for attempt in _attempts(evidence):
        yield from _forwarding(evidence, attempt)
        yield from _splits(evidence, attempt)


def lost(evidence: Evidence) -> list[Attempt]:
    """Return answered turns that are in no transcript."""
    answered = [attempt for attempt in _attempts(evidence) if attempt.is_answered]
    return [attempt for attempt in answered if not _is_kept(evidence, attempt)]


def _attempts(evidence: Evidence) -> Iterator[Attempt]:
    return (attempt for attempt in evidence.history.attempts if attempt.mode is Mode.FULL)


# --- each turn once, or confessed ---


def _is_kept(evidence: Evidence, attempt: Attempt) -> bool:
    tree = evidence.tree_of(attempt)
    return tree is not None and any(node.is_complete for node in evidence.find(tree, _path(attempt)))


def _path(attempt: Attempt) -> tuple[Said, ...]:
    answer = [attempt.answer] if attempt.answer else []
    return all_said([*without_head(attempt.sent), *answer])


def _turns(evidence: Evidence) -> Iterator[Violation]:
    for attempt in lost(evidence):
        if not _is_confessed(evidence, attempt):
            yield Violation(
                Kind.LOST, attempt.id, f"in no transcript of [{attempt.session}], and nobody said so"
            )
    for attempt in _attempts(evidence):
        tree = evidence.tree_of(attempt)
        if tree is not None and len(evidence.find(tree, _path(attempt))) > 1:
            yield Violation(Kind.TWICE, attempt.id, f"more than once in [{attempt.session}]")


def _is_confessed(evidence: Evidence, attempt: Attempt) -> bool:
    """Whether the loss was reported by the session's next answer, or could not be reported.

    An answer that began before the loss was known could not say it; the next one must.
    """
    if evidence.history.is_calm:
        return False
    if evidence.crashed(attempt.began, attempt.ended):
        return True
    later = [
        each
        for each in evidence.history.attempts
        if each.status == _ANSWER
        and each.ended > attempt.ended
        and (each.tenant, each.session) == (attempt.tenant, attempt.session)
    ]
    for each in sorted(later, key=lambda each: each.began):
        if _CONFESSIONS & set(each.degraded):
            return True
        if each.is_answered and each.began > attempt.ended + GRACE:
            return False
    return True


# --- nothing else ---


def _unexplained(evidence: Evidence) -> Iterator[Violation]:
    """Check that each stored message was sent or answered at its place."""
    sessions: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in _attempts(evidence):
        sessions[attempt.tenant, attempt.session or attempt.header].append(attempt)
    for (tenant, name), attempts in sessions.items():
        tree = evidence.history.trees.get((tenant, name))
        if tree is not None:  # who left before there was an answer was not told of a session
            yield from _unexplained_in(evidence, tree, [*attempts, *sessions.get((tenant, ""), ())], name)


def _unexplained_in(
    evidence: Evidence, tree: Tree, attempts: Sequence[Attempt], name: str
) -> Iterator[Violation]:
    paths: set[tuple[Said, ...]] = set()
    answers: dict[tuple[Said, ...], list[Message | None]] = defaultdict(list)
    for attempt in attempts:
        path = all_said(without_head(attempt.sent))
        paths |= {path[: place + 1] for place in range(len(path))}
        answers[path].append(evidence.intended(attempt))
    for node in tree.kept.values():
        *before, last = all_said(each.message for each in tree.path(node.hash))
        is_answer = any(begins(last, answer) for answer in answers[tuple(before)])
        if (*before, last) not in paths and not is_answer:
            kind = Kind.TWICE if last in before else Kind.UNEXPLAINED
            yield Violation(kind, name, f"{shorten(node.message)} after {len(before)} messages")


# --- what was forwarded ---


def _forwarding(evidence: Evidence, attempt: Attempt) -> Iterator[Violation]:
    for forwarded in evidence.forwarded.get(attempt.id, ())[-1:]:
        if attempt.cut == 0:
            if forwarded.messages != attempt.sent:
                yield Violation(Kind.ALTERED, attempt.id, "forwarded otherwise than it was sent")
        elif not _is_abridged(attempt, forwarded.messages):
            yield Violation(Kind.ALTERED, attempt.id, "forwarded out of order, or without its end")
        first = evidence.attempts.get(attempt.twin)
        if first is not None and not (first.degraded or attempt.degraded):
            bodies = {each.body for twin in (first, attempt) for each in evidence.forwarded[twin.id]}
            if len(bodies) > 1 and first.sent == attempt.sent:
                yield Violation(Kind.DIVERGED, attempt.id, f"not the bytes of its twin {first.id}")


def _is_abridged(attempt: Attempt, view: Sequence[Message]) -> bool:
    """Whether a view has messages of the request in their order, the last one included, and notes only."""
    whole = [_unclipped(attempt, message) for message in view]
    left = iter(attempt.sent)
    kept = [message for message in whole if message in attempt.sent]
    notes = [message for message in whole if message not in attempt.sent]
    in_order = all(message in left for message in kept) and all(note["role"] == "user" for note in notes)
    return in_order and bool(whole) and whole[-1] == attempt.sent[-1]


def _unclipped(attempt: Attempt, message: Message) -> Message:
    """Return the tool result of which this is a clip, or the message itself."""
    if message["role"] != "tool" or "characters left out" not in message["content"]:
        return message
    call = message["tool_call_id"]
    return next((sent for sent in attempt.sent if sent.get("tool_call_id") == call), message)


# --- sessions ---


def _splits(evidence: Evidence, attempt: Attempt) -> Iterator[Violation]:
    """Check that without a header a turn continues in the session of the answer before it."""
    if attempt.header or not attempt.session or not evidence.history.is_calm:
        return
    *_, past = [None, *filter(None, (_answered_with(evidence, attempt, each) for each in attempt.sent))]
    if past is None or past.answer is None or attempt.began < past.ended + GRACE:
        return
    others = (each for each in _attempts(evidence) if each.began < attempt.began)
    is_first = not any(past.answer in each.sent for each in others)
    if is_first and past.session != attempt.session:
        yield Violation(Kind.SPLIT, attempt.id, f"goes on from {past.id} in another session")


def _answered_with(evidence: Evidence, attempt: Attempt, message: Message) -> Attempt | None:
    if message["role"] != "assistant":
        return None
    mine = (each for each in evidence.history.attempts if each.talk == attempt.talk and each.is_answered)
    return next((each for each in mine if each.answer and said(each.answer) == said(message)), None)


def _tips(evidence: Evidence) -> Iterator[Violation]:
    for aside in (attempt for attempt in _attempts(evidence) if attempt.is_aside):
        tree = evidence.tree_of(aside) if evidence.history.is_calm else None
        if tree is None or tree.tip not in {node.hash for node in evidence.find(tree, _path(aside))}:
            continue
        for attempt in _attempts(evidence):
            same = evidence.tree_of(attempt) is tree and not attempt.is_aside
            if same and attempt.is_answered and attempt.ended < aside.began and _is_kept(evidence, attempt):
                yield Violation(Kind.POLLUTED, aside.id, "an aside became the tip")
                break
    for (_, name), tree in evidence.history.trees.items():
        tip = tree.kept.get(tree.tip)
        if tree.tip and (tip is None or not tip.is_complete):
            yield Violation(Kind.POLLUTED, name, "the tip is no completed turn")
        told = iter(all_said(tree.told))
        if tree.told and not all(said(node.message) in told for node in tree.path(tree.tip)):
            yield Violation(Kind.POLLUTED, name, "the transcript that is told is not the tip's branch")
