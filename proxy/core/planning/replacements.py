"""Messages that are shortened: old tool results and pictures are cleared, others are clipped.

Which results are cleared, and why, is in docs/policies.md ("Old tool results go before messages do"). A
placeholder is a pure function of the result and of the reason (law 3).

A first user message that takes more than its share of the room is clipped when an epoch begins. Otherwise
clipping is the last resort, if nothing is left to cut and the view still exceeds its budget (law 4). The
order is: the first user message, if its protection had to yield; tool results, the largest most; user
messages except the last; results that the model has still to answer, which keep at least half of what
the budget has room for; and last, the pictures in results, the oldest first. Pictures of a user message go
first where they crowd out its words. Assistant messages are never clipped (law 2). Head and tail of a text
are kept, cut between code points.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import TOOL_ROLES, canonical_arguments
from proxy.core.dialects.dialect import Content, Size
from proxy.core.formats.json import dumps
from proxy.core.planning.plan import Plan, Replacement, view_tokens
from proxy.core.planning.situation import FIRST_USER, FIRST_USER_LEAST, FREE, Count, Situation
from proxy.core.text.lexicon.words import UNCHANGED
from proxy.core.tool_cache.cache import ToolRules
from proxy.core.tool_cache.derive import is_error, speaks_of_error, text_of

CLEARED, REPEATED, SUPERSEDED = "cleared", "repeated", "superseded"
_CLEAR_AFTER = 3
"""Number of newest results that are not cleared, for tools without a rule."""
_LEAST_SAVED = 50
"""Counted tokens that a placeholder must save."""
_TAIL = 300
"""Characters kept of the end of an error."""
_SHORT = 300
"""Maximal characters of a result that only says that nothing changed."""
_LOOKED_AT = 2_000
"""Characters at a result's end that are searched for an error."""
_WHY = {
    CLEARED: "cleared",
    REPEATED: "left out: the same result came again later",
    SUPERSEDED: "left out: the same call was made again later",
}


