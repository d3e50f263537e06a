"""The stored records of a session: one for each message, and one for the session as a whole.

A message's key is its chain hash, so writing it twice has no further effect (no turn twice). A session is a
tree: each record names its parent, and a branch is the path from a tip to the root.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

import msgspec

from proxy.core.dialects.answers import Reply


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message of a transcript, at one place in the tree."""

    hash: bytes
    parent: bytes
    raw: bytes
    """The message's bytes, as the client first sent them or as collected from the upstream's answer."""
    tokens: int
    """Counted tokens (not calibrated)."""
    at: float
    """Time of arrival in seconds since 1970, UTC."""
    sequence: int
    """The message's position in its chain, from 0, so that the order never depends on the clock."""
    answer: bool = False
    """Whether the proxy sent it as an answer; a session without a header is recognised only after one."""
    complete: bool = True
    """False for an answer that was cut off: it is in the transcript, never in a view."""
    reply: Reply | None = None
    """How it was sent, if it answers an appended turn with an Idempotency-Key."""
    scope: str = ""
    """Tag of the only memory scope that may remember the message; empty where none may."""
    person: str = ""
    """The person that its request named, if the message may be remembered."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session's own record: its state after the last turn, for the admin API and the next request."""

    name: str
    """The header's value, or the id that the proxy issued."""
    tenant: str
    former: tuple[str, ...] = ()
    """The ids that it had under old secrets, the newest last: what was learned from it names it by these."""
    created: float
    updated: float
    began_with: str = ""
    """The first words of its first user message; empty in records older than this field."""
    turns: int = 0
    tip: bytes = b""
    """Chain hash of the newest completed turn on the main line."""
    head: tuple[bytes, ...] = ()
    """The leading system and developer messages of the latest turn, as raw JSON."""
    dialect: str = "chat"
    """Name of the dialect in which the messages are written.

    Records omit default values, so records older than this field mean the same.
    """
    lane: str = ""
    model: str = ""
    policy: str = ""
    chosen_by: str = ""
    """What chose the policy, in words; empty in records older than this field."""
    is_shadow: bool = False
    """Whether the last request was in shadow: forwarded unchanged, whatever was decided."""
    stage: str = "calm"
    tokens: int = 0
    """Tokens of the last view, calibrated; in shadow that view was not sent."""
    full_tokens: int = 0
    """Tokens of the last request before pruning, calibrated."""
    budget: int = 0
    """The budget in tokens; 0 where there is none."""
    window: int = 0
    """Tokens of the model's context window, as known at the last turn; 0 where unknown."""
    window_from: str = "unknown"
    ratio: float = 1.0
    head_tokens: int = 0
    """Counted tokens of the head: tools, response format, leading system messages."""
    tool_tokens: int = 0
    """How many of them are the proxy's own tool, whose room is kept also where it is not sent."""
    exchanges: int = 0
    lacking: int = 0
    """Counted tokens that were missing for a waiting epoch to pay at the last turn; 0 where none waited."""
    newest_from: bytes = b""
    """Chain hash of the message that the newest appended turn follows."""
    newest_to: bytes = b""
    """Chain hash of the last message that the client appended in that turn; empty where none was appended."""
    newest_key: str = ""
    """Digest of that turn's Idempotency-Key."""
    forked_at: bytes = b""
    """Chain hash of the last message that was copied from another session; empty where none was."""
    unsaved: bytes = b""
    """Chain hash of an answer that the client was told is not saved; stored beside the record."""
    pins: tuple[bytes, ...] = ()
    """Chain hashes of the messages that the client has pinned; stored beside the record."""
    blocked: str = ""
    """Why turns wait: `paused` or `compacting`; empty where they do not. Stored beside the record."""

    @property
    def is_compacting(self) -> bool:
        """Whether a compaction requested by a person is in progress."""
        return self.blocked == "compacting"


