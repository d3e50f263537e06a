"""A request's messages on their chain, and what this process knows of each of them.

Keeps law 8 (O(new)): a turn continues from what is known of the messages before it, and copies none of them.
"""

from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.messages import Message, joint_hash
from proxy.core.conversation.records import FROM_START, HiddenCalls, Joint, Suffix, outgoing_slices
from proxy.core.dialects.dialect import Body, Content
from proxy.core.persistent import PersistentList
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan, apply
from proxy.core.planning.reasoning import without_reasoning

_MESSAGE_BYTES = 256
"""Estimated bytes of a message, beside its texts."""
_IMAGE_BYTES = 4096
"""Estimated bytes of the image token counts of one message."""


class Appended(msgspec.Struct, frozen=True):
    """The place in its session of a turn that was sent without its history."""

    root: bytes
    """The root hash (h₀) of the session's chain."""
    begun_at: bytes
    """The session's tip before this turn; the turn moves the tip only from there."""
    after: bytes
    """Chain hash of the last message before the new ones."""
    retry_key: str
    """Digest of the request's Idempotency-Key; empty without one."""
    pins: tuple[int, ...] = ()
    """Positions of the messages that the client pins, counted from the end."""
    inject: Injection | None = None
    """What the client handed in for the session's beginning."""


# There are many of them, and they can be in no cycle: the collector need not visit them (gc=False).
class CachedMessage(msgspec.Struct, gc=False):
    """What this process knows of a message with certain bytes."""

    message: Message
    other: dict[str, int] | None
    """Tokens of the message's other parts (images, files, audio) by model; None where it has none."""
    text: int | None = None
    """Counted tokens of the message's text; None until they are counted."""

    @property
    def size(self) -> int:
        """Estimated bytes of the entry."""
        message = self.message
        texts = (message.role, *message.result_of, *message.calls)
        images = 0 if self.other is None else _IMAGE_BYTES
        return _MESSAGE_BYTES + images + sum(map(getsizeof, (message.calls, message.result_of, *texts)))


class NewMessage(NamedTuple):
    """A message that is not counted yet."""

    entry: CachedMessage
    raw: bytes
    content: Content | None = None
    """The decoded content, if it is at hand."""


class CachedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """The first messages of a conversation on their chain, as they were counted."""

    root: bytes
    """The root hash (h₀) of the chain."""
    head: tuple[bytes, ...]
    """The leading system and developer messages."""
    head_entries: tuple[CachedMessage, ...]
    entries: PersistentList[CachedMessage]
    """What is known of each message of the chain."""
    hashes: PersistentList[bytes]
    length: int
    """Number of these messages, head included."""
    tip: bytes
    """The chain hash after the last of them."""
    exchanges: int
    """Number of final answers among these messages."""
    model: str
    """The model for which the messages were counted."""
    counted: Chain
    """The part of the chain that is counted."""


