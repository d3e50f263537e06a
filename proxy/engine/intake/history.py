"""From a request's bytes to its chain: who said what, where it stands, and what it costs.

Keeps law 8 (O(new)): what was learned of a message's bytes is remembered in this process under a fast hash of
them, so a turn decodes, identifies and counts only what it brings.
"""

import asyncio
import secrets
from collections.abc import Generator, Mapping, Sequence
from sys import getsizeof
from typing import Self

import msgspec
import xxhash
from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.budget.budget import MESSAGE_TOKENS, REQUEST_TOKENS
from proxy.core.conversation.identity import chain_of, joint, read_message, root
from proxy.core.conversation.injection import Injection
from proxy.core.conversation.messages import HEAD_ROLES, Message
from proxy.core.conversation.records import HiddenCalls, Joint, outgoing_slices
from proxy.core.dialects.dialect import Dialect
from proxy.core.dialects.wire import Body
from proxy.core.persistent import Grown, Sizes, grown
from proxy.core.planning.chain import Chain
from proxy.engine.intake.known import NAME, Known, Placed, nothing_of
from proxy.ports import TokenCounter

_KNOWN_BYTES = 256
"""What a message is reckoned at beside its texts."""
_IMAGE_BYTES = 4096
"""What the tokens of one message's images are reckoned at."""
_MODELS = 8
"""Models for which the tokens of one message's images are remembered."""
PIECE = 500
"""Messages that are read, or counted, before others have their turn on the event loop: some 5 ms."""


class History(msgspec.Struct, frozen=True):
    """A request's messages, placed but perhaps not counted yet."""

    body: Body
    model: str
    head: tuple[bytes, ...]
    """The leading system and developer messages."""
    raws: Grown[bytes]
    known: Grown[Known]
    root: bytes
    """h₀ of the chain."""
    hashes: Grown[bytes]
    counted: Chain
    """What its chain begins with, as it was counted for this model before."""
    exchanges: int = 0
    """Final answers among its messages."""
    known_head: tuple[Known, ...] = ()
    new: Sequence[Known] = ()
    """The messages after these."""
    hidden: Mapping[int, HiddenCalls] = {}
    """What goes out in the place of our answers in which we have answered calls, by position."""
    injection: Injection | None = None
    """What was handed in for the session: it goes out between the head and the chain."""

    def completed(self, known: Mapping[bytes, HiddenCalls], injection: Injection | None) -> Self:
        """The same with what was handed in, and what of all that is ``known`` was hidden in its answers."""
        if not known and injection is None:
            return self
        hashes = self.hashes if known else ()
        places = {place: known[each] for place, each in enumerate(hashes) if each in known}
        return replace(self, hidden=places, injection=injection)

    @property
    def said_in_place(self) -> Mapping[bytes, Sequence[bytes]]:
        """The messages that stand upstream for one of the client's, by its chain hash."""
        return {hidden.hash: hidden.messages for hidden in self.hidden.values()}

    @property
    def outgoing(self) -> Sequence[bytes]:
        """The messages as they go out: several are one slice, with commas between them."""
        return outgoing_slices(self.raws, self.hashes, self.said_in_place)

    @property
    def prelude(self) -> Sequence[bytes]:
        """What was handed in, as messages that go out before these."""
        return self.injection.messages(self.counted.dialect) if self.injection else ()

    @property
    def tip(self) -> bytes:
        """The chain hash after its last message."""
        return self.hashes[-1] if self.hashes else self.root

    @property
    def first_user(self) -> bytes:
        """Identity of the first user message (of the first message, where there is none)."""
        for entry in self.known:
            if entry.message.role == "user":
                return entry.message.identity
        return self.known[0].message.identity if self.known else b""

    def joint(self, answer: bytes, end: int) -> Joint | None:
        """What names an answer (its identity) to the messages before number ``end`` by its place alone.

        None where no user message stands between it and the answer before.
        """
        start, said = end, -1
        while start and (role := self.known[start - 1].message.role) != "assistant":
            start -= 1
            if role == "user" and said < 0:
                said = start
        if said < 0:
            return None
        return Joint(joint(self.hashes[start - 1] if start else self.root, answer), self.hashes[said])

    def joint_at(self, place: int) -> Joint | None:
        """The same of an answer that stands in the history; None where that message is none."""
        message = self.known[place].message
        return self.joint(message.identity, place) if message.role == "assistant" else None

    def joints(self, most: int) -> tuple[bytes, ...]:
        """The joints beside its newest messages, at most so many, newest first; empty beside no answer."""
        last = len(self.hashes) - 1
        found = map(self.joint_at, range(last, max(last - most, -1), -1))
        return tuple([joint.hash if joint else b"" for joint in found])

    def raw_of(self, chain_hash: bytes) -> bytes:
        """One of its messages, by its chain hash; it is looked for from the end, near which it is."""
        place = len(self.hashes) - 1
        while self.hashes[place] != chain_hash:
            place -= 1
        return self.raws[place]

    def first_joint(self, answer: bytes = b"") -> bytes:
        """That of the first answer, or of one (its identity) that comes now; empty where there is none."""
        for place, entry in enumerate(self.known):
            if entry.message.role == "assistant":
                found = self.joint_at(place)
                break
        else:
            found = self.joint(answer, len(self.known)) if answer else None
        return found.hash if found else b""

    @property
    def uncounted(self) -> list[int]:
        """Positions of messages whose text this process has not counted."""
        return [place for place, entry in enumerate(self.new, len(self.counted)) if entry.text is None]

    def chain(self) -> Chain:
        """The chain, which must have been counted, as the client tells it."""
        before, new = self.counted, self.new
        return Chain(
            messages=grown(before.messages).followed_by([entry.message for entry in new]),
            raws=self.raws,
            tokens=before.tokens.followed_by([entry.tokens(self.model) for entry in new]),
            hashes=self.hashes,
            dialect=before.dialect,
            gathered=before.gathered.forked(),
        )

    def outgoing_chain(self, chain: Chain) -> Chain:
        """The chain with the tokens of what goes out in the place of our answers."""
        if not self.hidden:
            return chain
        tokens = list(chain.tokens)
        for place, hidden in self.hidden.items():
            tokens[place] = hidden.tokens
        return replace(chain, tokens=Sizes.of(tokens))

    def placed(self, chain: Chain) -> Placed:
        """What is known of a body that begins with these messages, of which ``chain`` was counted."""
        return Placed(
            root=self.root,
            head=self.head,
            known_head=self.known_head,
            known=self.known,
            hashes=self.hashes,
            exchanges=self.exchanges,
            model=self.model,
            counted=chain,
        )


