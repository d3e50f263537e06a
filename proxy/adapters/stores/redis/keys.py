"""The layout of the data in Redis: every key, its type, and how long it lives.

`{tag}` is the hash tag of a bucket (an HMAC, in hex): all keys of a session lie in one slot of a cluster, so
that a script can use them together. Law 6 depends on the tag, which is derived from the caller's credential.

| key | type | holds |
|---|---|---|
| `u1:{tag}:tips` | hash | chain hash or joint of an answer → sids: finds a session that no header names |
| `u1:{tag}:first` | set | tags (at most two) of sessions whose first answer has this tag |
| `u1:{tag}:suffix` | list | places of sessions where two messages with this tag stand, the newest first |
| `u1:{tag}:<sid>` | hash | the session, by the fields of :data:`FIELDS` |
| `u1:{tag}:<sid>:nodes` | hash | chain hash → Node: the transcript |
| `u1:{tag}:<sid>:texts` | hash | digest of a long message → chain hash of the Node that holds it |
| `u1:{tag}:<sid>:counts` | hash | chain hash → counted tokens (`+` before those of an answer of ours) |
| `u1:{tag}:<sid>:partial` | set | chain hashes of answers that were cut off |
| `u1:{tag}:<sid>:beside` | set | chain hashes of messages that began a branch beside the main one |
| `u1:{tag}:<sid>:noted` | set | what `suffix` keys note of the session, each after its tag |
| `u1:{tag}:<sid>:summaries` | hash | content address → summary |
| `u1:{tag}:<sid>:lanes` | set | the lanes that have epochs |
| `u1:{tag}:<sid>:epochs:<lane>` | list | the lane's Epochs, in the order written |
| `u1:{tag}:<sid>:hidden` | list | HiddenCalls: messages sent upstream for answers, in the order written |
| `u1:{tag}:<sid>:hides` | set | chain hashes of these answers, so that only the first write counts |
| `u1:{tag}:<sid>:bill` | hash | name of an amount → its sum: tokens and costs of the session's requests |
| `u1:{tag}:<sid>:line` | list | the queue: tickets of appended turns in their order; the first may go |
| `u1:{tag}:<sid>:leases` | hash | ticket → when its place is given up (milliseconds since 1970) |
| `u1:{tag}:<sid>:claims` | hash | content address → who writes that summary, and until when (milliseconds) |
| `u1:{tag}:<sid>:was` | string | a mark that the session existed: when it was deleted (milliseconds), or 0 |
| `u1:sessions` | sorted set | `tag/sid` by last use (seconds since 1970): the listing, in a slot of its own |
| `u1:{tag}:memory` | hash | a scope: `version`, `versions`, `floor`, `about`, `texts`, `workspace` |
| `u1:{tag}:memory:items` | hash | id → Item |
| `u1:{tag}:memory:changed` | sorted set | id → version at which the item was written last |
| `u1:{tag}:memory:gone` | sorted set | id → version at which the item was deleted (the newest only) |
| `u1:{tag}:memory:archive` | hash | id → Archived |
| `u1:{tag}:memory:log` | hash | id of an item → its Events, each after a letter for its kind and its length |
| `u1:{tag}:memory:logged` | sorted set | id → version at which its newest Event was written |
| `u1:{tag}:memory:deleted` | sorted set | id of a deleted item → when it was deleted (seconds since 1970) |
| `u1:{tag}:memory:threads` | sorted set | `tag/sid` by its last turn (seconds since 1970) |
| `u1:{tag}:memory:read` | hash | `tag/sid` → Thread: how far the session was read |
| `u1:{tag}:memory:channels` | set | tags of the channels of a workspace |
| `u1:{tag}:memory:claims` | hash | work → who does it, and until when (milliseconds) |
| `u1:{memories}:index` | sorted set | `kind/tag` of all scopes by last change (microseconds since 1970) |
| `u1:{memories}:index:ends` | sorted set | `kind/tag` of scopes that expire → when (ms since 1970) |
| `u1:probe` | string | written for a second by each ping and by the doctor: may this store be written? |
| `u1:{bills}:<hour>` | hash | name of an amount and a model → its sum in that hour (numbered since 1970) |
| `u1:{proof}:<hour>` | hash | name of a count, a policy and (after a NUL) a model → its sum: what cuts did |
| `u1:secrets` | set | ids of the secrets that servers run with, to detect a start with another one |

Lifetimes: all keys of a session end together. A turn renews them; what is written otherwise gets what is left
to the session, or before its first turn a day at most (:func:`unrecorded`). The exceptions are `line`,
`leases` and `claims`, which live as long as a lease, and `was`, which lives :data:`REMEMBERED` longer. Keys
are renewed for the session's ttl and a little more (:func:`lives`), so that a turn renews them only if less
than the ttl is left, or if a part may be new. `tips`, `first`, `suffix` and `u1:sessions` live as long as the
longest ttl that was written. `tips` drops sessions that have gone a few at a time, while it grows;
`u1:sessions` holds the newest :data:`LISTED`, and drops sessions that have gone when it is read. `u1:secrets`
lives :data:`REMEMBERED` after the last start or the last day on which a server ran.

Memories live until they are forgotten: their keys have no ttl, except `claims`, and those of a thread's own
scope, which are renewed with each turn. Their limits are in :mod:`proxy.ports.memory_store`; the index
holds all scopes. `version` (a number) increases with each change: it is the microseconds since 1970, or one
more than the last, so that no version occurs twice, even if a scope was forgotten or the store has lost its
newest writes. `versions` has the newest ones, each between commas. A reader whose version is not among them
reads all items: what it has read may be lost. So does one whose version is older than `floor`, because
deletions that it has not seen are no longer recorded. `workspace` is a plain tag.

`record`, a Node, an Epoch, a HiddenCalls, a summary and the records of memories are encoded by
:mod:`proxy.adapters.stores.redis.codec` (encrypted, if a policy says so) and opaque to the server.
`created` (seconds), `turns`, `tip` and `unsaved` (chain hashes), `paused` (present or not) and `pins`
(concatenated chain hashes) are plain, because the scripts merge them; they override the values in the record.
`first`, if present, is the tag of the session's first answer, under which its own tag is noted, anew whenever
the session is renewed.
`life` (random) changes when messages that others may have read have changed, `news` names the messages
written last (concatenated chain hashes) and `count` is the number of all messages at that time: a reader
that has the others reads only these. If the number does not match, all messages are read.
A session with an injection also has `injection` (encoded by the codec) and `injected` (its digest, plain):
only a reader that does not have it yet reads it.

Amounts are plain integers, money in nano-dollars, which the server increments. Each bill also has, for each
writer, :data:`WRITER` and the writer's name → the number of its newest group, so that a group that is sent
again is not added again. Bills of an hour live for 90 days after the last amount, independently of the
sessions; they contain names of models, and no other names.

The prefix is the version of this layout: another layout has another prefix, and the old keys expire. Plain
values keep their form within a version; encoded records have a version of their own. The scripts need Redis
7.0 or any Valkey.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from proxy.ports import UNRECORDED, SessionKey

SESSIONS: Final = "u1:sessions"

PROBE: Final = "u1:probe"
"""The key that is written to see whether the store takes writes."""

PROBE_MILLISECONDS: Final = 1_000

SECRETS: Final = "u1:secrets"

LISTED: Final = 100_000
"""The most sessions in the listing; others live just as long, but are not listed."""

REMEMBERED: Final = 30 * 86_400.0
"""Seconds after a session's end for which the store knows that it existed."""