@dataclass(frozen=True, slots=True)
class _Result:
    """A message of the view with tool results, each of which answers a call in the same unit."""

    unit: int
    position: int
    calls: Sequence[tuple[str, bytes]]
    """Tool and normalised arguments of the call that each result answers."""
    texts: Sequence[str]
    is_text: bool
    """Whether the results are nothing but text, so that equal texts are equal results."""
    newer: int
    """Number of results after it."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """A replacement that may be made: a cleared result or picture, or a clipped first user message."""

    unit: int
    edit: Replacement
    saves: int
    needs_note: bool
    """Whether the view must have a note, whose ledger carries what later turns may need of it."""

    @classmethod
    def if_worthwhile(
        cls, situation: Situation, unit: int, edit: Replacement, *, needs_note: bool
    ) -> "Iterator[Clearing]":
        """Yield the clearing with this edit, unless that saves little or has more bytes than the original."""
        saves = situation.size_at(edit.position) - edit.tokens
        if saves >= _LEAST_SAVED and len(edit.raw) <= len(situation.chain.raws[edit.position]):
            yield cls(unit, edit, saves, needs_note)


def clearings(situation: Situation) -> list[Clearing]:
    """Return the tool results that may be cleared, in order; none if they would free too little in total."""
    policy = situation.policy
    if not policy.tool_results.clear_first:
        return []
    results, rules = _results(situation), ToolRules(policy.tools)
    why = _outdated(results)
    cleared = {edit.position for edit in situation.plan.replacements if edit.why}
    found: list[Clearing] = []
    for result in sorted(results, key=lambda each: (each.position not in why, each.position)):
        reason, ruled = why.get(result.position, CLEARED), [rules.of(tool) for tool, _ in result.calls]
        newest = max(_CLEAR_AFTER if rule is None else rule.clear_after for rule in ruled)
        is_new = reason == CLEARED and result.newer < newest
        if is_new or result.position in cleared or situation.protection[result.unit] != FREE:
            continue
        edit, needs_note = _placeholder(situation, result, reason), policy.ledger.is_written
        found += Clearing.if_worthwhile(situation, result.unit, edit, needs_note=needs_note)
    enough = policy.tool_results.clear_at_least * situation.budget.room
    return found if sum(each.saves for each in found) >= enough else []


def _outdated(results: Sequence[_Result]) -> dict[int, str]:
    """Return, by position, why results say nothing that a later one does not.

    A later result of the same call supersedes it, unless that failed, or only says that nothing has changed.
    """
    times = Counter(call for result in results for call in result.calls)
    tells = dict[tuple[str, bytes], bool]()
    """By call, whether its newest result is neither an error nor a remark that nothing changed."""
    texts, why = set[str](), dict[int, str]()
    for result in reversed(results):
        again = [result.is_text and text in texts for text in result.texts]
        stale = list[bool]()
        for call, text in zip(result.calls, result.texts, strict=True):
            stale.append(call in tells and (tells[call] or is_error(text)))
            if times[call] > 1 and not stale[-1]:
                is_reference = len(text) <= _SHORT and UNCHANGED.search(text)
                tells[call] = not (is_reference or is_error(text))
        if all(again):
            why[result.position] = REPEATED
        elif all(came or is_stale for came, is_stale in zip(again, stale, strict=True)):
            why[result.position] = SUPERSEDED
        texts.update(result.texts if result.is_text else ())
    return why


def _results(situation: Situation) -> list[_Result]:
    """Return the messages of the view whose tool results answer calls in the same unit, in order."""
    found, newer = list[_Result](), 0
    for index in reversed(situation.view_units):
        unit = situation.units[index]
        after = {place: situation.content(place) for place in range(unit.start + 1, unit.end)}
        if not after or not all(each.result_of or each.role in TOOL_ROLES for each in after.values()):
            continue  # an irregular unit is left unchanged
        calls = {
            call: (name, dumps(canonical_arguments(arguments, keeps_empty=True)))
            for call, name, arguments in situation.content(unit.start).calls
        }
        for place in reversed(after):
            call_ids = after[place].result_of
            if call_ids and calls.keys() >= {*call_ids}:
                pieces = after[place].pieces()[: len(call_ids)]
                texts, is_text = [piece.text for piece in pieces], None not in map(text_of, pieces)
                answered = [calls[call_id] for call_id in call_ids]
                found.append(_Result(index, place, answered, texts, is_text, newer))
            newer += len(call_ids)
    return found[::-1]


def _placeholder(situation: Situation, result: _Result, reason: str) -> Replacement:
    is_lost = reason != REPEATED and situation.classes.may_be_quoted(result.position)
    texts: list[str] = []
    for (tool, _), result_text in zip(result.calls, result.texts, strict=True):
        digest = hashlib.sha256(result_text.encode(errors="surrogatepass")).hexdigest()[:8]
        text = f"[Result of {tool} {_WHY[reason]} ({len(result_text):,} characters, {digest})]"
        tail = result_text[-_LOOKED_AT:]
        if is_lost and speaks_of_error(tail):
            text += f"\n… {tail[-_TAIL:].lstrip()}"
        texts.append(text)
    new = situation.content(result.position).with_results(texts)
    return _replacement(result.position, new, situation.count, reason)


def _replacement(place: int, new: Content, count: Count, why: str = "") -> Replacement:
    return Replacement(place, new.written(), MESSAGE_TOKENS + count(new.countable()), why)


# --- pictures: a line of text replaces old ones ---


def picture_clearings(situation: Situation) -> Iterator[Clearing]:
    """Yield user messages whose pictures may be cleared, oldest first; their text stays.

    The last user message, protected units and assistant messages (law 2) are left alone. The line of text
    that replaces a picture is a pure function of the picture (law 3).
    """
    chain, edited = situation.chain, {edit.position for edit in situation.plan.replacements}
    may_hold_pictures = chain.dialect.may_hold_pictures
    for run in situation.plan.uncut(len(chain)):
        for place, raw in enumerate(chain.raws[run.start : run.stop], run.start):
            if chain.messages[place].role != "user" or place in edited or not may_hold_pictures(raw):
                continue
            index = situation.unit_at(place)
            if situation.protection[index] != FREE:
                continue
            new = situation.content(place).without_pictures(_picture_line)
            if new is not None:
                edit = _replacement(place, new, situation.count, CLEARED)
                yield from Clearing.if_worthwhile(situation, index, edit, needs_note=False)


def _picture_line(size: Size | None) -> str:
    return f"[image, {size[0]}x{size[1]}, cleared]" if size else "[image, cleared]"


# --- clipping ---


def first_user_clips(situation: Situation) -> Iterator[Clearing]:
    """Yield the clips of first user messages that exceed their share (``keep.first_user_share``).

    The last user message, and one protected for another reason, are not clipped.
    """
    budget, keep = situation.budget, situation.policy.keep
    if budget.tokens is None:
        return
    most = max(budget.share(keep.first_user_share), FIRST_USER_LEAST)
    allowed = max(budget.share(keep.first_user_clipped), FIRST_USER_LEAST)
    for index in situation.first_users:
        first, is_protected = situation.units[index].start, situation.protection.get(index) == FIRST_USER
        if first == situation.chain.last_user or not is_protected or situation.size_at(first) <= most:
            continue
        edit = clip_of(situation, first, allowed)
        if edit is not None and edit.tokens <= most:  # else a file in it is too large, and its words may stay
            yield from Clearing.if_worthwhile(situation, index, edit, needs_note=True)


_MARK = "\n[… {n} characters left out …]\n"
_HEAD_SHARE = 0.6
_ROUNDS = 12


def clip_view(situation: Situation, plan: Plan, yielded: int, set_aside: int) -> Plan:
    """Return the plan with clips until its view fits the budget or nothing is left to clip.

    ``yielded``: the firmest protection that had to yield. ``set_aside``: counted tokens by which the view
    will still grow.
    """
    budget, chain, view = situation.budget, situation.chain, view_tokens(plan, situation.chain.tokens)
    enough = max(budget.share(situation.policy.stages.trim) - set_aside, 0)
    if view <= budget.share(1):
        return plan
    sizes = {place: chain.tokens[place] for run in plan.uncut(len(chain)) for place in run}
    sizes |= {edit.position: edit.tokens for edit in plan.replacements}
    edits = {edit.position: edit for edit in plan.replacements}
    open_at = chain.open_from
    roles = {place: situation.role(place) for place in sorted(sizes) if place != chain.last_user}
    results = [place for place, role in roles.items() if role in TOOL_ROLES]
    asks = [place for place, role in roles.items() if role == "user"]
    groups: list[tuple[list[int], int | None]] = [  # with the least tokens that each message keeps
        (asks[:1] if yielded >= FIRST_USER else [], FIRST_USER_LEAST),
        ([place for place in results if place < open_at], 0),
        (asks, 0),
        ([place for place in results if place >= open_at], None),  # half of what the budget has room for
    ]
    for group, kept in groups[-1:] if situation.last_user_exceeds_room else groups:
        if view <= enough:
            break
        standing = [sizes[place] for place in group]
        least = _level(standing, view - budget.share(1)) // 2 if kept is None else kept
        most = max(_level(standing, view - enough), least)
        for place in (place for place in group if sizes[place] > most):
            edit = clip_of(situation, place, most)
            if edit is not None and edit.tokens < sizes[place] and len(edit.raw) <= len(chain.raws[place]):
                edits[place] = edit
                view -= sizes[place] - edit.tokens
                sizes[place] = edit.tokens
    if not situation.last_user_exceeds_room:
        _clear_pictures(situation, edits, results, view - budget.share(1))
    return Plan(plan.gaps, tuple(edits[place] for place in sorted(edits)))


def _clear_pictures(
    situation: Situation, edits: dict[int, Replacement], results: Sequence[int], excess: int
) -> None:
    """Add edits that clear pictures in ``results``, the oldest first, until they free ``excess`` tokens."""
    chain = situation.chain
    for place in results:
        if excess <= 0:
            break
        raw = edits[place].raw if place in edits else chain.raws[place]
        left = chain.dialect.read(raw).without_pictures(_picture_line)
        if left is not None:
            size = edits[place].tokens if place in edits else chain.tokens[place]
            edits[place] = _replacement(place, left, situation.count)
            excess -= size - edits[place].tokens


def _level(sizes: Sequence[int], excess: int) -> int:
    """Return the largest size that each may keep so that together they give up ``excess``."""
    left = max(sum(sizes) - excess, 0)
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def clip_of(situation: Situation, place: int, allowed: int) -> Replacement | None:
    """Return a message within about ``allowed`` counted tokens; None if it has nothing to shorten.

    Pictures of a user message go first if they would take more than half of that; those of a result go last.
    Otherwise they stay, because a ledger can repeat words but no picture.
    """
    chain, content, tokens = situation.chain, situation.content(place), situation.chain.tokens[place]
    if situation.role(place) == "user" and chain.dialect.may_hold_pictures(chain.raws[place]):
        is_crowded = 2 * (tokens - situation.count(content.countable())) > allowed
        bare = content.without_pictures(_picture_line) if is_crowded else None
        if bare is not None:
            edit = _replacement(place, bare, situation.count)
            if edit.tokens <= allowed:
                return edit
            content, tokens = bare, edit.tokens
    found = clip(content, tokens, allowed, situation.count)
    return None if found is None else Replacement(place, *found)


def clip(message: Content, tokens: int, allowed: int, count: Count) -> tuple[bytes, int] | None:
    """Clip the texts of a message, the longest first, from ``tokens`` to about ``allowed`` counted tokens.

    Returns the new bytes and their counted tokens; None if there is no text to clip.
    """
    exact = message.exact
    texts, whole = exact.texts(), exact.countable()
    is_one_text = texts == [whole]
    sizes = {place: count(text) for place, text in enumerate(texts) if text}
    if not sizes:
        return None
    beside = max(tokens - sum(sizes.values()), MESSAGE_TOKENS)
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        excess = beside + sum(sizes.values()) - allowed
        if excess <= 0:
            break
        left = max(sizes[place] - excess, 1)
        texts[place], sizes[place] = _shorten(texts[place], sizes[place], left, count)
    clipped = exact.with_texts(texts)
    if is_one_text:
        return clipped.written(), beside + sum(sizes.values())
    return clipped.written(), tokens - count(whole) + count(clipped.countable())  # a token may span two texts


def _shorten(text: str, whole: int, allowed: int, count: Count) -> tuple[str, int]:
    """Return head and tail of ``text`` within ``allowed`` tokens and the new size; at least the mark."""
    keep = int(len(text) * min(allowed / max(whole, 1), 1.0))
    for _ in range(_ROUNDS):
        head = int(keep * _HEAD_SHARE)
        tail = keep - head
        clipped = text[:head] + _MARK.format(n=len(text) - keep) + text[len(text) - tail :]
        size = count(clipped)
        if size <= allowed or keep == 0:
            return clipped, size
        keep = int(keep * min(allowed / size, 0.95)) if size < 4 * allowed else keep // 4
    mark = _MARK.format(n=len(text)).strip()
    return mark, count(mark)
