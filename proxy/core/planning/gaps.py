"""Write the note that replaces each gap: with summaries, or only with the number of cut messages.

Keeps law 3 (stable): a note with nothing new to say stays unchanged, byte for byte. A summary that came too
late for its note, or was written again from the originals, is in the plan as an anchor that the note does
not contain yet; the next epoch rewrites that note.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.notes import Note
from proxy.core.formats.json import dumps
from proxy.core.planning.ledger import gap_with_ledger
from proxy.core.planning.plan import Anchor, Gap, Plan, Replacement, Span, runs_of
from proxy.core.planning.situation import FIXED, Situation
from proxy.core.planning.strategy import Strategy

Summaries = Mapping[Span, str | None]
"""Summaries by gap; None if one was requested and failed. For an absent gap none was requested."""
NewTexts = Mapping[Span, tuple[Anchor, ...]]
"""New texts for notes, by gap; an empty tuple if a summary was requested and failed."""


def with_notes(
    situation: Situation,
    before: Sequence[Gap],
    quotes: Mapping[Span, tuple[str, ...]],
    edits: Iterable[Replacement],
    texts: NewTexts | None,
    writer: Strategy | None,
) -> Plan:
    """Return a plan of these gaps, and of the edits in force and new ones.

    ``before``: the gaps in force. Of these a note with nothing new to say stays unchanged, and one with a new
    summary keeps its ledger; a new note has none. ``quotes`` maps each gap to the quotes of its note.
    ``texts``: None while summaries are not known yet; then notes are notices. ``writer``: a strategy that
    acts by count and may record itself what it cuts.
    """
    in_force = {gap.span: gap for gap in before}
    gaps: list[Gap] = []
    for span, quoted in quotes.items():
        old = made = in_force.get(span)
        if old is None or not old.note or (texts and texts.get(span)):
            made = _worthwhile(situation, span, texts, quoted, writer)
            if made and old and old.ledger:
                made = gap_with_ledger(made, old.ledger, situation.count, situation.chain.dialect)
        gaps += [made] if made else (gap for gap in before if span[0] <= gap.start and gap.end <= span[1])
    cut, edited = Plan(tuple(gaps)), {edit.position: edit for edit in (*situation.plan.replacements, *edits)}
    return Plan(cut.gaps, tuple(edited[place] for place in sorted(edited) if not cut.covers(place)))


def without_notes(situation: Situation, plan: Plan) -> Plan:
    """Return the plan that cuts all that may be cut, with nothing in its place.

    So no request but the last stands without its answer and without a word about it.
    """
    units, levels = situation.units, situation.protection
    loose = (units[index] for index, level in levels.items() if level < FIXED)
    gone = {place for each in (*loose, *plan.gaps) for place in range(each.start, each.end)}
    gaps = tuple(Gap(run.start, run.stop) for run in runs_of(sorted(gone)))
    return Plan(gaps, tuple(edit for edit in plan.replacements if edit.position not in gone))


def _worthwhile(
    situation: Situation, span: Span, texts: NewTexts | None, quotes: tuple[str, ...], writer: Strategy | None
) -> Gap | None:
    """Return the gap with a note no longer than the cut messages; None if even a notice would be longer.

    A note that is too long loses its quotes first, then its summary. A gap that a strategy cuts by count and
    records itself is cut however short it is, because its purpose is not to save tokens.
    """
    is_written = writer is not None and writer.words(situation, *span, None)
    if is_written and (texts is None or texts.get(span)):
        return gap_with_texts(situation, span, texts or {}, quotes)
    own: NewTexts = {span: texts[span]} if texts and span in texts else {}
    ways: list[tuple[NewTexts, tuple[str, ...]]] = [(own, quotes)]
    ways += [(own, ())] if quotes else []
    ways += [({}, ())] if own else []
    made = (gap_with_texts(situation, span, each, quoted) for each, quoted in ways)
    return next((gap for gap in made if is_no_longer(situation, gap)), None)


def new_texts(
    situation: Situation, spans: Collection[Span], strategy: Strategy | None, summaries: Summaries
) -> dict[Span, tuple[Anchor, ...]]:
    """Return new texts for the notes of ``spans``: the summaries, or what the strategy makes of them."""
    standing = {gap.span: gap for gap in situation.plan.gaps}
    texts: dict[Span, tuple[Anchor, ...]] = {}
    for span in spans:
        old, is_asked = standing.get(span), span in summaries
        if old is not None and not summaries.get(span):
            anchors = _as_worded_now(situation, strategy, old)
            if any(dumps(anchor.text)[1:-1] not in old.note for anchor in anchors):
                texts[span] = anchors
            continue
        generation = generation_upon(situation.anchors_within(*span)) if is_asked else 0
        summary = Anchor(*span, summaries.get(span) or "", generation=generation)
        anchors = _anchors(situation, strategy, summary)
        if anchors or is_asked:
            texts[span] = anchors
    return texts


def _as_worded_now(situation: Situation, strategy: Strategy | None, gap: Gap) -> tuple[Anchor, ...]:
    """Return the summaries of a gap in force; a single one as the strategy words it now.

    It may be newer than the note, or other notes may have left it less room.
    """
    if strategy is None or [each.span for each in gap.anchors] != [gap.span]:
        return gap.anchors
    (anchor,) = gap.anchors
    if strategy.records:
        return (replace(anchor, text=strategy.words(situation, *gap.span, anchor.text) or anchor.text),)
    is_newer = gap.is_summarised and dumps(anchor.text)[1:-1] not in gap.note
    return _anchors(situation, strategy, anchor) if is_newer else gap.anchors


def _anchors(situation: Situation, strategy: Strategy | None, summary: Anchor) -> tuple[Anchor, ...]:
    """Return the summary of a whole gap as the strategy words it; empty if there is no text."""
    if strategy is None:
        return (summary,) if summary.text else ()
    text = strategy.words(situation, summary.start, summary.end, summary.text or None)
    return (replace(summary, text=text, by_code=text != summary.text),) if text else ()


def generation_upon(earlier: Iterable[Anchor]) -> int:
    """Return the generation of a summary made from ``earlier`` ones; 0 if there are none."""
    return 1 + max((each.generation for each in earlier), default=-1)


def gap_with_texts(situation: Situation, span: Span, texts: NewTexts, quotes: tuple[str, ...]) -> Gap:
    """Return the gap with a new note: a summary of all of it, or earlier summaries of parts of it.

    Of earlier summaries it takes the newest that fit into the room of one summary.
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
    return gap_with_note(situation, span, anchors, quotes, failed=span in texts and not texts[span])


