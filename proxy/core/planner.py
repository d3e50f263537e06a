"""What gets cut: from a situation to the plan of the next epoch.

``draft`` chooses the gaps and says which of them deserve a summary; whoever asked may then fetch summaries,
or not; ``finish`` writes the notes and answers the plan. Both are pure, so the same situation and the same
summaries give the same plan on every worker (law 3), and the finished view fits the budget unless what must
stay alone does not (law 4).

``fold`` is for a chain without a plan at hand: it replays the chain's own past with notices only, so that a
worker without a store cuts today what it would have cut yesterday (law 7).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from proxy.core.breaker import LEAST_FREED, NO_PAST, allows
from proxy.core.budget import MESSAGE_TOKENS, Budget, Stage, stage_of
from proxy.core.clipping import clip_view
from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.counting import BY_UNITS
from proxy.core.jsonvalue import dumps
from proxy.core.language import language_of
from proxy.core.ledger.placing import cut_tokens, placed, plain_of, room_for, room_of
from proxy.core.messages import HEAD_ROLES
from proxy.core.notes import Note, as_message
from proxy.core.picture_clearing import picture_clearings
from proxy.core.plan import EMPTY, Anchor, Gap, Plan, Replacement, view_tokens
from proxy.core.policy import Policy
from proxy.core.precedence import NOTICE_TOKENS
from proxy.core.selection import Selection
from proxy.core.situation import FREE, Chain, Count, Situation
from proxy.core.strategies import Strategy, strategy_of
from proxy.core.tool_results import clearings
from proxy.core.units import last_user, request_points

_NOTICES = 2
_PRESSING = (Stage.COMPACT, Stage.EMERGENCY)
_FOLDED_BITS = 3
"""Leading bits of an epoch's number; where all others are zero, a fold writes the epoch's ledger."""
_SPARE = 32
"""Counted tokens by which a ledger that a fold did not write may be larger than the one before."""

Span = tuple[int, int]
Summaries = Mapping[Span, str | None]
"""Summaries by gap; None where one was asked for and failed. A gap that is absent was not asked about."""
Told = Mapping[Span, Anchor | None]
"""The same, as the notes have it."""


@dataclass(frozen=True)
class Draft:
    """An epoch that is decided but for the words of its notes."""

    situation: Situation
    stage: Stage
    spans: tuple[Span, ...]
    """Every gap from now on."""
    quotes: Mapping[Span, tuple[str, ...]]
    yielded: int
    """The firmest protection that had to yield (:mod:`proxy.core.situation`)."""
    cleared: tuple[Replacement, ...] = ()
    """Tool results that go out as placeholders from now on."""
    has_room: bool = True
    """Whether the epoch is worth its while with summaries, and not with notices alone."""
    strategy: Strategy | None = None
    """The strategy that decided, and writes its notes; None where a person did."""
    acts_now: bool = False
    """Whether it begins for another reason than usage, at once."""

    @property
    def may_wait(self) -> bool:
        """Whether it begins for the size of the view alone, and so may wait until it pays."""
        return self.stage is Stage.TRIM and not self.acts_now and self.strategy is not BY_UNITS

    @property
    def waits(self) -> bool:
        """Whether a request may wait for its summaries."""
        is_rare = self.acts_now and self.strategy is not None and not self.strategy.slides
        return self.stage is Stage.COMPACT or (is_rare and self.stage is not Stage.EMERGENCY)

    @property
    def wanted(self) -> tuple[Span, ...]:
        """Gaps of which enough is told by no summary yet: each message is paid for once."""
        rules = self.situation.policy.summary
        if not rules.enabled or not self.has_room:
            return ()
        summarised = {(gap.start, gap.end) for gap in self.situation.plan.gaps if gap.is_summarised}
        large = (
            span for span in self.spans if self._untold(span) >= rules.min_gap and span not in summarised
        )
        strategy, situation = self.strategy, self.situation
        return tuple(span for span in large if strategy is None or strategy.wants_summary(situation, *span))

    def _untold(self, span: Span) -> int:
        """Messages of a gap that a summary may tell of, and none does."""
        anchors = (anchor for gap in self.situation.plan.gaps for anchor in gap.anchors)
        told = {place for each in anchors if not each.by_code for place in range(each.start, each.end)}
        may_be_told = self.situation.classes.may_be_summarised
        return sum(may_be_told(place) for place in range(*span) if place not in told)


def is_due(situation: Situation, stage: Stage) -> bool:
    """Whether the policy would begin an epoch now; quick, since it is asked at every request."""
    return _due(situation, stage) is not None


def _due(situation: Situation, stage: Stage) -> Strategy | None:
    """What would begin an epoch now: the strategy, before *compact* also the count of units."""
    is_pressing = stage in (Stage.COMPACT, Stage.EMERGENCY)
    if not is_pressing and BY_UNITS.is_due(situation, stage):
        return BY_UNITS
    strategy = strategy_of(situation.policy.strategy.name)
    if not strategy.is_due(situation, stage):
        return None
    is_free = stage is Stage.EMERGENCY or strategy.acts_now(situation)
    rules = situation.policy.stages
    is_earned = is_free or allows(situation.past, situation.chain.tokens, situation.budget, rules)
    return strategy if is_earned else None


def acts_now(situation: Situation) -> bool:
    """Whether the policy's strategy would begin one now for another reason than usage."""
    return strategy_of(situation.policy.strategy.name).acts_now(situation)


