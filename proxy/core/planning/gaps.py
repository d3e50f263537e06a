"""What the note of each gap says: which summaries, or how many messages, and what it is the answer to.

Keeps law 3 (stable): a note that has nothing new to say stays as it is, byte for byte. A summary that came
too late for its note, or was made anew from the originals, stands in the plan as an anchor of which the note
knows nothing yet; the next epoch writes that note again.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.formats.json import dumps
from proxy.core.planning.notes import Note
from proxy.core.planning.plan import Anchor, Gap, Span
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import Strategy
from proxy.core.text.words import language_of

_SAMPLE = 8
"""Messages of users by which the language of a gap is told."""

Summaries = Mapping[Span, str | None]
"""Summaries by gap; None where one was asked for and failed. A gap that is absent was not asked about."""
Told = Mapping[Span, tuple[Anchor, ...]]
"""What notes have to say anew, by gap; nothing where a summary was asked for and failed."""


def told_by(
    situation: Situation, spans: Collection[Span], strategy: Strategy | None, summaries: Summaries
) -> dict[Span, tuple[Anchor, ...]]:
    """What the notes of ``spans`` have to say anew: the summaries, or what the strategy makes of them."""
    standing = {gap.span: gap for gap in situation.plan.gaps}
    told: dict[Span, tuple[Anchor, ...]] = {}
    for span in spans:
        old, asked = standing.get(span), span in summaries
        if old is not None and not summaries.get(span):
            if any(dumps(anchor.text)[1:-1] not in old.note for anchor in old.anchors):
                is_whole = old.is_summarised  # the note is behind its summaries
                told[span] = _anchors(situation, strategy, old.anchors[0]) if is_whole else old.anchors
            continue
        generation = generation_upon(situation.plan.anchors_within(*span)) if asked else 0
        anchors = _anchors(
            situation, strategy, Anchor(*span, summaries.get(span) or "", generation=generation)
        )
        if anchors or asked:
            told[span] = anchors
    return told


def _anchors(situation: Situation, strategy: Strategy | None, summary: Anchor) -> tuple[Anchor, ...]:
    """A summary of a whole gap in the strategy's words; without text it is none."""
    if strategy is None:
        return (summary,) if summary.text else ()
    text = strategy.words(situation, summary.start, summary.end, summary.text or None)
    return (replace(summary, text=text, by_code=text != summary.text),) if text else ()


def generation_upon(earlier: Iterable[Anchor]) -> int:
    """The generation of a summary that is made from these, or from the originals alone."""
    return 1 + max((each.generation for each in earlier), default=-1)


def gap_of(situation: Situation, span: Span, told: Told, quotes: tuple[str, ...]) -> Gap:
    """A gap with a new note: a summary of all of it, or what earlier summaries say of parts of it."""
    anchors = told.get(span) or _carried(situation, *span)
    failed = span in told and not told[span]
    return noted_gap(situation, span, anchors, quotes, failed=failed)


def noted_gap(
    situation: Situation,
    span: Span,
    anchors: tuple[Anchor, ...],
    quotes: tuple[str, ...],
    *,
    failed: bool = False,
) -> Gap:
    """A gap and its note, which says what ``anchors`` say of parts of it and counts the rest.

    ``failed``: a summary of it was asked for and could not be had.
    """
    note = _note(situation, span, anchors, quotes, failed=failed).text
    return Gap(
        *span,
        note=situation.chain.dialect.note(note, situation.policy.summary.role),
        tokens=MESSAGE_TOKENS + situation.count(note),
        anchors=anchors,
        quotes=quotes,
    )


def is_no_longer(situation: Situation, gap: Gap) -> bool:
    """Whether a note is no longer than what it stands for, in counted tokens and in bytes."""
    chain = situation.chain
    if gap.tokens > chain.tokens.between(gap.start, gap.end):
        return False
    size = 0
    for place in range(gap.start, gap.end):  # mostly the first of many tell
        size += len(chain.raws[place])
        if size >= len(gap.note):
            return True
    return False


def _note(
    situation: Situation, span: Span, anchors: Sequence[Anchor], quotes: tuple[str, ...], *, failed: bool
) -> Note:
    start, end = span
    above = _request_above(situation, start)
    return Note(
        count=end - start,
        seal=situation.chain.hashes[end - 1],
        language=_language(situation, start, end),
        summaries=tuple((anchor.count, anchor.text) for anchor in anchors),
        failed=failed,
        answers_above=above is not None,
        under_way=above is not None and above == situation.chain.last_user,
        quotes=quotes,
    )


def _carried(situation: Situation, start: int, end: int) -> tuple[Anchor, ...]:
    """What earlier summaries say of parts of a gap: the newest, within the room of one summary."""
    left = situation.policy.summary_tokens(situation.budget.limit)
    carried: list[Anchor] = []
    for gap in reversed(situation.plan.gaps_within(start, end)):
        for anchor in reversed(gap.anchors):
            left -= situation.count(anchor.text)
            if left < 0:
                return tuple(reversed(carried))
            carried.append(anchor)
    return tuple(reversed(carried))


def _request_above(situation: Situation, start: int) -> int | None:
    """The user message that a gap at ``start`` takes the answer from (system messages may stand between)."""
    for place in range(start - 1, -1, -1):
        role = situation.chain.messages[place].role
        if role not in HEAD_ROLES:
            return place if role == "user" else None
    return None


def _language(situation: Situation, start: int, end: int) -> str:
    """The language of what users said in and right before a gap."""
    users = situation.chain.users
    first, last = (bisect_left(users, place) for place in (start - 1, end))
    said = users[max(first, last - _SAMPLE) : last]
    return language_of(" ".join(situation.content(place).text for place in said))
