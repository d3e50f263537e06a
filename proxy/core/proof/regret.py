"""Find earlier messages that a new message asks for again: regret, if they were cut.

No model is needed for that: a tool runs again with the same arguments, a file is read again, a user says the
same again. This also happens with messages that are still in the view, so both cases are reported. Keeps law
8 (O(new)): only the newest messages are searched, and of these only those with a common word are decoded.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES, Message
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.kinds import kind_of as kind_of_word
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan
from proxy.core.planning.situation import Situation
from proxy.core.proof.evidence import AskedAgain, Kind, Signal
from proxy.core.text.similarity import likeness
from proxy.core.tool_cache.cache import key_of

_MOST = 400
"""Most messages that are searched, the newest before the one that asks."""
_FURTHEST = 40
"""Most messages before a result that are searched for its call."""
_SAME = 0.85
"""Likeness from which a user's words count as said again, if all numbers in them are the same too."""
_LEAST_WORDS = 6
_WORD = re.compile(r"[\w./-]{4,}", re.ASCII)
_ANY_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\w*\d\w*")


class Regret(NamedTuple):
    """A message that was asked for again."""

    signal: Signal
    position: int
    is_cut: bool
    """Whether the view lacked it, all or in part."""


def regret_of(asking: Content, chain: Chain, plan: Plan, end: int) -> list[Regret]:
    """Return the messages before ``end`` that a message asks for again; ``plan`` says which were cut."""
    if asking.role != "user" or asking.result_of:
        calls = (_called_again(name, arguments, chain, plan, end) for _, name, arguments in asking.calls)
        return [found for found in calls if found is not None]
    text = asking.text
    if len(_ANY_WORD.findall(text)) < _LEAST_WORDS:
        return []
    numbers, size = {*_NUMBER.findall(text)}, len(text.encode(errors="replace"))
    word = max(_WORD.findall(text), key=len, default="").encode()
    for position, message in _newest(chain, end):
        if message.role != "user" or message.result_of:
            continue
        raw = chain.raws[position]
        if not len(raw) / 3 <= size <= 3 * len(raw) or word not in raw:
            continue
        earlier = chain.content(position).text
        if {*_NUMBER.findall(earlier)} == numbers and likeness(text, earlier) >= _SAME:
            return [Regret(Signal.SAID_AGAIN, position, not plan.shows(position))]
    return []


def _called_again(name: str, arguments: str, chain: Chain, plan: Plan, end: int) -> Regret | None:
    """The newest result of the same call, or of a call of the same tool on the same file."""
    key, files = key_of(name, arguments), _files_in(arguments)
    sought = files or {max(_WORD.findall(arguments) or [name], key=len)}
    words = [word.encode(errors="replace") for word in sought]
    for position, message in _newest(chain, end):
        for call_id in message.result_of:
            place = chain.caller(call_id, position, _FURTHEST)
            if place is None or not any(word in chain.raws[place] for word in words):
                continue
            calls = chain.content(place).calls
            call = next((each for each in calls if each[0] == call_id), None)
            if call is None or call[1] != name:
                continue
            if key_of(*call[1:]) == key:
                return Regret(Signal.RERUN, position, not plan.shows(position))
            if files & _files_in(call[2]):
                return Regret(Signal.REREAD, position, not plan.shows(position))
    return None


def _newest(chain: Chain, end: int) -> Iterator[tuple[int, Message]]:
    """The messages to search, the newest first, with their positions."""
    start = max(end - _MOST, 0)
    return zip(range(end - 1, start - 1, -1), reversed(chain.messages[start:end]), strict=True)


def _files_in(arguments: str) -> set[str]:
    """Paths and names of files in a text, which may be JSON."""
    return {word for word in _WORD.findall(arguments) if kind_of_word(word) in ("path", "file")}


# --- counting ---


def kind_of(situation: Situation, position: int) -> Kind:
    """The kind of a message."""
    role = situation.role(position)
    if role in TOOL_ROLES or situation.chain.messages[position].is_result:
        role = "result"
    elif role in HEAD_ROLES:
        role = "system"
    return Kind(role, situation.classes.of(situation.unit_at(position)))


def asked_again(situation: Situation, found: Iterable[Regret]) -> Counter[AskedAgain]:
    """Count what was asked for again."""
    return Counter(
        AskedAgain(each.signal, kind_of(situation, each.position), each.is_cut)
        for each in found
        # A program's output that was sent as a user's message: no user said it again.
        if each.signal is not Signal.SAID_AGAIN or situation.role(each.position) not in TOOL_ROLES
    )


def newly_cut(situation: Situation, before: Plan) -> Counter[Kind]:
    """Count the messages that the situation's plan cuts or edits and the plan ``before`` showed."""
    return Counter(kind_of(situation, place) for place in situation.plan.edited if before.shows(place))


def cut_texts(situation: Situation) -> Iterator[tuple[int, str]]:
    """Positions and texts of messages that a view lacks as a whole or in part, the newest first, lazily."""
    places = sorted(situation.plan.edited, reverse=True)
    return ((place, situation.content(place).countable()) for place in places)