def draft(situation: Situation, stage: Stage) -> Draft | None:
    """Decide on an epoch; None where none is due, or where it would free too little to be worth it."""
    strategy = _due(situation, stage)
    if strategy is None:
        return None
    stage = Stage.TRIM if strategy is BY_UNITS else stage  # like there, no request waits for a summary
    selection, decided, freed = _select(situation, stage, strategy)
    if stage is Stage.EMERGENCY:
        return decided
    if not (selection.cut or selection.edits):
        return None
    if strategy is BY_UNITS and not _shrinks(decided):
        return None
    if decided.acts_now or strategy is BY_UNITS:
        return decided if situation.view - freed <= situation.budget.share(1) else None
    least = LEAST_FREED * situation.budget.room
    if freed < least:
        return None
    return replace(decided, has_room=freed - _summary_room(situation, stage) >= least)


def _select(situation: Situation, stage: Stage, strategy: Strategy) -> tuple[Selection, Draft, int]:
    """Choose, again with more set aside while the notes alone bring the view over the budget.

    Answers also the counted tokens that the epoch frees with notices for notes.
    """
    set_aside, ledger = _set_aside(situation, stage), _ledger_set_aside(situation)
    is_now = strategy.acts_now(situation)
    results = () if is_now or strategy.slides else (*picture_clearings(situation), *clearings(situation))
    while True:
        selection = Selection(situation, stage, set_aside, ledger, results)
        selection.run(strategy)
        spans = tuple(selection.spans())
        quotes = {span: selection.quotes_within(*span) for span in spans}
        decided = Draft(
            situation,
            stage,
            spans,
            quotes,
            selection.yielded,
            tuple(selection.edits),
            strategy=strategy,
            acts_now=is_now,
        )
        plain = _noted(decided, {})
        over = view_tokens(plain, situation.chain.tokens) - selection.to_clip - situation.budget.share(1)
        if stage is not Stage.EMERGENCY or over <= 0 or selection.is_exhausted:
            return selection, decided, situation.view - _size_of(situation, plain)
        set_aside += over


def outlined(decided: Draft) -> Plan:
    """The plan of a draft with notices for notes and without its ledger; quick."""
    return _noted(decided, {})


def noticed(decided: Draft) -> int:
    """Counted tokens that the view of a draft has at most, with notices for notes; quick."""
    return _size_of(decided.situation, _noted(decided, {}))


def _size_of(situation: Situation, plain: Plan) -> int:
    """Counted tokens of the view of a plan that has no ledger yet, once it has one of full size."""
    ledger = room_for(situation, cut_tokens(situation, plain))
    return view_tokens(plain, situation.chain.tokens) + ledger


def _shrinks(decided: Draft) -> bool:
    """Whether the view becomes smaller, ledgers apart."""
    situation = decided.situation
    before = plain_of(situation.plan, situation.count)
    tokens = situation.chain.tokens
    return view_tokens(_noted(decided, {}), tokens) < view_tokens(before, tokens)


