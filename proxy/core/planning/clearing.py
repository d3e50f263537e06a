"""Tool results in history: which old ones leave a placeholder in their place, and what it says.

Most of an agent's tokens are tool results, and most of them are read once. So results go before messages do:
the call stays, and its result says what was there. First what is told again further down (the same result,
or a later result of the same call), then the oldest, until the goal is reached.

The newest results stay, by policy (``tools.clear_after``). A placeholder is a pure function of the result and
of why it went (law 3); the original stays in the transcript (law 5), and what later turns may need of it is
the ledger's business.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.identity import exact_arguments
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.dialects.dialect import Size
from proxy.core.formats.json import dumps
from proxy.core.planning.plan import Replacement
from proxy.core.planning.situation import FREE, Situation
from proxy.core.policy.policy import Policy
from proxy.core.tool_cache.cache import Rules
from proxy.core.tool_cache.errors import speaks_of_error

CLEARED, REPEATED, SUPERSEDED = "cleared", "repeated", "superseded"
CLEAR_AFTER = 3
"""Newer results that keep the result of a tool without a rule from being cleared."""
LEAST_SAVED = 50
"""Counted tokens that a placeholder must save."""
_TAIL = 300
"""Characters that are kept of the end of an error."""
_LOOKED_AT = 2_000
_WHY = {
    CLEARED: "cleared",
    REPEATED: "left out: the same result came again later",
    SUPERSEDED: "left out: the same call was made again later",
}


@dataclass(frozen=True, slots=True)
class _Result:
    """One tool result of the view."""

    unit: int
    position: int
    tool: str
    arguments: bytes
    """The same for arguments that mean the same."""
    text: str
    newer: int
    """Results after it."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """What may go out as a placeholder."""

    unit: int
    edit: Replacement
    saves: int
    """Counted tokens."""
    is_told: bool = False
    """Whether its placeholder says all that is to be said, so that no note need stand for it."""


def clearings(situation: Situation) -> list[Clearing]:
    """What may be cleared, in the order in which it goes; nothing where it would free too little."""
    rules = situation.policy.tool_results
    if not rules.clear_first:
        return []
    found = list(_clearings(situation))
    enough = rules.clear_at_least * situation.budget.room
    return found if sum(each.saves for each in found) >= enough else []


def _clearings(situation: Situation) -> Iterator[Clearing]:
    results = _results(situation)
    why = _told_again(results)
    settled = {edit.position for edit in situation.plan.replacements if edit.why}
    for result in sorted(results, key=lambda each: (each.position not in why, each.position)):
        reason = why.get(result.position, CLEARED)
        is_new = reason == CLEARED and result.newer < _clear_after(situation.policy, result.tool)
        if is_new or result.position in settled or situation.protection[result.unit] != FREE:
            continue
        edit = _placeholder(situation, result, reason)
        saves = situation.size_at(result.position) - edit.tokens
        if saves >= LEAST_SAVED and len(edit.raw) <= len(situation.chain.raws[result.position]):
            yield Clearing(result.unit, edit, saves)


def _results(situation: Situation) -> list[_Result]:
    """The tool results of the view that answer a call in their own unit, in order."""
    messages, found = situation.chain.messages, list[tuple[int, int]]()
    for index in situation.standing:
        unit = situation.units[index]
        after = range(unit.start + 1, unit.end)
        if all(messages[place].role in TOOL_ROLES for place in after):  # an odd unit goes out as it came
            found += [(index, place) for place in after]
    calls = {index: _calls(situation, index) for index, _ in found}
    return [
        _Result(index, place, *call, situation.content(place).text, len(found) - number)
        for number, (index, place) in enumerate(found, 1)
        if (call := calls[index].get(messages[place].answers or "")) is not None
    ]


def _calls(situation: Situation, index: int) -> dict[str, tuple[str, bytes]]:
    """Tool and arguments by call id of the unit's assistant message."""
    caller = situation.content(situation.units[index].start)
    return {call: (name, dumps(exact_arguments(arguments))) for call, name, arguments in caller.tool_calls()}


def _told_again(results: Sequence[_Result]) -> dict[int, str]:
    """Positions of results that a newer one repeats, or takes the place of, and which of the two."""
    texts, calls, why = set[str](), set[tuple[str, bytes]](), dict[int, str]()
    for result in reversed(results):
        call = (result.tool, result.arguments)
        if result.text in texts:
            why[result.position] = REPEATED
        elif call in calls:
            why[result.position] = SUPERSEDED
        texts.add(result.text)
        calls.add(call)
    return why


def _clear_after(policy: Policy, tool: str) -> int:
    rule = Rules(policy.tools).of(tool)
    return CLEAR_AFTER if rule is None else rule.clear_after


def _placeholder(situation: Situation, result: _Result, reason: str) -> Replacement:
    tells = situation.classes.may_be_quoted(result.position)
    new = situation.content(result.position).with_text(_text(result, reason, tells=tells))
    size = MESSAGE_TOKENS + situation.count(new.countable())
    return Replacement(result.position, new.written(), size, reason)


def _text(result: _Result, reason: str, *, tells: bool) -> str:
    digest = hashlib.sha256(result.text.encode(errors="surrogatepass")).hexdigest()[:8]
    told = f"[Result of {result.tool} {_WHY[reason]} ({len(result.text):,} characters, {digest})]"
    tail = result.text[-_LOOKED_AT:]
    is_lost = tells and reason != REPEATED and speaks_of_error(tail)
    return f"{told}\n… {tail[-_TAIL:].lstrip()}" if is_lost else told


# --- pictures: old ones leave a line of text in their place ---


def picture_clearings(situation: Situation) -> Iterator[Clearing]:
    """The user messages of which the pictures may be cleared, oldest first; what they say beside them stays.

    Never the last user message, nor what is protected, nor an assistant's message (law 2). The line is a pure
    function of the picture (law 3).
    """
    chain, settled = situation.chain, {edit.position for edit in situation.plan.replacements}
    may_hold_pictures = chain.dialect.may_hold_pictures
    for run in situation.plan.kept(len(chain)):
        for place, raw in enumerate(chain.raws[run.start : run.stop], run.start):
            if not may_hold_pictures(raw) or chain.messages[place].role != "user" or place in settled:
                continue
            index = situation.unit_at(place)
            if situation.protection.get(index) != FREE:  # a late result may have joined it to what is cut
                continue
            new = situation.content(place).without_pictures(_line)
            if new is None:
                continue
            tokens = MESSAGE_TOKENS + situation.count(new.countable())
            edit = Replacement(place, new.written(), tokens, CLEARED)
            saves = situation.size_at(place) - tokens
            if saves >= LEAST_SAVED and len(edit.raw) <= len(raw):
                yield Clearing(index, edit, saves, is_told=True)


def _line(size: Size | None) -> str:
    return f"[image, {size[0]}x{size[1]}, cleared]" if size else "[image, cleared]"