def gap_with_note(
    situation: Situation,
    span: Span,
    anchors: tuple[Anchor, ...],
    quotes: tuple[str, ...],
    *,
    failed: bool = False,
) -> Gap:
    """Return the gap with a note that contains the summaries ``anchors`` and counts the other messages.

    ``failed``: a summary of the gap was requested and could not be obtained.
    """
    chain, (start, end) = situation.chain, span
    above = situation.preceding_in_view(start)  # the user request whose answer is cut
    is_answer = above >= 0 and situation.role(above) == "user"
    note = Note(
        count=end - start,
        seal=chain.hashes[end - 1],
        language=situation.language_before(end),
        summaries=tuple((anchor.count, anchor.text) for anchor in anchors),
        failed=failed,
        answers_above=is_answer,
        under_way=is_answer and above == situation.users[-1],
        quotes=quotes,
    ).text
    return Gap(
        *span,
        note=chain.dialect.note(note, situation.policy.summary.role),
        tokens=MESSAGE_TOKENS + situation.count(note),
        anchors=anchors,
        quotes=quotes,
    )


def part_of(situation: Situation, gap: Gap, span: Span, quotes: tuple[str, ...]) -> Gap | None:
    """Return a part of a gap, with the summaries that cover nothing else; None if a note would be longer."""
    anchors = tuple(each for each in gap.anchors if span[0] <= each.start and each.end <= span[1])
    part = gap_with_note(situation, span, anchors, quotes)
    return part if is_no_longer(situation, part) else None


def is_no_longer(situation: Situation, gap: Gap) -> bool:
    """Whether a gap's note is no longer than the cut messages, in counted tokens and in bytes."""
    chain = situation.chain
    if gap.tokens > chain.tokens.between(gap.start, gap.end):
        return False
    size = 0
    for place in range(gap.start, gap.end):  # usually the first few decide
        size += len(chain.raws[place])
        if size >= len(gap.note):
            return True
    return False
