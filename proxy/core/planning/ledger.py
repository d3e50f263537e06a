"""Put the ledger of new cuts into the last note of a view (laws 3 and 4).

Notes before the first message that an epoch edits stand, with their ledgers, until they are full or say what
no longer holds (docs/decisions/standing-notes.md). The ledger of the new note has only what they lack.
"""

from collections.abc import Container
from itertools import pairwise

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.notes import ledger_lines, result_lines, with_ledger, without_ledger
from proxy.core.dialects.dialect import Dialect
from proxy.core.extraction.reading import BINDS
from proxy.core.formats.json import dumps, loads_writable
from proxy.core.planning.ledger_packing import tokens_of
from proxy.core.planning.ledger_text import Source, facts_of
from proxy.core.planning.life import growth_per_epoch
from proxy.core.planning.plan import Gap, Plan, Span, view_tokens
from proxy.core.planning.situation import Count, Situation
from proxy.core.tool_cache.cache import ToolRules

# --- tool results: cut results that are still fresh are carried whole, so that no call need be repeated ---
# Each takes one line, as a call and JSON, whatever the tool wrote: so a text with several lines cannot be
# mistaken for another part of the note, let alone for a user's rule.


_SHARE = 0.5
"""Share of the identifiers' room that results may take first."""
_DENSEST = 12
"""Approximate maximum of characters per token; a text that cannot fit by this is not even counted."""
_MOST = 50


def _fresh_results(situation: Situation, plan: Plan, room: int, language: str) -> str:
    """Return lines with the results that a plan cuts and that are still fresh; the newest that fit whole.

    ``room``: counted tokens that identifiers may have.
    """
    left = int(room * _SHARE)
    if left <= 0 or not situation.fresh_results:
        return ""
    left -= situation.count(result_lines(("",), language))
    positions = {place: position for position, place in enumerate(situation.chain.hashes)}
    lines: list[str] = []
    for entry in reversed(list(situation.fresh_results)):
        position = positions[entry.message_hash]
        both = (position, situation.units[situation.unit_at(position)].start)  # the call has the arguments
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
    """Return a text as one line of JSON: parsed if it is an object or array, else as a string."""
    try:
        value: object = loads_writable(text) if text.lstrip()[:1] in ("{", "[") else text
    except ValueError:
        value = text
    return dumps(value).decode()


# --- the ledger's room and its place ---


_BESIDE = 0.08
"""Share of the budget that notes right behind others may take beside their ledgers."""
_CACHED_SHARE = 0.1
"""Price of a cached token relative to a fresh one, where prices do not count."""
_LEAST = 24
"""Counted tokens below which a ledger is not worth its introduction."""
_TRIES = 3
"""How often a ledger is written at most, if it is too large as a whole or left out a rule without need."""
_SLACK = 8
"""Unused counted tokens in which no further rule would fit."""
_OF_CUT = 0.5
"""Maximal share of the cut messages' counted tokens that the ledger takes."""
_OF_VIEW, _LARGE = 3, 32_000
"""Above a budget of ``_LARGE`` tokens, ``ledger.share`` is taken of at most ``_OF_VIEW`` times the view."""
_DETAILS, _CONSTRAINTS = 0.4, 0.85
"""Shares of the room: what ``ledger.least`` lets identifiers take, and what it lets constraints take."""
_REWRITTEN_SHARE = 0.75
"""Largest share of what all details in a view may take for a ledger that is written anew."""
_ADDED_SHARE = 0.15
"""Largest share of it for a ledger that is added to others."""
_FULL_SHARE = 0.95
"""Largest share of it for all ledgers of a view: up to it unused room is filled; else all are rewritten."""
LEDGER_SLACK = 32
"""Counted tokens by which a ledger that a replay does not write may exceed the one before."""
_WORDS = 24
"""Minimal counted tokens of a ledger beside its constraints."""


def allowed_ledger_tokens(situation: Situation, stripped: Plan | None) -> int:
    """Counted tokens that the ledger of a plan may have; 0 if it would be too short.

    ``stripped`` is the plan without its ledger; if None, return the most that a ledger of any plan may have.
    """
    rules, tokens = situation.policy.ledger, situation.chain.tokens
    if not rules.is_written:
        return 0
    view = situation.budget.limit if stripped is None else view_tokens(stripped, tokens)
    standing = "" if stripped is None else stripped.ledger
    details = details_room(situation, view, standing)
    most = min(rules.tokens, int(_CONSTRAINTS * situation.budget.room)) - _size(situation, standing)
    needed = tokens_of_constraints(situation, stripped) if rules.constraints and most > details else 0
    room = max(details, min(most, needed))
    room = min(room, int((tokens.total if stripped is None else _cut_tokens(situation, stripped)) * _OF_CUT))
    return room if room >= _LEAST else 0


