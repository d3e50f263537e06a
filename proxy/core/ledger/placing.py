"""Where the ledger stands: in the last note of a view, and in no other (laws 3 and 4).

An epoch that sets a new note after the last one takes the ledger out of the old note, whose other words stay
as they are.
"""

from msgspec.structs import replace

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.language import language_of
from proxy.core.ledger.bullets import tokens_of
from proxy.core.ledger.results import fresh_results
from proxy.core.ledger.writing import facts_of
from proxy.core.messages import Content
from proxy.core.notes import as_message, ledger_lines, with_ledger, without_ledger
from proxy.core.plan import Gap, Plan, view_tokens
from proxy.core.situation import Count, Situation

_LEAST = 24
"""Counted tokens below which a ledger is not worth its introduction."""
_TRIES = 3
"""How often a ledger is written that came out too large, counted as a whole, or left out a rule in vain."""
_SLACK = 8
"""Counted tokens in which no rule more would fit."""
_OF_CUT = 0.5
"""Of the counted tokens of what is cut: the most that the ledger takes."""
_DETAILS, _CONSTRAINTS = 0.3, 0.85
"""Of the room: what ``ledger.least`` lets identifiers take, and what it lets constraints take."""
SPARE = 32
"""Counted tokens by which a ledger that a fold did not write may be larger than the one before."""
_WORDS = 24
"""Counted tokens, at least, of what a ledger says beside its constraints."""


def room_for(situation: Situation, cut: int) -> int:
    """Counted tokens that the ledger may have beside ``cut`` tokens that are absent."""
    rules = situation.policy.ledger
    if not (rules.constraints or rules.identifiers):
        return 0
    details = details_room(situation)
    most = min(rules.tokens, int(_CONSTRAINTS * situation.budget.room))
    room = max(details, min(most, _needed(situation)) if rules.constraints and most > details else 0)
    room = min(room, int(cut * _OF_CUT))
    return room if room >= _LEAST else 0


def is_short(situation: Situation) -> bool:
    """Whether it is the budget, and no policy, that leaves too little room for the constraints in force."""
    rules, most = situation.policy.ledger, int(_CONSTRAINTS * situation.budget.room)
    return rules.constraints and 0 < most <= rules.tokens and most < _needed(situation)


def details_room(situation: Situation) -> int:
    """Counted tokens that the ledger may have where constraints do not need more."""
    rules, budget = situation.policy.ledger, situation.budget
    return max(int(rules.share * budget.limit), min(rules.tokens, int(_DETAILS * budget.room)))


def _needed(situation: Situation) -> int:
    """Counted tokens of a ledger of every constraint in force."""
    if situation.unwritten:
        return situation.unwritten + SPARE
    texts = [rule.sentence.text for rule in situation.constraints[0]]
    return tokens_of(texts, situation.count) + _WORDS if texts else 0


def placed(situation: Situation, plan: Plan, most: int | None = None) -> Plan:
    """The plan with the ledger of all that it cuts in its last note, as far as the budget allows.

    ``most`` bounds the counted tokens by which that note grows.
    """
    plain = plain_of(plan, situation.count)
    room = room_of(situation, plain)
    room = room if most is None else min(room, most)
    return _with(situation, plain, room) if room >= _LEAST else plain


def room_of(situation: Situation, plain: Plan) -> int:
    """Counted tokens that the ledger of a plan takes at most; ``plain`` is the plan without it."""
    if not plain.gaps:
        return 0
    left = situation.budget.share(1) - view_tokens(plain, situation.chain.tokens)
    room = min(room_for(situation, cut_tokens(situation, plain)), left)
    return room if room >= _LEAST else 0


def _with(situation: Situation, plain: Plan, room: int) -> Plan:
    """The plan with a ledger by which its last note grows by at most ``room`` counted tokens."""
    language = language_of(" ".join(_said(situation)))
    allowed, last, best = room - _introduction(language, situation.count), plain.gaps[-1], plain.gaps[-1]
    details = details_room(situation)
    before = _needed(situation) if situation.policy.ledger.constraints else 0
    results = fresh_results(situation, plain, min(details, room - before), language)
    taken = situation.count(results) if results else 0
    allowed, details = allowed - taken, details - taken
    for _ in range(_TRIES):
        facts = facts_of(situation, plain, allowed, details, results)
        if not facts and not results:
            break
        ledger = "\n".join(
            filter(None, (ledger_lines(facts.constraints, facts.identifiers, language), results))
        )
        noted = _noting(last, ledger, situation.count)
        excess = noted.tokens - last.tokens - room
        if excess <= 0 and noted.tokens > best.tokens:
            best = noted
        if -_SLACK < excess <= 0 or (excess <= 0 and not facts.left_out):
            break
        allowed -= excess + (excess > 0)
    return Plan((*plain.gaps[:-1], best), plain.replacements)


def _introduction(language: str, count: Count) -> int:
    """Counted tokens of what a ledger says beside its facts."""
    return count(ledger_lines(("",), "", language)) + count(ledger_lines((), " ", language)) + 2


def _noting(gap: Gap, ledger: str, count: Count) -> Gap:
    message = Content.of(gap.note)
    text = with_ledger(message.text, ledger)
    return replace(
        gap, note=as_message(text, message.role), tokens=MESSAGE_TOKENS + count(text), ledger=ledger
    )


def _said(situation: Situation) -> list[str]:
    """What users said lately."""
    said = [place for place, each in enumerate(situation.chain.messages) if each.role == "user"]
    return [situation.content(place).text for place in said[-8:]]


def plain_of(plan: Plan, count: Count) -> Plan:
    """The plan without a ledger in any note."""
    if not any(gap.ledger for gap in plan.gaps):
        return plan
    return Plan(tuple(_plain(gap, count) for gap in plan.gaps), plan.replacements)


def _plain(gap: Gap, count: Count) -> Gap:
    if not gap.ledger:
        return gap
    message = Content.of(gap.note)
    text = without_ledger(message.text, gap.ledger)
    return replace(gap, note=as_message(text, message.role), tokens=MESSAGE_TOKENS + count(text), ledger="")


def cut_tokens(situation: Situation, plan: Plan) -> int:
    """Counted tokens of what a plan leaves out, or clips."""
    tokens = situation.chain.tokens
    cut = sum(tokens.between(gap.start, gap.end) for gap in plan.gaps)
    return cut + sum(tokens[edit.position] - edit.tokens for edit in plan.replacements)
