"""What is kept of a session: one record a message, and one for the session as a whole.

Messages are named by their chain hash, so writing one twice is writing it once (no turn twice), and a
session is a tree: each record names its parent, a branch is a walk from a tip to the root.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

import msgspec

from proxy.core.dialects.answers import Reply


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message of a transcript, at one place of the tree."""

    hash: bytes
    parent: bytes
    raw: bytes
    """The message's bytes as the client first sent them, or as our collected answer."""
    tokens: int
    """Counted tokens (not calibrated)."""
    at: float
    """Arrival, seconds since 1970, UTC."""
    sequence: int
    """The message's place in its chain, from 0: order never rests on the clock."""
    answer: bool = False
    """An answer that we gave; only below one of these is a session recognised without a header."""
    complete: bool = True
    """False for an answer that was cut off: in the transcript, never in a view."""
    reply: Reply | None = None
    """Of an answer to an appended turn that had a key."""
    scope: str = ""
    """Tag of the memory in which it was said, which alone may remember it; empty where none may."""
    person: str = ""
    """Whom its request named, where it may be remembered."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session's own record: what the last turn left, for the admin API and the next reader."""

    name: str
    """The header's value, or the id that we issued."""
    tenant: str
    created: float
    updated: float
    began_with: str = ""
    """The first words of its first user message; empty in records from before they were kept."""
    turns: int = 0
    tip: bytes = b""
    """Chain hash of the newest completed turn on the main line."""
    head: tuple[bytes, ...] = ()
    """The leading system and developer messages of the latest turn, as raw JSON."""
    dialect: str = "chat"
    """Name of that in which the messages are written.

    A record leaves out what is as by default, so those from before there was another dialect say the same.
    """
    lane: str = ""
    model: str = ""
    policy: str = ""
    chosen_by: str = ""
    """What chose the policy, in words; empty in records from before it was kept."""
    is_shadow: bool = False
    """Whether the last request was forwarded as it came, whatever was decided on it."""
    stage: str = "calm"
    tokens: int = 0
    """Tokens of the last view, calibrated; in shadow nobody got that."""
    full_tokens: int = 0
    """Tokens of the last request before pruning, calibrated."""
    budget: int = 0
    """Tokens; 0 where nothing is cut for its tokens."""
    window: int = 0
    """Tokens of the model's context window, as the last turn knew it; 0 where nobody knew it."""
    window_from: str = "unknown"
    ratio: float = 1.0
    head_tokens: int = 0
    """Counted tokens of the head: tools, response format, leading system messages."""
    exchanges: int = 0
    lacking: int = 0
    """Counted tokens that an epoch lacked to pay at the last turn, and waited for; 0 where none did."""
    newest_from: bytes = b""
    """Chain hash after which the newest appended turn stands."""
    newest_to: bytes = b""
    """Chain hash of the last message that the client appended in it; empty where it was not appended."""
    newest_key: str = ""
    """Digest of its Idempotency-Key."""
    unsaved: bytes = b""
    """Chain hash of an answer whose client was told that it is not saved; kept beside the record."""
    pins: tuple[bytes, ...] = ()
    """Chain hashes of the messages that the client has pinned; kept beside the record."""
    blocked: str = ""
    """Why turns wait: `paused`, `compacting`, or not at all; kept beside the record."""

    @property
    def is_compacting(self) -> bool:
        """Whether a compaction that a person asked for is under way."""
        return self.blocked == "compacting"


class HiddenCalls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands upstream in the place of one of our answers, in which we have answered calls ourselves.

    It replaces the client's version of the message in later views exactly while that has this chain hash.
    """

    hash: bytes
    """Chain hash of the answer as the client was told it."""
    messages: tuple[bytes, ...]
    """The assistant messages as the upstream said them, each followed by the results that we gave it."""
    tokens: int
    """Counted tokens of them all (not calibrated), framing included."""
    at: float
    """Seconds since 1970, UTC."""


class Joint(msgspec.Struct, frozen=True):
    """An answer by its words and its place alone: the same where the message that it answers has changed."""

    hash: bytes
    """:func:`proxy.core.conversation.messages.joint`, from where the last answer before it ends."""
    user: bytes
    """Chain hash of the user message that it answers."""
    first: str = ""
    """The tag under which it is noted where the session is kept, if that depends on what may change."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, dict=True):  # a dict for what is reckoned once
    """One turn to be recorded: the messages that were new in it, our answer, and the session after it."""

    session: Session
    nodes: tuple[Node, ...]
    """New messages in order, our answer last; each one's parent is known or stands before it."""
    advances_tip: bool
    """Whether ``session.tip`` may become the session's tip (an answer that was completed)."""
    headerless: bool
    """Recognised by its chain: its answers are entered in the index that finds it again."""
    begun_at: bytes | None = None
    """Of an appended turn, the session's tip when it began; None for a client that sends its history."""
    joint: Joint | None = None
    """Of a session without a header: what finds it again where the message before our answer has changed."""
    is_joined: bool = False
    """Whether its session was found so: it goes on from there, though messages before it are other ones."""
    is_late: bool = False
    """Whether it could not be written at its time: it waits for nothing more."""

    @cached_property
    def outer_parents(self) -> frozenset[bytes]:
        """Messages that it is said upon, and does not bring; the first of a chain is said upon none."""
        within = {node.hash for node in self.nodes}
        return frozenset({node.parent for node in self.nodes if node.sequence} - within)


# --- a session's tree of messages: each knows the one before it; a branch is the way to one from the root ---


def way_to(nodes: Mapping[bytes, Node], last: bytes, after: AbstractSet[bytes] = frozenset()) -> list[Node]:
    """The messages up to the one of chain hash ``last``, first to last.

    It begins behind those in ``after``, else at the root. Where messages are missing it begins after the gap:
    then the first one's ``sequence`` is not 0.
    """
    way: list[Node] = []
    while last not in after and (node := nodes.get(last)) is not None:
        way.append(node)
        last = node.parent
    return way[::-1]


# --- what stands upstream for an answer in which calls were hidden, in its place among a chain's messages ---


def outgoing_slices(
    raws: Sequence[bytes], hashes: Sequence[bytes], stand_ins: Mapping[bytes, Sequence[bytes]]
) -> Sequence[bytes]:
    """The messages with ``stand_ins`` in the place of some; several are one slice, joined by commas.

    So positions stay those of the chain, and an array joined from the slices holds all of the messages.
    """
    if not stand_ins:
        return raws
    return [
        b",".join(stand_ins[each]) if each in stand_ins else raw
        for raw, each in zip(raws, hashes, strict=True)
    ]


def single_messages(slices: Sequence[bytes], stand_ins: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """The single messages of such slices."""
    several = {b",".join(messages): messages for messages in stand_ins.values()}
    return [raw for each in slices for raw in several.get(each, (each,))]
