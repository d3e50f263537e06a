"""Find earlier messages that a new message asks for again: regret, if they were cut.

No model is needed for that: a tool runs again with the same arguments, a file is read again, a user says the
same again. This also happens with messages that are still in the view, so both cases are reported. Keeps law
8 (O(new)): only the newest messages of a turn ask, only the newest before them are searched, and of these
only those with a common word are decoded.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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

_ASKING = 8
"""Most user messages of a turn, the newest, that are taken as asking for something."""
_MOST = 400
"""Most messages that are searched: the newest."""
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


class _Asking(NamedTuple):
    """A user's message that may say again what was said before."""

    text: str
    numbers: set[str]
    size: int
    """Bytes of the text."""
    word: bytes
    """The longest word."""

    @classmethod
    def of(cls, text: str) -> "_Asking":
        word = max(_WORD.findall(text), key=len, default="")
        return cls(text, {*_NUMBER.findall(text)}, len(text.encode(errors="replace")), word.encode())

    def may_repeat(self, raw: bytes) -> bool:
        """Whether an earlier message, not decoded, may say the same."""
        return len(raw) / 3 <= self.size <= 3 * len(raw) and self.word in raw

    def repeats(self, earlier: "_Asking") -> bool:
        return self.numbers == earlier.numbers and likeness(self.text, earlier.text) >= _SAME


def said_again(new: Sequence[int], chain: Chain, plan: Plan) -> list[Regret]:
    """Return the messages that users say again in a turn; ``plan`` says which were cut.

    ``new`` are the positions of the turn's user messages, in order. Only the newest are what a person asks
    now: a history that is seen for the first time also brings those asked long ago.
    """
    asking, sought, found = new[-_ASKING:], list[_Asking](), list[Regret]()
    for position, message in _newest(chain, asking[-1] + 1) if asking else ():
        if message.role != "user" or message.result_of:
            continue
        is_asking, raw = position in asking, chain.raws[position]
        alike = [each for each in sought if each.may_repeat(raw)]
        if not (is_asking or alike):
            continue
        said = _Asking.of(chain.content(position).text)
        for each in alike:
            if each.repeats(said):
                found.append(Regret(Signal.SAID_AGAIN, position, not plan.shows(position)))
                sought.remove(each)
        if is_asking and len(_ANY_WORD.findall(said.text)) >= _LEAST_WORDS:
            sought.append(said)
    return found


def called_again(answer: Content, chain: Chain, plan: Plan, end: int) -> list[Regret]:
    """Return the results before ``end`` that an answer asks for again; ``plan`` says which were cut."""
    calls = (_called_again(name, arguments, chain, plan, end) for _, name, arguments in answer.calls)
    return [found for found in calls if found is not None]


def _called_again(name: str, arguments: str, chain: Chain, plan: Plan, end: int) -> Regret | None:
    """The newest result of the same call, or of a call of the same tool on the same file."""
    key, files = key_of(name, arguments), _files_in(arguments)
    sought = files or {max(_WORD.findall(arguments) or [name], key=len)}
    words = [word.encode(errors="replace") for word in sought]
    for position, message in _newest(chain, end):
        for call_id in message.result_of:
            place = chain.call_position(call_id, position, _FURTHEST)
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
    return Counter(kind_of(situation, place) for place in situation.plan.edited - before.edited)


def cut_texts(situation: Situation) -> Iterator[tuple[int, str]]:
    """Positions and texts of messages that a view lacks as a whole or in part, the newest first, lazily."""
    places = sorted(situation.plan.edited, reverse=True)
    return ((place, situation.content(place).countable()) for place in places)