def lacks_room_for_constraints(situation: Situation) -> bool:
    """Whether the budget, not the policy, leaves too little room for the constraints in force."""
    rules, most = situation.policy.ledger, int(_CONSTRAINTS * situation.budget.room)
    return rules.constraints and 0 < most <= rules.tokens and most < tokens_of_constraints(situation)


def lacking_room(situation: Situation, stripped: Plan) -> int:
    """Counted tokens that constraints need of the ledger's room, and that the view leaves too few of."""
    room, left = allowed_ledger_tokens(situation, stripped), _left(situation, stripped)
    if room <= left or not situation.policy.ledger.constraints:
        return 0
    return max(min(room, tokens_of_constraints(situation, stripped)) - left, 0)


def _left(situation: Situation, stripped: Plan) -> int:
    """Counted tokens that a view without its ledger leaves of the budget.

    Where the last user message alone is over the budget, a view without a ledger would not fit either.
    """
    view, budget = view_tokens(stripped, situation.chain.tokens), situation.budget
    return budget.spare(view) if situation.last_user_exceeds_room else budget.share(1) - view


def details_room(situation: Situation, view: int, standing: str = "") -> int:
    """Counted tokens that the next ledger may have if constraints do not need more.

    ``view``: those of the view without it. ``standing``: the ledgers in it that stand.
    """
    most = _most_details(situation, view)
    if not standing:
        return int(_REWRITTEN_SHARE * most)
    return max(min(int(_ADDED_SHARE * most), most - _size(situation, standing)), 0)


def _most_details(situation: Situation, view: int) -> int:
    """Counted tokens that all ledgers in a view may have together if constraints do not need more.

    A cut by count may leave a view far below a large budget; then details do not outweigh what it shows.
    """
    rules, budget = situation.policy.ledger, situation.budget
    share = rules.share * min(budget.limit, max(_OF_VIEW * view, _LARGE))
    return max(int(share), min(rules.tokens, int(_DETAILS * budget.room)))


def _size(situation: Situation, standing: str) -> int:
    return situation.count(standing) if standing else 0


def tokens_of_constraints(situation: Situation, stripped: Plan | None = None) -> int:
    """Counted tokens of a ledger with every constraint in force, without what is only stated.

    Beside ledgers that stand in the plan ``stripped``, it needs only those that its view does not have.
    """
    if situation.unwritten:
        return situation.unwritten + LEDGER_SLACK
    is_added = stripped is not None and stripped.ledger
    rules = Source(situation, stripped).constraints if stripped and is_added else situation.constraints[0]
    texts = [rule.sentence.text for rule in rules if rule.sentence.strength >= BINDS]
    return tokens_of(texts, situation.count) + _WORDS if texts else 0


def notes_stand(situation: Situation) -> bool:
    """Whether the notes in force may stand: they leave room, it pays, and all that their ledgers say holds.

    A tool result in a ledger holds only while it is fresh, and what has become ephemeral is in no ledger, so
    where a policy has either no note stands.
    """
    plan, policy = situation.plan, situation.policy
    ephemeral = any(rule.class_ == "ephemeral" for rule in policy.retention)
    if (
        not plan.ledger
        or ephemeral
        or ToolRules(policy.tools).is_caching
        or lacks_room_for_constraints(situation)
    ):
        return False
    if situation.count(plan.ledger) > _FULL_SHARE * _most_details(situation, situation.view_tokens):
        return False
    return _standing_pays(situation) and not Source(situation, plan).is_outdated(plan.ledger)


def _standing_pays(situation: Situation) -> bool:
    """Whether keeping the notes in force costs less than rewriting them.

    The provider has them cached, but each more note has a frame of its own, which every request until the
    next epoch sends.
    """
    gaps, budget, policy = situation.plan.gaps, situation.budget, situation.policy
    words = {gap: gap.tokens - _size(situation, gap.ledger) for gap in gaps}
    if sum(words[gap] for before, gap in pairwise(gaps) if before.end == gap.start) > _BESIDE * budget.limit:
        return False
    prices = situation.conditions.prices
    share = _CACHED_SHARE if prices is None else prices.read_share
    requests = growth_per_epoch(budget, policy.stages) / max(situation.pace, 1.0)
    saved = (1 - share) * sum(gap.tokens for gap in gaps)
    return saved > share * requests * sum(words.values()) / len(gaps)


