"""What stands in place of each gap: a note with summaries, or of how many messages, and what it answers.

Keeps law 3 (stable): a note that has nothing new to say stays as it is, byte for byte. A summary that came
too late for its note, or was made anew from the originals, stands in the plan as an anchor of which the note
knows nothing yet; the next epoch writes that note again.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.notes import Note
from proxy.core.formats.json import dumps
from proxy.core.planning.ledger import plain_of
from proxy.core.planning.plan import Anchor, Gap, Plan, Replacement, Span
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategy import Strategy
from proxy.core.text.words import language_of

_SAMPLE = 8
"""Messages of users by which the language of a gap is told."""

Summaries = Mapping[Span, str | None]
"""Summaries by gap; None where one was asked for and failed. A gap that is absent was not asked about."""
NewTexts = Mapping[Span, tuple[Anchor, ...]]
"""What notes have to say anew, by gap; nothing where a summary was asked for and failed."""


def with_notes(
    situation: Situation,
    quotes: Mapping[Span, tuple[str, ...]],
    edits: Iterable[Replacement],
    texts: NewTexts | None,
    writer: Strategy | None,
) -> Plan:
    """A plan of these gaps, each with what its note quotes, and of edits beside those in force; no ledger.

    A note that has nothing new to say stays as it is. Without ``texts``, which are not known yet, with
    notices for them. ``writer``: the strategy that cuts by its count, and may write down itself what it cuts.
    """
    plain = plain_of(situation.plan, situation.count, situation.chain.dialect)
    standing = {gap.span: gap for gap in plain.gaps}
    gaps: list[Gap] = []
    for span, quoted in quotes.items():
        made = standing.get(span)
        if made is None or (texts and texts.get(span)):
            made = _worthwhile(situation, span, texts, quoted, writer)
        gaps += [made] if made else (standing[gap.span] for gap in situation.plan.gaps_within(*span))
    cut, edited = Plan(tuple(gaps)), {edit.position: edit for edit in (*situation.plan.replacements, *edits)}
    return Plan(cut.gaps, tuple(edited[place] for place in sorted(edited) if not cut.covers(place)))


def _worthwhile(
    situation: Situation, span: Span, texts: NewTexts | None, quotes: tuple[str, ...], writer: Strategy | None
) -> Gap | None:
    """A gap with a note that is no longer than what it stands for; None where even a notice would be.

    First what it quotes gives way, then the summary. What a strategy cuts by its count and writes down itself
    is cut however short it is: there it is not for the size.
    """
    is_written = writer is not None and writer.words(situation, *span, None)
    if is_written and (texts is None or texts.get(span)):
        return gap_of(situation, span, texts or {}, quotes)
    ways: list[tuple[NewTexts, tuple[str, ...]]] = [(texts or {}, quotes), (texts or {}, ()), ({}, ())]
    made = (gap_of(situation, span, each, quoted) for each, quoted in ways)
    return next((gap for gap in made if is_no_longer(situation, gap)), None)


def new_texts(
    situation: Situation, spans: Collection[Span], strategy: Strategy | None, summaries: Summaries
) -> dict[Span, tuple[Anchor, ...]]:
    """What the notes of ``spans`` have to say anew: the summaries, or what the strategy makes of them."""
    standing = {gap.span: gap for gap in situation.plan.gaps}
    texts: dict[Span, tuple[Anchor, ...]] = {}
    for span in spans:
        old, is_asked = standing.get(span), span in summaries
        if old is not None and not summaries.get(span):
            if any(dumps(anchor.text)[1:-1] not in old.note for anchor in old.anchors):
                is_whole = old.is_summarised  # the note is behind its summaries
                texts[span] = _anchors(situation, strategy, old.anchors[0]) if is_whole else old.anchors
            continue
        generation = generation_upon(situation.anchors_within(*span)) if is_asked else 0
        summary = Anchor(*span, summaries.get(span) or "", generation=generation)
        anchors = _anchors(situation, strategy, summary)
        if anchors or is_asked:
            texts[span] = anchors
    return texts


def _anchors(situation: Situation, strategy: Strategy | None, summary: Anchor) -> tuple[Anchor, ...]:
    """A summary of a whole gap in the strategy's words; without text it is none."""
    if strategy is None:
        return (summary,) if summary.text else ()
    text = strategy.words(situation, summary.start, summary.end, summary.text or None)
    return (replace(summary, text=text, by_code=text != summary.text),) if text else ()


def generation_upon(earlier: Iterable[Anchor]) -> int:
    """The generation of a summary that is made from these, or from the originals alone."""
    return 1 + max((each.generation for each in earlier), default=-1)


def gap_of(situation: Situation, span: Span, texts: NewTexts, quotes: tuple[str, ...]) -> Gap:
    """A gap with a new note: a summary of all of it, or what earlier summaries say of parts of it.

    Of those the newest, within the room of one summary.
    """
    anchors = texts.get(span, ())
    if not anchors:
        left = situation.policy.summary_tokens(situation.budget.limit)
        characters = situation.policy.summary.max_characters or float("inf")
        for anchor in reversed(situation.anchors_within(*span)):
            left -= situation.count(anchor.text)
            characters -= len(anchor.text)
            if left < 0 or characters < 0:
                break
            anchors = (anchor, *anchors)
    return noted_gap(situation, span, anchors, quotes, failed=span in texts and not texts[span])


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
    chain, (start, end) = situation.chain, span
    above = start - 1  # the request that it takes the answer from; system messages may stand between
    while above >= 0 and chain.messages[above].role in HEAD_ROLES:
        above -= 1
    is_answer = above >= 0 and situation.role(above) == "user"
    users = situation.users
    first, last = (bisect_left(users, place) for place in (start - 1, end))
    sample = users[max(first, last - _SAMPLE) : last]
    note = Note(
        count=end - start,
        seal=chain.hashes[end - 1],
        language=language_of(" ".join(situation.content(place).text for place in sample)),
        summaries=tuple((anchor.count, anchor.text) for anchor in anchors),
        failed=failed,
        answers_above=is_answer,
        under_way=is_answer and above == users[-1],
        quotes=quotes,
    ).text
    return Gap(
        *span,
        note=chain.dialect.note(note, situation.policy.summary.role),
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
