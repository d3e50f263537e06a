"""Read a request's bytes into its chain: each message's role, place and token count.

Keeps law 8 (O(new)): this process remembers what it learned of a message under a fast hash of its bytes, so a
turn decodes, identifies and counts only its new messages. It also remembers the newest body of each
conversation: a second hash tells whether a new body begins with the same bytes. Small bodies, and those of
clients that put changing members before their messages, are split whole each time; the messages are then
compared one by one. The hashes are seeded, and are used in this process only.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar

import msgspec
import xxhash

from proxy.cache import CacheMemory, Lru
from proxy.core.budget.budget import MESSAGE_TOKENS, REQUEST_TOKENS
from proxy.core.conversation.messages import HEAD_ROLES, Message, chain_hashes, read_message
from proxy.core.dialects.dialect import MODEL_NAME_CHARACTERS, Body, BodyPrefix, Content, Dialect
from proxy.core.persistent import PersistentList, Sizes
from proxy.core.planning.chain import Chain
from proxy.engine.intake.history import CachedMessage, CachedPrefix, History, NewMessage
from proxy.errors import JSONTooDeep
from proxy.ports import TokenCounter

T = TypeVar("T")

_MODELS = 8
"""Most models for which the token counts of one message's images are remembered."""
_FEW = 8
"""Most new messages of a request whose decoded content is kept until they are counted."""
MESSAGES_AT_ONCE = 200
"""Most messages that are read on the event loop (some 2 ms). More are read in a thread and counted in
pieces."""
_PIECE_BYTES = 128 * 1024
"""Most bytes of messages that are read on the event loop."""

_LEAST = 4 * 1024
"""Bytes of a body below which splitting it whole costs next to nothing."""
_DISTINCT = 256
"""Bytes that tell one caller's conversations apart where no header does: the first of a body and, since a
service's system prompt is the same in all of them, the first after its head."""
_ENDING = 64
"""Bytes by which the end of a known head is recognised."""
_HEADS_ALIKE = 8
"""Most known ends of heads that begin alike but continue differently."""
_CONVERSATION_BYTES = 2 * 1024
"""Estimated bytes of a conversation, beside its messages."""
_BODY_MESSAGE_BYTES = 512
"""Estimated bytes of each message of a conversation, beside its text."""