def add_ledger(situation: Situation, plan: Plan, most: int | None = None, *, fills: bool = False) -> Plan:
    """Return the plan with a ledger in its last note of what no other note's has, as the budget allows.

    ``most``: an upper bound of the counted tokens by which that note grows. ``fills``: whether details may
    also take what the view leaves unused below its goal, so that the next epoch comes no sooner than after a
    cut that ends at the goal.
    """
    stripped = strip_ledgers(plan, situation.count, situation.chain.dialect, plan.spans[:-1])
    room = fitting_ledger_tokens(situation, stripped)
    room = room if most is None else min(room, most)
    if room < _LEAST:
        return stripped
    unused, view = 0, view_tokens(stripped, situation.chain.tokens)
    if fills:
        goal = situation.budget.share(situation.policy.stages.target)
        full = int(_FULL_SHARE * _most_details(situation, view)) - _size(situation, stripped.ledger)
        most = min(goal - view, full, int(_cut_tokens(situation, stripped) * _OF_CUT))
        unused = max(most - room, 0)
    details = details_room(situation, view, stripped.ledger)
    return _with_ledger(situation, stripped, room + unused, details + unused)


def fitting_ledger_tokens(situation: Situation, stripped: Plan) -> int:
    """Return the most counted tokens that a plan's ledger may take; ``stripped`` is the plan without it."""
    if not stripped.gaps or not stripped.gaps[-1].note:
        return 0
    room = min(allowed_ledger_tokens(situation, stripped), _left(situation, stripped))
    return room if room >= _LEAST else 0


def _with_ledger(situation: Situation, stripped: Plan, room: int, details: int) -> Plan:
    """Return the plan with a ledger that lengthens its last note by at most ``room`` counted tokens.

    Up to ``details`` of them are for details.
    """
    count, chain = situation.count, situation.chain
    language = situation.language_before(len(chain))
    # Reserve room for the introductions of the ledger's parts.
    allowed = room - count(ledger_lines(("",), "", language)) - count(ledger_lines((), " ", language)) - 2
    last = best = stripped.gaps[-1]
    before = tokens_of_constraints(situation, stripped) if situation.policy.ledger.constraints else 0
    results = _fresh_results(situation, stripped, min(details, room - before), language)
    taken = count(results) if results else 0
    allowed, details = allowed - taken, details - taken
    source = Source(situation, stripped)
    for _ in range(_TRIES):
        facts = facts_of(source, allowed, details, results)
        if not facts and not results:
            break
        ledger = "\n".join(
            filter(None, (ledger_lines(facts.constraints, facts.identifiers, language), results))
        )
        made = gap_with_ledger(last, ledger, count, chain.dialect)
        excess = made.tokens - last.tokens - room
        if excess <= 0 and made.tokens > best.tokens:
            best = made
        if -_SLACK < excess <= 0 or (excess <= 0 and not facts.left_out):
            break
        allowed -= excess + (excess > 0)
    return Plan((*stripped.gaps[:-1], best), stripped.replacements)


def gap_with_ledger(gap: Gap, ledger: str, count: Count, dialect: Dialect) -> Gap:
    """Return the gap with this ledger in its note; without one if ``ledger`` is empty."""
    message = dialect.read(gap.note)
    text = without_ledger(message.text, gap.ledger) if gap.ledger else message.text
    text = with_ledger(text, ledger) if ledger else text
    note = dialect.note(text, message.role)
    return replace(gap, note=note, tokens=MESSAGE_TOKENS + count(text), ledger=ledger)


def strip_ledgers(plan: Plan, count: Count, dialect: Dialect, except_for: Container[Span] = ()) -> Plan:
    """Return the plan without a ledger in any note but those of the gaps ``except_for``."""
    gaps = (
        gap_with_ledger(gap, "", count, dialect) if gap.ledger and gap.span not in except_for else gap
        for gap in plan.gaps
    )
    return Plan(tuple(gaps), plan.replacements) if plan.ledger else plan


def _cut_tokens(situation: Situation, plan: Plan) -> int:
    """Counted tokens of the messages that a plan cuts, and of those it clips or clears what that saves."""
    tokens = situation.chain.tokens
    cut = sum(tokens.between(gap.start, gap.end) for gap in plan.gaps)
    return cut + sum(tokens[edit.position] - edit.tokens for edit in plan.replacements)
