"""Where the ledger stands: in the last note of a view, and in no other (laws 3 and 4).

An epoch that sets a new note after the last one takes the ledger out of the old note, whose other words stay
as they are.
"""

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.notes import ledger_lines, result_lines, with_ledger, without_ledger
from proxy.core.dialects.dialect import Dialect
from proxy.core.formats.json import dumps, loads_writable
from proxy.core.planning.ledger_packing import tokens_of
from proxy.core.planning.ledger_text import Source, facts_of
from proxy.core.planning.plan import Gap, Plan, view_tokens
from proxy.core.planning.situation import Count, Situation
from proxy.core.text.words import language_of

# --- tool results: what is cut and still fresh is told whole, so that nobody need ask again ---
# Each takes one line, as a call and JSON, whatever the tool wrote: a text with lines of its own cannot pass
# for another part of the note, let alone for what a user laid down.


_SHARE = 0.5
"""Of the room of identifiers: what results take before them."""
_DENSEST = 12
"""Characters that a token has at most, about; a longer text is not even counted."""
_MOST = 50


def fresh_results(situation: Situation, plan: Plan, room: int, language: str) -> str:
    """The results that a plan leaves out and that are still fresh, as lines; whole ones, the newest first.

    ``room`` is the counted tokens that identifiers may have.
    """
    left = int(room * _SHARE)
    if left <= 0 or not situation.fresh:
        return ""
    left -= situation.count(result_lines(("",), language))
    positions = {place: position for position, place in enumerate(situation.chain.hashes)}
    start_of = {place: unit.start for unit in situation.units for place in range(unit.start, unit.end)}
    lines: list[str] = []
    for entry in reversed(list(situation.fresh)):
        position = positions[entry.place]
        both = (position, start_of[position])  # the arguments stand in the call
        if plan.shows(position) or not all(situation.classes.may_be_quoted(place) for place in both):
            continue
        if len(entry.text) <= left * _DENSEST and len(lines) < _MOST:
            name = entry.tool if entry.tool.isidentifier() else dumps(entry.tool).decode()
            line = f"{name}({_compact(entry.arguments)}): {_compact(entry.text)}"
            size = situation.count(f"> {line}\n")
            if size <= left:
                left -= size
                lines.append(line)
    return result_lines(lines[::-1], language)


def _compact(text: str) -> str:
    """A text as JSON of one line: itself, where it is an object or an array, else as a string."""
    try:
        value: object = loads_writable(text) if text.lstrip()[:1] in ("{", "[") else text
    except ValueError:
        value = text
    return dumps(value).decode()


# --- the ledger's room and its place ---


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
"""Counted tokens by which a ledger that a replay did not write may be larger than the one before."""
_WORDS = 24
"""Counted tokens, at least, of what a ledger says beside its constraints."""
_SAMPLE = 8
"""Messages of users, the newest, by which the ledger's language is known."""


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


def add_ledger(situation: Situation, plan: Plan, most: int | None = None) -> Plan:
    """The plan with the ledger of all that it cuts in its last note, as far as the budget allows.

    ``most`` bounds the counted tokens by which that note grows.
    """
    plain = plain_of(plan, situation.count, situation.chain.dialect)
    room = room_of(situation, plain)
    room = room if most is None else min(room, most)
    return _with_ledger(situation, plain, room) if room >= _LEAST else plain


def room_of(situation: Situation, plain: Plan) -> int:
    """Counted tokens that the ledger of a plan takes at most; ``plain`` is the plan without it."""
    if not plain.gaps:
        return 0
    left = situation.budget.share(1) - view_tokens(plain, situation.chain.tokens)
    room = min(room_for(situation, cut_tokens(situation, plain)), left)
    return room if room >= _LEAST else 0


def _with_ledger(situation: Situation, plain: Plan, room: int) -> Plan:
    """The plan with a ledger by which its last note grows by at most ``room`` counted tokens."""
    count, chain = situation.count, situation.chain
    language = language_of(" ".join(situation.content(place).text for place in situation.users[-_SAMPLE:]))
    # Beside its facts a ledger says what they are.
    allowed = room - count(ledger_lines(("",), "", language)) - count(ledger_lines((), " ", language)) - 2
    last = best = plain.gaps[-1]
    details = details_room(situation)
    before = _needed(situation) if situation.policy.ledger.constraints else 0
    results = fresh_results(situation, plain, min(details, room - before), language)
    taken = count(results) if results else 0
    allowed, details = allowed - taken, details - taken
    source = Source(situation, plain)
    for _ in range(_TRIES):
        facts = facts_of(source, allowed, details, results)
        if not facts and not results:
            break
        ledger = "\n".join(
            filter(None, (ledger_lines(facts.constraints, facts.identifiers, language), results))
        )
        noted = _noted(last, ledger, count, chain.dialect)
        excess = noted.tokens - last.tokens - room
        if excess <= 0 and noted.tokens > best.tokens:
            best = noted
        if -_SLACK < excess <= 0 or (excess <= 0 and not facts.left_out):
            break
        allowed -= excess + (excess > 0)
    return Plan((*plain.gaps[:-1], best), plain.replacements)


def _noted(gap: Gap, ledger: str, count: Count, dialect: Dialect) -> Gap:
    """The gap with this ledger in its note, or with none."""
    message = dialect.read(gap.note)
    text = without_ledger(message.text, gap.ledger) if gap.ledger else message.text
    text = with_ledger(text, ledger) if ledger else text
    note = dialect.note(text, message.role)
    return replace(gap, note=note, tokens=MESSAGE_TOKENS + count(text), ledger=ledger)


def plain_of(plan: Plan, count: Count, dialect: Dialect) -> Plan:
    """The plan without a ledger in any note."""
    if not any(gap.ledger for gap in plan.gaps):
        return plan
    gaps = (_noted(gap, "", count, dialect) if gap.ledger else gap for gap in plan.gaps)
    return Plan(tuple(gaps), plan.replacements)


def cut_tokens(situation: Situation, plan: Plan) -> int:
    """Counted tokens of what a plan leaves out, or clips."""
    tokens = situation.chain.tokens
    cut = sum(tokens.between(gap.start, gap.end) for gap in plan.gaps)
    return cut + sum(tokens[edit.position] - edit.tokens for edit in plan.replacements)