class Reader:
    """Reads histories of one dialect, and remembers messages by their bytes."""

    def __init__(self, dialect: Dialect, counter: TokenCounter, memory: CacheMemory) -> None:
        self.dialect = dialect
        self._nothing = Chain(PersistentList([]), (), Sizes.of(()), (), dialect)
        self._counter = counter
        self._entries: Lru[bytes, CachedMessage] = Lru(memory, attrgetter("size"))
        self._texts: Lru[bytes, int] = Lru(memory)
        self._seed = secrets.randbits(64)
        # The seed keeps a client from crafting two messages with the same hash.

    def messages(self, raws: Sequence[bytes]) -> list[Message]:
        """Read the role and the identity of each message."""
        return [self._entry(raw)[0].message for raw in raws]

    async def read(self, body: Body, start: bytes, before: CachedPrefix | None = None) -> History:
        """Place a request's messages on the chain that begins with ``start``; nothing is counted yet.

        ``before`` holds what is known of the body's first messages.
        """
        model = body.model
        if before is None or before.root != start or before.length == len(before.head):
            before = await off_loop_if_long(body.messages, partial(self._head, body, start, model))
        after = body.messages.after(before.length)
        new, hashes = await off_loop_if_long(after, partial(self._chained, after, before.tip))
        exchanges, entries = before.exchanges, list[CachedMessage]()
        for each in new:
            entries.append(each.entry)
            exchanges += each.entry.message.is_final
        raws, chain = body.messages[len(before.head) :], before.hashes.followed_by(hashes)
        tip, every, counted = (
            hashes[-1] if hashes else before.tip,
            before.entries.followed_by(entries),
            before.counted,
        )
        if before.model != model:
            new, hashes = [NewMessage(entry, raw) for entry, raw in zip(every, raws, strict=True)], [*chain]
            counted = self._nothing
        uncounted = dict[bytes, CachedMessage]()
        for own, each in zip(hashes, new, strict=True):
            if each.entry.text is None:
                uncounted[own] = each.entry
        return History(
            body=body,
            model=model,
            head=before.head,
            head_entries=before.head_entries,
            raws=raws,
            entries=every,
            root=start,
            hashes=chain,
            tip=tip,
            length=before.length + len(entries),
            exchanges=exchanges,
            counted=counted,
            new=new,
            uncounted=uncounted,
        )

    def _head(self, body: Body, start: bytes, model: str) -> CachedPrefix:
        entries = list[CachedMessage]()
        for raw in body.messages:
            entry, _ = self._entry(raw)
            if entry.message.role not in HEAD_ROLES:
                break
            entries.append(entry)
        head = tuple(body.messages[: len(entries)])
        return CachedPrefix(
            root=start,
            head=head,
            head_entries=tuple(entries),
            entries=PersistentList([]),
            hashes=PersistentList([]),
            length=len(head),
            tip=start,
            exchanges=0,
            model=model,
            counted=self._nothing,
        )

    def _chained(self, raws: Sequence[bytes], tip: bytes) -> tuple[list[NewMessage], list[bytes]]:
        """Read new messages and compute their chain hashes, continuing from ``tip``."""
        new = list[NewMessage]()
        for raw in raws:
            entry, content = self._entry(raw)
            new.append(NewMessage(entry, raw, content if len(new) < _FEW else None))
        return new, chain_hashes([each.entry.message.identity for each in new], tip)

    def _entry(self, raw: bytes) -> tuple[CachedMessage, Content | None]:
        """Return what is known of a message, and its content if it had to be decoded."""
        digest = xxhash.xxh3_128_digest(raw, self._seed)
        found = self._entries.get(digest)
        if found is not None:
            return found, None
        content, other = self.dialect.read(raw), None
        for part in content.parts:
            if "text" not in part:
                other = dict[str, int]()
        try:
            found = CachedMessage(read_message(content), other)
        # What can still be split may be too deep to be read whole.
        except (RecursionError, ValueError) as error:
            raise JSONTooDeep from error
        self._entries.put(digest, found)
        return found, content

    async def count(self, history: History, stored: Mapping[bytes, int] | None = None) -> Chain:
        """Return the chain as the client sent it; messages without a count are counted, in a thread if many.

        ``stored`` are the store's token counts by chain hash (framing included).
        """
        if stored:
            for chain_hash, entry in history.uncounted.items():
                counted = stored.get(chain_hash)
                if counted is not None and entry.other is None:
                    entry.text = max(counted - MESSAGE_TOKENS, 0)
        await self._count_texts(history.new)
        messages, tokens, media_tokens = list[Message](), list[int](), 0
        name = history.model[:MODEL_NAME_CHARACTERS]
        for each in history.new:
            entry, other = each.entry, each.entry.other
            size = MESSAGE_TOKENS + (entry.text or 0)
            if other is not None:
                if name not in other:
                    if len(other) >= _MODELS:
                        other.clear()
                    content = each.content or self.dialect.read(each.raw)
                    other[name] = await off_loop_if_long(
                        [each.raw], partial(content.media_tokens, history.model)
                    )
                size += other[name]
                media_tokens += other[name]
            messages.append(entry.message)
            tokens.append(size)
        return history.counted.followed_by(messages, tokens, history.raws, history.hashes, media_tokens)

    async def _count_texts(self, messages: Sequence[NewMessage]) -> None:
        def texts_of(some: Sequence[NewMessage]) -> list[str]:
            return [(each.content or self.dialect.read(each.raw)).countable() for each in some]

        uncounted = [each for each in messages if each.entry.text is None]
        for first in range(0, len(uncounted), MESSAGES_AT_ONCE):
            new = uncounted[first : first + MESSAGES_AT_ONCE]
            texts = await off_loop_if_long([each.raw for each in new], partial(texts_of, new))
            for each, tokens in zip(new, await self._counter.count_all(texts), strict=True):
                each.entry.text = tokens

    async def head_tokens(self, history: History) -> int:
        """Return the counted tokens of the head and of the injection."""
        body, tokens = history.body, REQUEST_TOKENS
        if history.head:
            pairs = zip(history.head_entries, history.head, strict=True)
            await self._count_texts([NewMessage(entry, raw) for entry, raw in pairs])
            tokens += sum([MESSAGE_TOKENS + (entry.text or 0) for entry in history.head_entries])
        for part in body.head_members():
            tokens += await self.member_tokens(part)
        if history.injection is not None:
            messages = history.injection.messages(self.dialect)
            tokens += MESSAGE_TOKENS * len(messages)
            digest = history.injection.digest
            tokens += await self._count_once(digest, messages, lambda raw: self.dialect.read(raw).countable())
        return tokens

    async def member_tokens(self, raw: bytes) -> int:
        """Return the counted tokens of a member of the head, such as a tool."""
        digest = xxhash.xxh3_128_digest(raw, self._seed)
        return await self._count_once(digest, [raw], lambda raw: raw.decode(errors="replace"))

    async def _count_once(
        self, digest: bytes, parts: Sequence[bytes], text_of: Callable[[bytes], str]
    ) -> int:
        """Return the counted tokens of the parts with this digest, which are remembered."""
        tokens = self._texts.get(digest)
        if tokens is None:
            tokens = sum(await self._counter.count_all([text_of(part) for part in parts]))
            self._texts.put(digest, tokens)
        return tokens


async def off_loop_if_long(raws: Sequence[bytes], work: Callable[[], T]) -> T:
    """Return the result of ``work`` on these messages, done in a thread if they are many or long."""
    if len(raws) <= MESSAGES_AT_ONCE and sum(map(len, raws)) <= _PIECE_BYTES:
        return work()
    return await asyncio.to_thread(work)


# --- bodies, read on top of what this process knows of the conversation's previous body ---