_SPARE: Final = 1 / 16
"""The share of its ttl by which a session's keys live longer than the ttl."""
_MOST_SPARE: Final = 3_600.0
"""The most seconds by which they live longer."""

FIELDS: Final = ("record", "created", "turns", "tip", "paused", "unsaved", "pins")

HASH: Final = 32
"""Bytes of a chain hash."""

DIGEST: Final = 16
"""Bytes of a digest by which a long message is found."""

NODES: Final = ":nodes"
TEXTS: Final = ":texts"
COUNTS: Final = ":counts"
PARTIAL: Final = ":partial"
BESIDE: Final = ":beside"
SUMMARIES: Final = ":summaries"
LANES: Final = ":lanes"
EPOCHS: Final = ":epochs:"
HIDDEN: Final = ":hidden"
HIDES: Final = ":hides"
BILL: Final = ":bill"
HASHES: Final = (NODES, TEXTS, COUNTS, SUMMARIES, BILL)
NOTED: Final = ":noted"
SETS: Final = (PARTIAL, BESIDE, LANES, HIDES, NOTED)
PARTS: Final = (*HASHES, *SETS, HIDDEN)
"""The parts of a session that live as long as it does, as do the epochs of its lanes."""
WRITER: Final = "by "
"""Prefix of the names of writers in a bill; no name of an amount begins with it."""
LINE: Final = ":line"
LEASES: Final = ":leases"
CLAIMS: Final = ":claims"
WAS: Final = ":was"
MEMORY: Final = "memory"
"""Used in place of a session id: the keys of a scope are named like those of a session."""
ITEMS: Final = ":items"
CHANGED: Final = ":changed"
GONE: Final = ":gone"
ARCHIVE: Final = ":archive"
LOG: Final = ":log"
LOGGED: Final = ":logged"
DELETED: Final = ":deleted"
THREADS: Final = ":threads"
READ: Final = ":read"
CHANNELS: Final = ":channels"
SCOPE_PARTS: Final = (ITEMS, CHANGED, GONE, ARCHIVE, LOG, LOGGED, DELETED, THREADS, READ, CHANNELS)
SCOPE_FIELDS: Final = ("version", "floor", "about", "texts")
INDEX: Final = SessionKey("memories", "index")
"""The key of the index of scopes; it cannot collide with a tag, as tags are hex."""
ENDS: Final = ":ends"

