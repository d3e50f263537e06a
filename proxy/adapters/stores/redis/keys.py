"""What is in Redis: every key, its type, and how long it lives.

`{tag}` is the hash tag of a bucket (an HMAC, in hex): all keys of a session lie in one slot of a cluster, so
a script may touch them together. Law 6 rests on the tag: it is derived from the caller's credential.

| key | type | holds |
|---|---|---|
| `u1:{tag}:tips` | hash | chain hash of an answer, or joint → sids: finds a session that no header names |
| `u1:{tag}:first` | set | tags (two at most) under which a session may be whose first answer this tag names |
| `u1:{tag}:<sid>` | hash | the session, by the fields of :data:`FIELDS` |
| `u1:{tag}:<sid>:nodes` | hash | chain hash → Node: the transcript |
| `u1:{tag}:<sid>:texts` | hash | digest of a long message → chain hash of the Node that holds it |
| `u1:{tag}:<sid>:counts` | hash | chain hash → counted tokens (`+` before those of an answer of ours) |
| `u1:{tag}:<sid>:partial` | set | chain hashes of answers that were cut off |
| `u1:{tag}:<sid>:beside` | set | chain hashes of words that began a line beside the main one |
| `u1:{tag}:<sid>:summaries` | hash | content address → summary |
| `u1:{tag}:<sid>:lanes` | set | the lanes that have epochs |
| `u1:{tag}:<sid>:epochs:<lane>` | list | the lane's Epochs, in the order written |
| `u1:{tag}:<sid>:hidden` | list | HiddenCalls: what stands upstream for answers, in the order written |
| `u1:{tag}:<sid>:hides` | set | chain hashes of these answers, so that the first written counts |
| `u1:{tag}:<sid>:bill` | hash | name of an amount → its sum: what its requests took and cost |
| `u1:{tag}:<sid>:line` | list | tickets of appended turns, in their order; the first one's turn it is |
| `u1:{tag}:<sid>:leases` | hash | ticket → when its place is given up (milliseconds since 1970) |
| `u1:{tag}:<sid>:claims` | hash | content address → who writes that summary, and until when (milliseconds) |
| `u1:{tag}:<sid>:was` | string | that there was such a session, for appending clients; no content |
| `u1:sessions` | sorted set | `tag/sid` by last use (seconds since 1970): the listing, in a slot of its own |
| `u1:{tag}:memory` | hash | a scope of memories: `version`, `floor`, `about`, `texts`, `workspace` |
| `u1:{tag}:memory:items` | hash | id → Item |
| `u1:{tag}:memory:changed` | sorted set | id → version at which the item was written last |
| `u1:{tag}:memory:gone` | sorted set | id → version at which an item was deleted, of the newest |
| `u1:{tag}:memory:archive` | hash | id → Archived |
| `u1:{tag}:memory:log` | hash | id of an item → its Events, each after a letter for its kind and its length |
| `u1:{tag}:memory:logged` | sorted set | id → version at which its newest Event was written |
| `u1:{tag}:memory:deleted` | sorted set | id of an item that is no more → when it was deleted (since 1970) |
| `u1:{tag}:memory:threads` | sorted set | `tag/sid` by its last turn (seconds since 1970) |
| `u1:{tag}:memory:read` | hash | `tag/sid` → Thread: what was read of it |
| `u1:{tag}:memory:channels` | set | tags of the channels of a workspace |
| `u1:{tag}:memory:claims` | hash | work → who does it, and until when (milliseconds) |
| `u1:{memories}:index` | sorted set | `kind/tag` of all scopes by last change (microseconds since 1970) |
| `u1:{memories}:index:ends` | sorted set | `kind/tag` of those that end, by when (milliseconds since 1970) |
| `u1:probe` | string | for a second: whether somebody who looks after the server may write |
| `u1:{bills}:<hour>` | hash | name of an amount and a model → its sum in that hour (numbered since 1970) |
| `u1:{proof}:<hour>` | hash | name of a count, a policy and (after a NUL) a model → its sum: what cuts did |
| `u1:secrets` | set | ids of the secrets that servers began with, so that one with another can be told |

Lifetimes: all keys of a session are renewed together, so none outlives another; but `line`, `leases` and
`claims` live as long as a lease, and `was` :data:`REMEMBERED` longer. They are renewed for its ttl and a
little more (:func:`lives`), so that a turn renews them only where less than the ttl is left, or where a
part may be new. `tips`, `first` and `u1:sessions` live as long as the longest ttl that was written. `tips`
forgets sessions that have gone a few at a time, while it grows; `u1:sessions` holds the newest
:data:`LISTED`, and drops those that have gone when it is read. `u1:secrets` lives :data:`REMEMBERED` after
the last start.

Memories live until they are forgotten: their keys have no ttl, but for those of a thread's own scope, which
are renewed with each change, and `claims`. What bounds them stands in :mod:`proxy.ports.memory_store`; the
index holds as many scopes as there are. `version` (a number) goes up with each change; it begins with the
microseconds since 1970, so none comes twice where a scope was forgotten. Who has read an older one than
`floor` reads all, for tombstones that he did not see were dropped. `workspace` is a tag, plain.

`record`, a Node, an Epoch, a HiddenCalls, a summary and the records of memories have been through
:mod:`proxy.adapters.stores.redis.codec` (encrypted, where a policy wants it) and mean nothing to the server.
`created` (seconds), `turns`, `tip` and `unsaved` (chain hashes), `paused` (there or not) and `pins` (chain
hashes, one after the other) are plain, because the scripts merge them; they override what the record says.
`first` is the tag under which the session's own is noted, where it is.
`life` (random) is another one once messages are not what they were to who has read them, `news` names those
written last (chain hashes, one after the other) and `count` says how many there are then: who has read the
others asks for these alone. Where there are not as many, they are read whole.
Beside these, where something was handed in, stand `injection` (through the codec as well) and `injected` (its
digest, plain): only who does not hold it yet reads it.

Amounts are plain integers, money in nano-dollars, to which the server adds. Beside them stands in each bill
:data:`WRITER` and who has added to it → the number of his newest group, so that one that is sent again is not
added again. Bills of an hour live for 90 days after the last amount, whatever becomes of the sessions; they
name models, and nobody else.

The prefix is the version of this layout: another layout is another prefix, and the old keys expire. What is
plain keeps its form within it; what has been through the codec says its own version. The scripts need Redis
7.0 or any Valkey.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from proxy.ports import SessionKey

SESSIONS: Final = "u1:sessions"

PROBE: Final = "u1:probe"

SECRETS: Final = "u1:secrets"

LISTED: Final = 100_000
"""How many sessions the listing remembers; the others live as long, unlisted."""

REMEMBERED: Final = 30 * 86_400.0
"""Seconds past a session's end for which it is known that there was one."""