class NewestBody(msgspec.Struct, frozen=True):
    """The remembered state of a conversation's newest body."""

    messages: PersistentList[bytes]
    prefix: CachedPrefix
    size: int
    """Estimated bytes of the entry."""
    beginning: BodyPrefix | None
    """None where the next body must be split whole."""
    digest: bytes
    """Digest of the bytes with which the next body must begin to continue from this one."""


class ReadBody(msgspec.Struct, frozen=True):
    """A body and what is known of its first messages."""

    body: Body
    scope: bytes
    """Key made of the body's owner and its first bytes."""
    name: bytes
    """Key under which the conversation was looked up."""
    is_shared: bool
    """Whether other conversations may have the same scope."""
    before: CachedPrefix | None = None
    """What is known of the messages with which the body begins; None where nothing is."""
    hashed: "PrefixHash | None" = None
    """Hash of the body's first bytes, if it was computed."""


class PrefixHash:
    """An incremental hash of a body's first bytes: no byte is hashed twice."""

    def __init__(self, seed: int) -> None:
        self._hash = xxhash.xxh3_128(seed=seed)
        self._end = 0

    def up_to(self, raw: bytes, end: int) -> bytes:
        """Return the digest of the first ``end`` bytes; ``end`` may not be less than in the last call."""
        self._hash.update(memoryview(raw)[self._end : end])
        self._end = end
        return self._hash.digest()


class BodyCache:
    """Remembers the newest body of each conversation."""

    def __init__(self, dialect: Dialect, memory: CacheMemory) -> None:
        self._dialect = dialect
        self._bodies: Lru[bytes, NewestBody] = Lru(memory, attrgetter("size"))
        self._heads: Lru[bytes, tuple[tuple[int, bytes], ...]] = Lru(
            memory, lambda heads: 4 * _ENDING * len(heads)
        )
        """By scope, where long heads end in bodies that begin alike, and the bytes of these ends."""
        self._seed = secrets.randbits(64)

    def read(self, raw: bytes, scope: bytes, max_messages: int, *, is_shared: bool = False) -> ReadBody:
        """Read a body of the caller that ``scope`` names; ``is_shared`` says it may have other conversations.

        Raises what :meth:`~proxy.core.dialects.dialect.Dialect.read_body` raises.
        """
        scope += b"\0" + raw[:_DISTINCT]
        name = self._name(scope, raw) if is_shared else scope
        newest = self._bodies.get(name)
        if newest is None:
            return ReadBody(self._dialect.read_body(raw, max_messages), scope, name, is_shared)
        if newest.beginning is not None:
            hashed = PrefixHash(self._seed)
            if hashed.up_to(raw, newest.beginning.end) == newest.digest:
                body = newest.beginning.continued(raw, max_messages)
                if body is not None:
                    return ReadBody(body, scope, name, is_shared, newest.prefix, hashed)
        body = self._dialect.read_body(raw, max_messages)
        before = newest.prefix if body.messages.begins_with(newest.messages) else None
        return ReadBody(body, scope, name, is_shared, before)

    def keep(self, read: ReadBody, history: History, chain: Chain) -> None:
        """Remember a body and what is known of its messages; ``chain`` has their token counts."""
        body, raw = read.body, read.body.raw
        prefix = CachedPrefix(
            root=history.root,
            head=history.head,
            head_entries=history.head_entries,
            entries=history.entries,
            hashes=history.hashes,
            length=history.length,
            tip=history.tip,
            exchanges=history.exchanges,
            model=history.model,
            counted=chain,
        )
        size = len(raw) + _CONVERSATION_BYTES + _BODY_MESSAGE_BYTES * prefix.length
        beginning, digest = body.prefix() if len(raw) >= _LEAST else None, b""
        if beginning is not None:
            digest = (read.hashed or PrefixHash(self._seed)).up_to(raw, beginning.end)
            size += beginning.weight
        names = {read.name}
        if read.is_shared and prefix.head:
            self._learn_head(read.scope, body, len(prefix.head))
            names.add(self._name(read.scope, raw))
        newest = NewestBody(body.messages, prefix, size, beginning, digest)
        for name in names:
            self._bodies.put(name, newest)

    def _name(self, scope: bytes, raw: bytes) -> bytes:
        """Return a key that tells a conversation from others of its scope: the bytes after its head.

        They end at the first closing brace: the message may be over there, and what follows it changes. Where
        the head is not known, the key is the scope.
        """
        heads = self._heads.get(scope) or ()
        end = max((end for end, ending in heads if raw.startswith(ending, end - len(ending))), default=None)
        return scope if end is None else scope + b"\0" + raw[end : end + _DISTINCT].partition(b"}")[0]

    def _learn_head(self, scope: bytes, body: Body, length: int) -> None:
        """Remember where a body's head (its first ``length`` messages) ends, if the head is long."""
        if len(body.messages) == length:
            return
        raw, first, heads = body.raw, body.messages[length], self._heads.get(scope) or ()
        if any(raw.startswith(first, end) for end, _ in heads):
            return
        end = raw.find(first)
        if end > _DISTINCT:
            self._heads.put(scope, ((end, raw[end - _ENDING : end]), *heads)[:_HEADS_ALIKE])