RECORD_PLACE: Final = b"record"
INJECTION_PLACE: Final = b"injection"
HIDDEN_PLACE: Final = b"hidden"
ABOUT_PLACE: Final = b"about"
TEXTS_PLACE: Final = b"texts"
"""Places of records in a session or a scope, for the codec; the functions below make the others."""


def node_place(chain_hash: bytes) -> bytes:
    """Return the place of a message, for the codec."""
    return b"node " + chain_hash


def summary_place(address: str) -> bytes:
    """Return the place of a summary, for the codec."""
    return b"summary " + address.encode()


def epoch_place(lane: str) -> bytes:
    """Return the place of the epochs of a lane, for the codec."""
    return b"epoch " + lane.encode()


def memory_place(part: str, name: bytes) -> bytes:
    """Return the place of a record of a scope, for the codec: its part, and its name in it."""
    return part.encode() + b" " + name


class Lives(NamedTuple):
    """The lifetimes of a session's keys, in milliseconds."""

    least: int
    """The session's ttl: keys with at least this time left are not renewed."""
    session: int
    """The ttl that keys get when they are renewed."""


@lru_cache
def lives(ttl: float) -> Lives:
    """Return the lifetimes of a session with this ttl (seconds)."""
    return Lives(milliseconds(ttl), milliseconds(ttl + min(ttl * _SPARE, _MOST_SPARE)))


def unrecorded(ttl: float) -> int:
    """Return the life (milliseconds) of what is written of a session with this ttl before its first turn."""
    return milliseconds(min(ttl, UNRECORDED))


def milliseconds(seconds: float) -> int:
    """Convert seconds to milliseconds; at least 1, because a ttl of 0 deletes a key."""
    return max(1, round(seconds * 1000))


def bucket(tag: str) -> str:
    """Return the prefix of all keys of a bucket."""
    return f"u1:{{{tag}}}:"


def tips(tag: str) -> str:
    """Return the key of the index of headerless sessions; no sid is `tips`, as sids are hex or `named`."""
    return bucket(tag) + "tips"


def first(tag: str) -> str:
    """Return the key that notes the tags of the session whose first answer has this tag."""
    return bucket(tag) + "first"


def suffixes(tag: str) -> str:
    """Return the key that notes the places of sessions where two messages with this tag stand."""
    return bucket(tag) + "suffix"


def session(key: SessionKey) -> str:
    """Return the session's own key; the keys of its parts are this one with a suffix."""
    return bucket(key.tag) + key.sid


def hour(number: int) -> str:
    """Return the key of an hour's bills; it cannot collide with a tag, as tags are hex."""
    return f"{bucket('bills')}{number}"


def evidence(number: int) -> str:
    """Return the key of an hour's evidence about cuts."""
    return f"{bucket('proof')}{number}"


def epochs(key: SessionKey, lane: str) -> str:
    """Return the key of a lane's epochs. A lane may be any text: it comes last, so that it cannot collide."""
    return session(key) + EPOCHS + lane


def listed(key: SessionKey) -> str:
    """Return a session's member name in the listing."""
    return f"{key.tag}/{key.sid}"


def unlisted(member: str) -> SessionKey:
    """Return the session of a member name in the listing."""
    tag, _, sid = member.partition("/")
    return SessionKey(tag, sid)
