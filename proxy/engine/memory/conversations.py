"""Read from stored transcripts what was said in sessions and may be remembered."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import Session, path_to
from proxy.core.dialects.dialect import Dialect
from proxy.core.memory.utterances import Utterance, utterances_of
from proxy.core.planning.chain import Chain
from proxy.core.policy.policy import Policy
from proxy.ports import SessionKey, SessionStore, UnreadableRecord

_LINE_BYTES = 300
"""Estimated bytes of a line, apart from its text."""
_HASH = 32
"""Bytes of a chain hash."""
_BRANCHES = 8
"""Most branches of a session of which it is known how far they were read, those that were read last."""


class Conversation(NamedTuple):
    """What was said in one session, on the branch of its newest turn."""

    session: Session
    parents: Mapping[bytes, bytes]
    """The chain hashes of its messages on all branches, each with that of the message before it."""
    hashes: Sequence[bytes]
    """Chain hashes of the messages on the branch."""
    lines: Sequence[Utterance]
    exchanges: int
    other_branches: Sequence[Sequence[Utterance]] = ()
    """The lines on each of the other branches that were asked for, from their beginning."""

    def tip(self, before: bytes) -> bytes:
        """Return the tip of all that has been read once this is, where it had been read up to ``before``."""
        others = [each for each in _hashes_in(before) if each not in self.hashes]
        return b"".join([*self.hashes[-1:], *others][:_BRANCHES])

    def between(self, before: bytes, tip: bytes, since: float = 0.0) -> Sequence[Utterance]:
        """Return the lines said after ``since`` that lead to ``tip``, and not to ``before``."""
        new, found = self._up_to(tip) - self._up_to(before), list[Utterance]()
        for lines in (*self.other_branches, self.lines):
            found += [line for line in lines if line.at > since and line.message in new]
            new -= {line.message for line in lines}
        return found

    def _up_to(self, tip: bytes) -> set[bytes]:
        found = set[bytes]()
        for last in _hashes_in(tip):
            place = last
            while place in self.parents and place not in found:
                found.add(place)
                place = self.parents[place]
        return found


def branches_since(before: bytes, tip: bytes) -> list[bytes]:
    """Return the last messages of the branches of ``tip`` that are longer than in ``before``, or new."""
    known = _hashes_in(before)
    return [each for each in _hashes_in(tip) if each not in known]


def _hashes_in(tip: bytes) -> list[bytes]:
    return [tip[start : start + _HASH] for start in range(0, len(tip), _HASH)]


class Conversations:
    """Reads the conversations of stored sessions; what it caches counts against ``memory``."""

    def __init__(self, store: SessionStore, dialects: Mapping[str, Dialect], memory: CacheMemory) -> None:
        self.store = store
        self.dialects = dialects
        self._cached = Lru[tuple[SessionKey, float, str, frozenset[str]], Sequence[Utterance]](
            memory, lambda lines: sum(_LINE_BYTES + len(each.text) for each in lines)
        )
        """Lines of sessions, by session key, time of the last turn, the policy's digest and scope tags."""

    async def living(self, keys: Iterable[SessionKey]) -> set[SessionKey]:
        """Return the sessions that the store still has: others are deleted or have expired.

        What is cached of these is not to be told any more. A session whose record cannot be read counts as
        one of them. Raises StoreUnavailable.
        """

        async def is_living(key: SessionKey) -> bool:
            try:
                return await self.store.session(key) is not None
            except UnreadableRecord:
                return False

        asked = [*keys]
        living = await asyncio.gather(*map(is_living, asked))
        return {key for key, lives in zip(asked, living, strict=True) if lives}

    async def utterances_of(
        self, key: SessionKey, updated: float, policy: Policy, tags: frozenset[str]
    ) -> Sequence[Utterance]:
        """Return the lines of a session whose last turn has this time, as they were if it is gone since.

        ``tags`` are those of the memory for which it is read.
        """
        name = key, updated, policy.digest, tags
        lines = self._cached.get(name)
        if lines is None:
            said = await self.of(key, policy, tags)
            lines = said.lines if said is not None else ()
            self._cached.put(name, lines)
        return lines

    async def of(
        self, key: SessionKey, policy: Policy, tags: frozenset[str], others: Sequence[bytes] = ()
    ) -> Conversation | None:
        """Return a session's conversation; None if it is gone, or in a dialect that this release lacks.

        Its lines are those that were said in the memory with these ``tags``. The branches that
        lead to the messages ``others`` are read too. Raises StoreUnavailable.
        """
        stored = await self.store.history(key)
        session, nodes = stored.session, stored.nodes
        dialect = self.dialects.get(session.dialect) if session else None
        if session is None or dialect is None:
            return None
        served = {each.hash for each in await self.store.hidden(key)}
        stored_injection = await self.store.injection(key)

        def read() -> Conversation:
            # Up to the newest turn; if its answer broke off, up to the message before the answer.
            broken = [node for node in nodes.values() if not node.complete]
            cut = max(broken, key=lambda node: node.at, default=None)
            branch = path_to(nodes, cut.parent) if cut is not None else []
            if not branch or (session.tip and all(node.hash != session.tip for node in branch)):
                branch = path_to(nodes, session.tip)
            elsewhere = [dialect.read(raw).text for raw in session.head]
            if stored_injection is not None:
                injection = Injection(stored_injection)
                elsewhere += [*injection.memory.splitlines(), injection.text]
                elsewhere += [tool.result for tool in injection.tools]

            def lines_on(chain: Chain) -> list[Utterance]:
                path = [nodes[each] for each in chain.hashes]
                times, people = [node.at for node in path], [node.person for node in path]
                lines = utterances_of(
                    chain, times, policy.retention, people, elsewhere=elsewhere, served=served
                )
                return [line for line in lines if nodes[line.message].scope in tags]

            chain = Chain.from_nodes(branch, dialect)
            paths = [path_to(nodes, each) for each in others if each not in chain.hashes]
            other_branches = [lines_on(Chain.from_nodes(path, dialect)) for path in paths]
            # It holds no messages: models take long to read it, and results of tools may be large.
            parents = {node.hash: node.parent for node in nodes.values()}
            return Conversation(
                session, parents, chain.hashes, lines_on(chain), chain.exchanges, other_branches
            )

        return await asyncio.to_thread(read)
