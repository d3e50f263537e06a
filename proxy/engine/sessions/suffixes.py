"""Find the session of a request that holds only its newest messages, and index where later ones may go on.

A client may drop its oldest messages by itself. So the first positions of a session are indexed by the two
messages that stand there, and a request whose session is not found is looked up by its own first two
(docs/store.md). It belongs to a session only if its messages then have that session's chain hashes.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.conversation.messages import Message, suffix_hash
from proxy.core.conversation.records import Suffix
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Caller, Naming
from proxy.engine.intake.reader import Reader
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import EpochLog, SessionState
from proxy.errors import StoreUnavailable
from proxy.ports import SUFFIXES, TurnStore

_PLACES = 8
"""Places in its session from which a request may go on that has lost its oldest messages."""
_LEAST_ANSWERS = 2
"""Least answers by which such a request is found where no header names its session: one, such as "OK", tells
nothing, and a conversation of one answer may have had a session that has ended."""


class Placement(NamedTuple):
    """A request's messages at their place in a session."""

    history: History
    session: SessionState
    log: EpochLog | None
    """The epochs of the request's lane; None where these cannot be known."""

    def follows_to(self, newest: int) -> int:
        """Return the position of the last message that the session has, up to that of the ``newest`` answer.

        It is -1 where the session has none.
        """
        known = self.session.found.known
        return -1 if known is None else min(self.history.hashes.last_place(known), newest)


@dataclass(frozen=True)
class Suffixes:
    """Places requests in their sessions whose clients have dropped the messages before."""

    recognition: Recognition
    reader: Reader
    store: TurnStore
    naming: Naming

    async def place(self, caller: Caller, found: Placement, lane: str) -> Placement:
        """Return a request where the most of its messages stand: as it was ``found``, or amid a session.

        What begins like some session may be the newest messages of another, or of the same.
        """
        entries, session = found.history.entries, found.session
        places = reversed(range(len(entries) - 1))  # a request has its newest answer near its end
        newest = next((place for place in places if entries[place].message.role == "assistant"), 0)
        depth, known = found.follows_to(newest), session.found.known
        # A session without a header may be found by the newest answer while that is on its way to the store.
        is_found_by_it = 0 < session.place < len(entries) - newest
        if session.is_unmatched or (known is not None and depth < newest and not is_found_by_it):
            amid = await self._find(caller, found.history, lane, newest)
            if amid is not None and amid.follows_to(newest) > depth:
                return amid
        return found

    async def _find(self, caller: Caller, history: History, lane: str, newest: int) -> Placement | None:
        """Return the request in the one session of which it holds the newest messages; None if there is none.

        The place from which most of them follow counts, up to the newest answer, and of equals the last one:
        short messages stand in several.
        """
        if len(history.entries) <= 2:
            return None
        first, second = (entry.message.identity for entry in history.entries[:2])
        try:
            noted = await self.store.suffixes(self._tag(caller, history, first, second))
        except StoreUnavailable:
            return None

        async def placement(place: Suffix) -> Placement:
            read = replace(await self.reader.read(history.body, place.before), suffix=place)
            return Placement(read, *await self.recognition.recognise(caller, read, lane, needs_store=False))

        every = await asyncio.gather(*map(placement, noted))
        roles = [entry.message.role for entry in history.entries]
        fitting = [each for each in every if caller.key is not None or _goes_on(each.session, roles)]
        most = max([each.follows_to(newest) for each in fitting], default=-1)
        best = [each for each in fitting if each.follows_to(newest) == most]
        # Of several sessions nobody can tell which is meant (law 6); nor where others may have pushed it out.
        candidates = every if len(every) == SUFFIXES else best
        if most < 0 or len({each.session.key for each in candidates}) > 1:
            return None
        return max(best, key=lambda each: each.history.suffix.length)

    def of_turn(
        self, caller: Caller, session: SessionState, history: History, answer: Message | None
    ) -> dict[str, Suffix]:
        """Return the places from which later requests may go on, by the tags under which they are noted.

        They are the first ones after the beginning, since a client that drops its oldest messages drops few
        at a time. Those of a whole conversation are noted as they come.
        """
        known, begins = session.found.known, history.suffix
        first = 0 if known is None or begins.length else history.hashes.last_place(known) + 1
        if first > _PLACES + 1:
            return {}
        messages = [entry.message for entry in history.entries[: _PLACES + 2]]
        if answer is not None and len(messages) == len(history.entries):
            messages.append(answer)
        return {
            self._tag(caller, history, messages[place].identity, messages[place + 1].identity): Suffix(
                session.key.tag,
                history.hashes[place - 1],
                begins.length + place,
                begins.exchanges + sum(message.is_final for message in messages[:place]),
            )
            for place in range(max(first - 1, 1), min(len(messages) - 1, _PLACES + 1))
        }

    def _tag(self, caller: Caller, history: History, first: bytes, second: bytes) -> str:
        owner = f"{caller.key.tag}.{caller.key.sid}" if caller.key else history.body.person
        return self.naming.tag(caller.tenant, suffix_hash(owner, first, second))


def _goes_on(session: SessionState, roles: list[str]) -> bool:
    """Whether messages placed in a session that no header names show that they are the newest ones of it.

    Several answers must, and none may be newer than those: what only begins like some messages of the session
    is another conversation (law 6).
    """
    end = len(roles) - session.place
    return roles[:end].count("assistant") >= _LEAST_ANSWERS and "assistant" not in roles[end:-1]