class Reader:
    """Reads histories of one dialect, remembering messages by their bytes."""

    def __init__(self, dialect: Dialect, counter: TokenCounter, memory: Memory) -> None:
        self.dialect = dialect
        self._nothing = nothing_of(dialect)
        self._counter = counter
        self._known: Lru[bytes, Known] = Lru(memory, _weight)
        self._texts: Lru[bytes, int] = Lru(memory)
        self._seed = secrets.randbits(64)
        # The seed keeps a client from preparing two messages that this process takes for one.

    def messages(self, raws: Sequence[bytes]) -> list[Message]:
        """Who said these messages, and what identifies them."""
        return [self._know(raw).message for raw in raws]

    def read(self, body: Body, start: bytes, before: Placed | None = None) -> History:
        """Place a request's messages on the chain that begins with ``start``; nothing is counted yet.

        ``before`` is what is known of the messages with which the body begins.
        """
        reading = self._pieces(body, start, before)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value

    async def read_in_pieces(self, body: Body, start: bytes, before: Placed | None = None) -> History:
        """The same; while many messages are read, others have their turn on the event loop."""
        reading = self._pieces(body, start, before)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value
            await asyncio.sleep(0)

    def _pieces(self, body: Body, start: bytes, before: Placed | None) -> Generator[None, None, History]:
        model = body.model
        if before is None or before.root != start or not before.known:
            before = yield from self._head(body, start, model)
        raws, new, after = body.messages[before.length :], list[Known](), list[bytes]()
        exchanges, tip = before.exchanges, before.tip
        for first in range(0, len(raws), PIECE):
            piece = [self._know(raw) for raw in raws[first : first + PIECE]]
            after += chain_of([entry.message.identity for entry in piece], tip)
            exchanges += sum([entry.message.is_final for entry in piece])
            new += piece
            tip = after[-1]
            if len(raws) > PIECE:
                yield
        known, hashes = before.known.followed_by(new), before.hashes.followed_by(after)
        is_counted = before.model == model
        return History(
            body=body,
            model=model,
            head=before.head,
            raws=body.messages[len(before.head) :],
            known=known,
            root=start,
            hashes=hashes,
            exchanges=exchanges,
            known_head=before.known_head,
            counted=before.counted if is_counted else self._nothing,
            new=new if is_counted else known,
        )

    def _head(self, body: Body, start: bytes, model: str) -> Generator[None, None, Placed]:
        """A request's head, with nothing after it."""
        known = list[Known]()
        for raw in body.messages:
            if known and not len(known) % PIECE:
                yield
            entry = self._know(raw)
            if entry.message.role not in HEAD_ROLES:
                break
            known.append(entry)
        head = tuple(body.messages[: len(known)])
        return Placed(start, head, tuple(known), Grown([]), Grown([]), 0, model, self._nothing)

    def _know(self, raw: bytes) -> Known:
        digest = self._digest(raw)
        found = self._known.get(digest)
        if found is None:
            content = self.dialect.read(raw)
            has_other_parts = any("text" not in part for part in content.parts())
            found = Known(read_message(content), {} if has_other_parts else None)
            self._known.put(digest, found)
        return found

    def _digest(self, raw: bytes) -> bytes:
        return xxhash.xxh3_128_digest(raw, self._seed)

    async def count(self, history: History) -> None:
        """Count what is not counted yet, off the loop where it is much."""
        raws = history.raws[len(history.counted) :]
        await self._count_texts(history.new, raws)
        name = history.model[:NAME]
        for entry, raw in zip(history.new, raws, strict=True):
            if entry.other is not None and name not in entry.other:
                if len(entry.other) >= _MODELS:
                    entry.other.clear()
                entry.other[name] = self.dialect.read(raw).shown_tokens(history.model)

    async def _count_texts(self, known: Sequence[Known], raws: Sequence[bytes]) -> None:
        new = [(entry, raw) for entry, raw in zip(known, raws, strict=True) if entry.text is None]
        for first in range(0, len(new), PIECE):
            if first:
                await asyncio.sleep(0)
            piece = new[first : first + PIECE]
            texts = [self.dialect.read(raw).countable() for _, raw in piece]
            for (entry, _), tokens in zip(piece, await self._counter.count_all(texts), strict=True):
                entry.text = tokens

    async def head_tokens(self, history: History, tool: bytes = b"") -> int:
        """Counted tokens of the head as it is now, of what was handed in, and of a ``tool`` that is added."""
        body, known = history.body, history.known_head
        await self._count_texts(known, history.head)
        tokens = REQUEST_TOKENS + sum([MESSAGE_TOKENS + (entry.text or 0) for entry in known])
        for member in (*body.head_members(), tool):
            tokens += await self._count_member(member) if member else 0
        if history.injection is not None:
            tokens += await self._injection_tokens(history.injection)
        return tokens

    async def _injection_tokens(self, injection: Injection) -> int:
        """Counted tokens of what was handed in: counted once, however often it goes out."""
        tokens = self._texts.get(injection.digest)
        if tokens is None:
            texts = [self.dialect.read(raw).countable() for raw in injection.messages(self.dialect)]
            tokens = len(texts) * MESSAGE_TOKENS + sum(await self._counter.count_all(texts))
            self._texts.put(injection.digest, tokens)
        return tokens

    async def _count_member(self, raw: bytes) -> int:
        digest = self._digest(raw)
        tokens = self._texts.get(digest)
        if tokens is None:
            (tokens,) = await self._counter.count_all([raw.decode(errors="replace")])
            self._texts.put(digest, tokens)
        return tokens

    def take_counts(self, history: History, tokens: dict[bytes, int]) -> None:
        """Take over counts that the store holds, by chain hash (framing included)."""
        for place in history.uncounted if tokens else ():
            counted = tokens.get(history.hashes[place])
            if counted is not None and history.known[place].other is None:
                history.known[place].text = max(counted - MESSAGE_TOKENS, 0)


def root_of(body: Body, *, by_header: bool) -> bytes:
    """h₀ of a request's chain.

    Who is talking, where the client says so, is part of it, but never a session's name.
    """
    if by_header:
        return root()
    return root(body.person)


def _weight(known: Known) -> int:
    message = known.message
    texts = (message.role, message.answers or "", *message.calls)
    images = 0 if known.other is None else _IMAGE_BYTES
    return _KNOWN_BYTES + images + getsizeof(message.calls) + sum(map(getsizeof, texts))