_SPARE: Final = 1 / 16
"""Share of its ttl that a session lives longer,"""
_MOST_SPARE: Final = 3_600.0
"""and seconds of it at most."""

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
SETS: Final = (PARTIAL, BESIDE, LANES, HIDES)
PARTS: Final = (*HASHES, *SETS, HIDDEN)
"""Of a session, which live as long as it does; so do the epochs of its lanes."""
WRITER: Final = "by "
"""What the names of writers begin with in a bill; no amount's does."""
LINE: Final = ":line"
LEASES: Final = ":leases"
CLAIMS: Final = ":claims"
WAS: Final = ":was"
MEMORY: Final = "memory"
"""In the place of a sid: what is kept of a scope lies as what is kept of a session does."""
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
"""Where the index of scopes lies; no tag has its name, being hex."""
ENDS: Final = ":ends"

RECORD_PLACE: Final = b"record"
INJECTION_PLACE: Final = b"injection"
HIDDEN_PLACE: Final = b"hidden"
ABOUT_PLACE: Final = b"about"
TEXTS_PLACE: Final = b"texts"
"""Places of a session's records and of a scope's, for the codec; the others are made below."""


def node_place(chain_hash: bytes) -> bytes:
    """Where a message stands."""
    return b"node " + chain_hash


def summary_place(address: str) -> bytes:
    """Where a summary stands."""
    return b"summary " + address.encode()


def epoch_place(lane: str) -> bytes:
    """Where the epochs of a lane stand."""
    return b"epoch " + lane.encode()


def memory_place(part: str, name: bytes) -> bytes:
    """Where a record of a scope stands: in which part, and under which name."""
    return part.encode() + b" " + name


class Lives(NamedTuple):
    """How long what a turn has written lives, in milliseconds."""

    least: int
    """The session's ttl: while as much is left, it is not renewed."""
    session: int
    """For which its keys are renewed."""


@lru_cache
def lives(ttl: float) -> Lives:
    """How long a session lives whose ttl is this (seconds)."""
    return Lives(milliseconds(ttl), milliseconds(ttl + min(ttl * _SPARE, _MOST_SPARE)))


def milliseconds(seconds: float) -> int:
    """As the server counts; never none, which would be the end."""
    return max(1, round(seconds * 1000))


def bucket(tag: str) -> str:
    """What all keys of a bucket begin with."""
    return f"u1:{{{tag}}}:"


def tips(tag: str) -> str:
    """The index that finds headerless sessions; no sid has its name, being hex or `named`."""
    return bucket(tag) + "tips"


def first(tag: str) -> str:
    """Where a session is kept whose first answer this tag is named by."""
    return bucket(tag) + "first"


def session(key: SessionKey) -> str:
    """The session's own key; those of its parts are this and a suffix."""
    return bucket(key.tag) + key.sid


def hour(number: int) -> str:
    """The bills of an hour; no tag has the bucket's name, being hex."""
    return f"{bucket('bills')}{number}"


def evidence(number: int) -> str:
    """What was found out about cuts in an hour."""
    return f"{bucket('proof')}{number}"


def epochs(key: SessionKey, lane: str) -> str:
    """The epochs of one lane. A lane may be any text: it comes last, so it can run into no other name."""
    return session(key) + EPOCHS + lane


def listed(key: SessionKey) -> str:
    """A session's member in the listing."""
    return f"{key.tag}/{key.sid}"


def unlisted(member: str) -> SessionKey:
    """The session that a member of the listing names."""
    tag, _, sid = member.partition("/")
    return SessionKey(tag, sid)