def _set_aside(situation: Situation, stage: Stage) -> int:
    """Counted tokens kept free for the epoch's notes, but for the ledger."""
    notices = min(_NOTICES * NOTICE_TOKENS, situation.budget.room // 10)
    return notices + _summary_room(situation, stage)


def _summary_room(situation: Situation, stage: Stage) -> int:
    """Counted tokens of the summary that an epoch may wait for."""
    if stage is not Stage.COMPACT or not situation.policy.summary.enabled:
        return 0
    return situation.policy.summary_tokens(situation.budget.limit)


def _ledger_set_aside(situation: Situation) -> int:
    """Counted tokens kept free for the ledger, beside those of the one that it takes the place of."""
    standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
    standing += situation.unwritten
    return max(room_for(situation, sum(situation.chain.tokens)) - standing, 0)


def finish(decided: Draft, summaries: Summaries) -> Plan:
    """Write the notes of a draft, the ledger among them, and, if the view is still too large, clip."""
    return placed(decided.situation, _written(decided, summaries))


def _written(decided: Draft, summaries: Summaries) -> Plan:
    """The plan of a draft but for its ledger, for which it leaves room."""
    given = _told(decided, summaries)
    situation = decided.situation
    plan = _noted(decided, given, renews=True)
    if _size_of(situation, plan) > situation.budget.share(1):
        plan = _noted(decided, given)
    while given and _size_of(situation, plan) > situation.budget.share(1):
        # A summary may be longer than what was set aside for it; a notice always fits.
        given.pop(max(given, key=lambda span: len(anchor.text) if (anchor := given[span]) else 0))
        plan = _noted(decided, given)
    if decided.stage is Stage.EMERGENCY:
        ledger = room_for(situation, cut_tokens(situation, plan))
        plan = clip_view(situation, plan, decided.yielded, ledger)
    return plan


def _told(decided: Draft, summaries: Summaries) -> dict[Span, Anchor | None]:
    """What new notes have to say: the summaries, or what the strategy makes of them."""
    generations = {span: _generation(decided.situation, span) for span in summaries}
    told = {
        span: Anchor(*span, text, generation=generations[span]) if text else None
        for span, text in summaries.items()
    }
    if decided.strategy is None:
        return told
    standing = {(gap.start, gap.end) for gap in decided.situation.plan.gaps}
    for span in decided.spans:
        summary = summaries.get(span)
        if not summary and span in standing:
            continue  # it has its words
        text = decided.strategy.words(decided.situation, *span, summary)
        if text or summary:
            made = Anchor(*span, text or "", by_code=text != summary, generation=generations.get(span, 0))
            told[span] = made if text else None
    return told


def _generation(situation: Situation, span: Span) -> int:
    """Upon how many summaries, one upon the other, a summary of a gap is made."""
    start, end = span
    earlier = [each for gap in situation.plan.gaps for each in gap.anchors if start <= each.start < end]
    return 1 + max(each.generation for each in earlier) if earlier else 0


def _noted(decided: Draft, told: Told, *, renews: bool = False) -> Plan:
    """A draft with its notes written, but for the ledger.

    ``renews``: notes that say nothing of a summary that came late, or was made anew, are written again.
    """
    situation = decided.situation
    standing = {(gap.start, gap.end): gap for gap in plain_of(situation.plan, situation.count).gaps}
    gaps: list[Gap] = []
    for span in decided.spans:
        old = standing.get(span)
        is_settled = old is not None and (old.is_summarised or not told.get(span))
        if old is None or not is_settled:
            gaps.append(_gap(decided, span, told))
        else:
            is_stale = renews and _is_stale(old)
            gaps.append(noted_gap(situation, span, old.anchors, old.quotes) if is_stale else old)
    edits = {edit.position: edit for edit in (*situation.plan.replacements, *decided.cleared)}
    for start, end in decided.spans:
        edits = {place: edit for place, edit in edits.items() if not start <= place < end}
    return Plan(tuple(gaps), tuple(edits[place] for place in sorted(edits)))


def _is_stale(gap: Gap) -> bool:
    """Whether a note lacks what the gap's summaries say."""
    return any(dumps(anchor.text)[1:-1] not in gap.note for anchor in gap.anchors)


def _gap(decided: Draft, span: Span, told: Told) -> Gap:
    """A gap with a new note: a summary of all of it, or what earlier summaries say of parts of it."""
    situation, (start, end) = decided.situation, span
    anchor = told.get(span)
    anchors = (anchor,) if anchor else _carried(situation, start, end)
    failed = span in told and not anchor
    return noted_gap(situation, span, anchors, decided.quotes[span], failed=failed)


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
    start, end = span
    above = _request_above(situation, start)
    note = Note(
        count=end - start,
        seal=situation.chain.hashes[end - 1],
        language=_language(situation, start, end),
        summaries=tuple((anchor.count, anchor.text) for anchor in anchors),
        failed=failed,
        answers_above=above is not None,
        under_way=above is not None and above == last_user(situation.chain.messages),
        quotes=quotes,
    ).text
    return Gap(
        start=start,
        end=end,
        note=as_message(note, situation.policy.summary.role),
        tokens=MESSAGE_TOKENS + situation.count(note),
        anchors=anchors,
        quotes=quotes,
    )


def _carried(situation: Situation, start: int, end: int) -> tuple[Anchor, ...]:
    """What earlier summaries say of parts of a gap: the newest, within the room of one summary."""
    left = situation.policy.summary_tokens(situation.budget.limit)
    carried: list[Anchor] = []
    for gap in reversed(situation.plan.gaps):
        for anchor in reversed(gap.anchors if start <= gap.start < end else ()):
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
    roles = situation.chain.messages
    said = [place for place in range(max(start - 1, 0), end) if roles[place].role == "user"]
    return language_of(" ".join(situation.content(place).text for place in said[-8:]))


def fold(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    conditions: Conditions = UNKNOWN,
    pins: AbstractSet[bytes] = frozenset(),
) -> tuple[Plan, int]:
    """The plan that a chain would have come to by itself, with notices only, and how many epochs it took.

    ``conditions`` are those of the chain's last request; of the others nobody knows them.
    """
    plan, epochs, view, position, past = EMPTY, 0, 0, 0, NO_PAST
    begun, ledger, most = None, 0, None
    strategy = strategy_of(policy.strategy.name)
    marks = strategy.turning_points(chain, policy)
    for length in [len(chain)] if strategy.slides else request_points(chain.messages):
        view += sum(chain.tokens[position:length])
        position = length
        stage = stage_of(budget.usage(view), policy.stages)
        is_marked = strategy.slides or length in marks
        if stage not in _PRESSING and not is_marked and length < len(chain):
            continue
        prefix = chain.prefix(length)
        if not prefix.is_spared_by(plan):
            plan, begun, ledger, view, past = EMPTY, None, 0, sum(prefix.tokens), NO_PAST
            stage = stage_of(budget.usage(view), policy.stages)
        known = conditions if length == len(chain) else UNKNOWN
        situation = Situation(prefix, plan, policy, budget, count, known, ledger, pins, past)
        is_anew = known != UNKNOWN and strategy.acts_now(situation)
        if stage not in _PRESSING and not is_marked and not is_anew:
            continue
        decided = draft(situation, stage)
        if decided is None:
            continue
        begun, plan, past = situation, _written(decided, {}), past.after(length)
        epochs += 1
        most = None if _writes_ledger(epochs) else min(ledger + _SPARE, room_of(begun, plan))
        ledger = _ledger_tokens(begun, plan) if most is None else most
        view = view_tokens(plan, prefix.tokens) + ledger
    return placed(begun, plan, most) if begun else plan, epochs


def _writes_ledger(epochs: int) -> bool:
    """Whether a fold writes the ledger of this epoch, to know its size; if not, the next may hardly grow.

    A ledger is written from the whole chain. Writing every one of the first eight, then four while the epochs
    double, keeps a fold linear.
    """
    return epochs % (1 << max(epochs.bit_length() - _FOLDED_BITS, 0)) == 0


def _ledger_tokens(situation: Situation, plan: Plan) -> int:
    """Counted tokens by which its ledger makes the view of a plan larger."""
    tokens = situation.chain.tokens
    return view_tokens(placed(situation, plan), tokens) - view_tokens(plan, tokens)


def cuts_protected(situation: Situation, plan: Plan) -> bool:
    """Whether a plan cuts what is protected now."""
    protected = (situation.units[index] for index, level in situation.protection.items() if level > FREE)
    return any(plan.covers(unit.start) for unit in protected)


def yielded_protection(decided: Draft) -> bool:
    """Whether an epoch had to cut what the policy protects."""
    return decided.yielded > FREE