class HiddenCalls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the upstream gets in place of an answer in which the proxy answered tool calls itself.

    In later views it replaces the client's version of the message, as long as that has this chain hash.
    """

    hash: bytes
    """Chain hash of the answer as the client got it."""
    messages: tuple[bytes, ...]
    """The assistant messages as the upstream wrote them, each followed by the proxy's tool results."""
    tokens: int
    """Counted tokens of all these messages (not calibrated), including framing."""
    own_tool_tokens: int = msgspec.field(default=0, name="ours")
    """Those of calls of the proxy's own tools and of their results; 0 in records older than this field.

    Without the proxy they would not be there, while any other result would have come from the client.
    """
    at: float
    """Seconds since 1970, UTC."""


class Joint(msgspec.Struct, frozen=True):
    """Identifies an answer by its content and its place, even if the message that it answers has changed."""

    hash: bytes
    """:func:`proxy.core.conversation.messages.joint`, with the end of the previous answer as its start."""
    user: bytes
    """Chain hash of the user message that it answers."""
    first: str = ""
    """Tag of the entry that says where the session is stored, if that place depends on what may change."""


class Suffix(msgspec.Struct, frozen=True):
    """A place in a session from which a client may go on that has dropped all messages before it."""

    tag: str
    """The tag of the session's key."""
    before: bytes
    """Chain hash of the last message before the place."""
    length: int
    """Number of messages before the place."""
    exchanges: int
    """Number of final answers among them."""


FROM_START = Suffix("", b"", 0, 0)
"""The place of a request that has dropped nothing."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, dict=True):  # the dict holds cached properties
    """One turn to be recorded: its new messages, the answer, and the session's record after it."""

    session: Session
    nodes: tuple[Node, ...]
    """New messages in order, the answer last; each one's parent is stored or comes before it."""
    advances_tip: bool
    """Whether ``session.tip`` may become the session's tip (an answer that was completed)."""
    headerless: bool
    """Whether the session is recognised by its chain, so that its answers go into the index for that."""
    begun_at: bytes | None = None
    """The session's tip when an appended turn began; None for a client that sends its history."""
    joint: Joint | None = None
    """Finds a session without a header again if the message before the proxy's answer has changed."""
    is_joined: bool = False
    """Whether the session was found by a joint: the turn continues it, though earlier messages differ."""
    suffixes: Mapping[str, Suffix] = {}
    """Places from which later requests may go on, each by the tag of the entry that tells of it."""
    is_late: bool = False
    """Whether the turn could not be written in time. It waits for nothing else then, and is not written where
    its session was deleted since it was answered."""
    may_have_ended: bool = False
    """Whether the session was known and the store could not be asked for it: where it has ended, the turn is
    not written."""

    @cached_property
    def outer_parents(self) -> frozenset[bytes]:
        """Parents of the new messages that are not among them; the first message of a chain has no parent."""
        within, parents = set[bytes](), set[bytes]()
        for node in self.nodes:
            within.add(node.hash)
            if node.sequence:
                parents.add(node.parent)
        return frozenset(parents - within)


# --- a session's tree of messages: each names its parent; a branch is the path from the root to a message ---


def path_to(nodes: Mapping[bytes, Node], last: bytes, after: AbstractSet[bytes] = frozenset()) -> list[Node]:
    """Return the messages up to the one with chain hash ``last``, in order.

    They begin after the nearest message in ``after``, else at the root. If a message is missing, they begin
    after that gap, and the ``sequence`` of the first is not 0.
    """
    way: list[Node] = []
    while last not in after and (node := nodes.get(last)) is not None:
        way.append(node)
        last = node.parent
    return way[::-1]


def outgoing_slices(raws: Sequence[bytes], hidden: Mapping[int, HiddenCalls]) -> Sequence[bytes]:
    """Put in the place of answers, by position, what the upstream gets for them, joined by commas.

    So positions stay those of the chain, and an array joined from the slices holds all of the messages.
    """
    if not hidden:
        return raws
    slices = [*raws]
    for place, each in hidden.items():
        slices[place] = b",".join(each.messages)
    return slices
