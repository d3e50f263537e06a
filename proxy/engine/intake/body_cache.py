"""Bodies as they come in, each read after what this process has read of its conversation before.

A fast, seeded hash tells whether a body begins with the bytes of the one before; it serves this process
alone. Small bodies, and those of clients that put what changes before their messages, are split whole each
time; there the messages themselves tell.
"""

import secrets
from operator import attrgetter

import msgspec
import xxhash

from proxy.cache import Lru, Memory
from proxy.core.dialects.wire import Beginning, Body, WireFormat
from proxy.core.persistent import Grown
from proxy.engine.intake.history import CachedPrefix

_LEAST = 4 * 1024
"""Bytes of a body below which splitting it whole costs nothing."""
_TOLD_APART_BY = 256
"""Bytes by which the conversations of one caller are told apart, where no header does: the first of a body,
and, since a service's system prompt is the same in all of them, the first after that."""
_ENDING = 64
"""Bytes by which the end of a head is known again."""
_HEADS_ALIKE = 8
"""Ends that are known of heads that begin alike: they may go on otherwise."""
_CONVERSATION_BYTES = 2 * 1024
"""What a conversation is reckoned at,"""
_MESSAGE_BYTES = 512
"""and each message of it, beside its bytes."""


class NewestBody(msgspec.Struct, frozen=True):
    """What is remembered of a conversation's newest body."""

    messages: Grown[bytes]
    prefix: CachedPrefix
    size: int
    """Bytes that it is reckoned at."""
    beginning: Beginning | None
    """None where the next must be split whole."""
    digest: bytes
    """Of the bytes that the next one must begin with, to be read after this one."""


class ReadBody(msgspec.Struct, frozen=True):
    """A body, and what is known of its first messages."""

    body: Body
    scope: bytes
    """Whose it is, and how it begins."""
    name: bytes
    """Under which its conversation was looked for."""
    is_shared: bool
    """Whether other conversations may have the same scope."""
    before: CachedPrefix | None = None
    """Of the messages that it begins with; None where nothing is known of them."""
    hashed: "Hashed | None" = None
    """Its first bytes, where they were hashed."""


class Hashed:
    """The first bytes of a body, hashed once however far they reach in the end."""

    def __init__(self, seed: int) -> None:
        self._hash = xxhash.xxh3_128(seed=seed)
        self._end = 0

    def up_to(self, raw: bytes, end: int) -> bytes:
        """The digest of the first ``end`` bytes, which are no fewer than before."""
        self._hash.update(memoryview(raw)[self._end : end])
        self._end = end
        return self._hash.digest()


class BodyCache:
    """Remembers the newest body of each conversation."""

    def __init__(self, wire: WireFormat, memory: Memory) -> None:
        self._wire = wire
        self._bodies: Lru[bytes, NewestBody] = Lru(memory, attrgetter("size"))
        self._heads: Lru[bytes, tuple[tuple[int, bytes], ...]] = Lru(
            memory, lambda heads: 4 * _ENDING * len(heads)
        )
        """Where long heads end in bodies that begin alike, and with which bytes."""
        self._seed = secrets.randbits(64)

    def read(self, raw: bytes, scope: bytes, max_messages: int, *, is_shared: bool = False) -> ReadBody:
        """Read a body of whoever ``scope`` names; other conversations may have the same scope.

        Raises what :meth:`~proxy.core.dialects.wire.WireFormat.read_body` raises.
        """
        scope += b"\0" + raw[:_TOLD_APART_BY]
        name = self._name(scope, raw) if is_shared else scope
        newest = self._bodies.get(name)
        if newest is None:
            return ReadBody(self._wire.read_body(raw, max_messages), scope, name, is_shared)
        if newest.beginning is not None:
            hashed = Hashed(self._seed)
            if hashed.up_to(raw, newest.beginning.end) == newest.digest:
                body = newest.beginning.continued(raw, max_messages)
                if body is not None:
                    return ReadBody(body, scope, name, is_shared, newest.prefix, hashed)
        body = self._wire.read_body(raw, max_messages)
        before = newest.prefix if body.messages.begins_with(newest.messages) else None
        return ReadBody(body, scope, name, is_shared, before)

    def keep(self, read: ReadBody, prefix: CachedPrefix) -> None:
        """Remember a body, and what is known of its messages."""
        body, raw = read.body, read.body.raw
        size = len(raw) + _CONVERSATION_BYTES + _MESSAGE_BYTES * prefix.length
        beginning, digest = body.beginning() if len(raw) >= _LEAST else None, b""
        if beginning is not None:
            digest = (read.hashed or Hashed(self._seed)).up_to(raw, beginning.end)
            size += beginning.weight
        names = {read.name}
        if read.is_shared and prefix.head:
            self._learn_head(read.scope, body, len(prefix.head))
            names.add(self._name(read.scope, raw))
        newest = NewestBody(body.messages, prefix, size, beginning, digest)
        for name in names:
            self._bodies.put(name, newest)

    def _name(self, scope: bytes, raw: bytes) -> bytes:
        """What tells a conversation from others of the same scope: what follows its head, if that is known.

        That ends with the first brace: the message may have no more, and what follows it changes.
        """
        heads = self._heads.get(scope) or ()
        end = max((end for end, ending in heads if raw.startswith(ending, end - len(ending))), default=None)
        return scope if end is None else scope + b"\0" + raw[end : end + _TOLD_APART_BY].partition(b"}")[0]

    def _learn_head(self, scope: bytes, body: Body, length: int) -> None:
        """Remember where the head of a body, its first ``length`` messages, ends, if it is long."""
        if len(body.messages) == length:
            return
        raw, first, heads = body.raw, body.messages[length], self._heads.get(scope) or ()
        if any(raw.startswith(first, end) for end, _ in heads):
            return
        end = raw.find(first)
        if end > _TOLD_APART_BY:
            self._heads.put(scope, ((end, raw[end - _ENDING : end]), *heads)[:_HEADS_ALIKE])