class History(CachedPrefix, frozen=True, kw_only=True):
    """A request's messages on their chain: those counted before, and those after them."""

    body: Body
    raws: PersistentList[bytes]
    new: Sequence[NewMessage]
    """The messages that are not part of ``counted``."""
    uncounted: Mapping[bytes, CachedMessage]
    """The new messages whose text this process has not counted, by chain hash."""
    hidden: Mapping[int, HiddenCalls] = {}
    """What is sent in place of answers in which the proxy answered calls, by position."""
    injection: Injection | None = None
    """What was handed in for the session; it is sent between the head and the chain."""
    suffix: Suffix = FROM_START
    """Where the chain goes on in its session, if the client has dropped the messages before."""

    def with_hidden(self, hidden: Mapping[bytes, HiddenCalls], *, has_tool: bool) -> Self:
        """Return the history with the ``hidden`` calls of answers (by chain hash).

        Upstreams refuse calls in a request without tools. So where it has neither the proxy's (``has_tool``)
        nor any of the client's, answers with calls of the proxy's stay as the client has them.
        """
        has_tools = has_tool or self.body.has_tools
        sent = {place: each for place, each in hidden.items() if has_tools or not each.own_tool_tokens}
        hashes = self.hashes if sent else ()
        return replace(self, hidden={place: sent[each] for place, each in enumerate(hashes) if each in sent})

    @property
    def upstream_messages(self) -> Mapping[bytes, Sequence[bytes]]:
        """The messages that are sent upstream in place of one of the client's, by its chain hash."""
        return {hidden.hash: hidden.messages for hidden in self.hidden.values()}

    @property
    def outgoing(self) -> Sequence[bytes]:
        """The messages as they are sent; several that replace one are one slice with commas between."""
        return outgoing_slices(self.raws, self.hidden)

    @property
    def prelude(self) -> Sequence[bytes]:
        """The injection as messages, which are sent before these."""
        return self.injection.messages(self.counted.dialect) if self.injection else ()

    def edited_body(
        self,
        plan: Plan,
        unsigned: Sequence[int] = (),
        *,
        alternates: bool,
        tool: bytes = b"",
        length: int | None = None,
    ) -> bytes:
        """Return the body with what is added and without what the plan cuts; every other byte is unchanged.

        ``unsigned`` are positions of messages that are sent without their signed reasoning. ``alternates``
        says whether the model insists on alternating roles (law 1: else nothing is touched); ``tool`` is the
        proxy's own tool; ``length`` is the chain's length where its newest messages are left out.
        """
        dialect, prelude, outgoing = self.counted.dialect, self.prelude, self.outgoing[:length]
        outgoing = without_reasoning(outgoing, unsigned, dialect) if unsigned else outgoing
        view = apply(plan, outgoing)
        merged = dialect.alternating(view, plan.note_places, prelude) if alternates else [*prelude, *view]
        body = self.body.with_tool(tool) if tool else self.body
        return body.with_messages([*self.head, *merged])

    @property
    def first_words(self) -> str:
        """The text of the first user message."""
        messages = zip(self.raws, self.entries, strict=True)
        first = next((raw for raw, entry in messages if entry.message.role == "user"), b"{}")
        return self.counted.dialect.read(first).text

    @property
    def first_user(self) -> bytes:
        """Identity of the first user message, or of the first message where there is no user message."""
        for entry in self.entries:
            if entry.message.role == "user":
                return entry.message.identity
        return self.entries[0].message.identity if self.entries else b""

    def joint(self, answer: Message, end: int) -> Joint | None:
        """Return the joint that identifies an answer at position ``end`` by its place and its words alone.

        None where no user message stands between it and the answer before.
        """
        start, user = end, -1
        while start and (role := self.entries[start - 1].message.role) != "assistant":
            start -= 1
            if role == "user" and user < 0:
                user = start
        if user < 0:
            return None
        before, words = self.hashes[start - 1] if start else self.root, answer.spoken or answer.identity
        return Joint(joint_hash(before, words), self.hashes[user])

    def joint_at(self, place: int) -> Joint | None:
        """Return the joint of the answer at this position; None if the message is not an answer."""
        message = self.entries[place].message
        return self.joint(message, place) if message.role == "assistant" else None

    def joints(self, most: int) -> tuple[bytes, ...]:
        """Return the joints of the newest ``most`` messages, newest first; empty bytes if not an answer's."""
        last = len(self.hashes) - 1
        found = map(self.joint_at, range(last, max(last - most, -1), -1))
        return tuple([joint.hash if joint else b"" for joint in found])

    def raw_of(self, chain_hash: bytes) -> bytes:
        """Return a message by its chain hash; searched from the end, near which it is."""
        return self.raws[self.hashes.last_place(chain_hash)]

    def first_joint(self, answer: Message | None = None) -> bytes:
        """Return the joint hash of the first answer, or of ``answer`` where there is none yet.

        Empty bytes where there is no joint.
        """
        for place, entry in enumerate(self.entries):
            if entry.message.role == "assistant":
                found = self.joint_at(place)
                break
        else:
            found = self.joint(answer, len(self.entries)) if answer else None
        return found.hash if found else b""

    def own_tool_tokens(self, end: int | None = None) -> int:
        """Return the counted tokens of calls of the proxy's own tools, and their results, before ``end``."""
        return sum(each.own_tool_tokens for place, each in self.hidden.items() if end is None or place < end)
