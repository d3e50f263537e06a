"""A request's messages on their chain, and what this process knows of each of them.

Keeps law 8 (O(new)): a turn goes on from what is known of the messages before it, and copies none of it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.messages import Message, joint
from proxy.core.conversation.records import HiddenCalls, Joint, outgoing_slices
from proxy.core.dialects.dialect import Body, Content
from proxy.core.persistent import Grown, Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan, apply
from proxy.core.planning.reasoning import without_reasoning

NAME = 256
"""Characters of a model's name by which it is remembered: clients choose names of any length."""


class Appended(msgspec.Struct, frozen=True):
    """Where a turn stands that was sent without its history."""

    root: bytes
    """h₀ of the session's chain."""
    begun_at: bytes
    """The session's tip, from which this turn may move it."""
    after: bytes
    """Chain hash of the last message before the new ones."""
    retry_key: str
    """Digest of the request's Idempotency-Key; empty without one."""
    pins: tuple[int, ...] = ()
    """Its messages that the client pins, counted from the end."""
    inject: Injection | None = None
    """What came with it for the session to begin with."""


# Many are kept, and can be in no cycle: the collector need not visit them (gc=False).
class CachedMessage(msgspec.Struct, gc=False):
    """What this process knows of one message's bytes."""

    message: Message
    other: dict[str, int] | None
    """Tokens of its other parts (images, files, audio) by model; None where it has none."""
    text: int | None = None
    """Counted tokens of its text; None until it was counted."""


class NewMessage(NamedTuple):
    """A message that a request brings."""

    entry: CachedMessage
    raw: bytes
    content: Content | None = None
    """What was decoded of it, where that is at hand."""


class CachedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """The first messages of a conversation on their chain, as they were counted."""

    root: bytes
    """h₀ of the chain."""
    head: tuple[bytes, ...]
    """The leading system and developer messages."""
    head_entries: tuple[CachedMessage, ...]
    entries: Grown[CachedMessage]
    """The messages of the chain."""
    hashes: Grown[bytes]
    length: int
    """How many of the body's messages they are, head included."""
    tip: bytes
    """The chain hash after the last of them."""
    exchanges: int
    """Final answers among them."""
    model: str
    """For which they were counted."""
    counted: Chain
    """Those of them that were."""


class History(CachedPrefix, frozen=True, kw_only=True):
    """A request's messages on their chain: those that were counted before, and those after them."""

    body: Body
    raws: Grown[bytes]
    new: Sequence[NewMessage]
    """The messages after those that were counted."""
    uncounted: Mapping[bytes, CachedMessage]
    """Those of them whose text this process has not counted, by chain hash."""
    hidden: Mapping[int, HiddenCalls] = {}
    """What goes out in the place of our answers in which we have answered calls, by position."""
    injection: Injection | None = None
    """What was handed in for the session: it goes out between the head and the chain."""

    def completed(self, hidden: Mapping[bytes, HiddenCalls], injection: Injection | None) -> Self:
        """The same with what was handed in, and with what was ``hidden`` in its answers, by chain hash."""
        hashes = self.hashes if hidden else ()
        places = {place: hidden[each] for place, each in enumerate(hashes) if each in hidden}
        return replace(self, hidden=places, injection=injection)

    @property
    def upstream_messages(self) -> Mapping[bytes, Sequence[bytes]]:
        """The messages that stand upstream for one of the client's, by its chain hash."""
        return {hidden.hash: hidden.messages for hidden in self.hidden.values()}

    @property
    def outgoing(self) -> Sequence[bytes]:
        """The messages as they go out: several are one slice, with commas between them."""
        return outgoing_slices(self.raws, self.hashes, self.upstream_messages)

    @property
    def prelude(self) -> Sequence[bytes]:
        """What was handed in, as messages that go out before these."""
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
        """The body with what is put in, and without what a plan cuts; every other byte stays as it was.

        ``unsigned`` are positions of messages that go out without their signed reasoning. ``alternates`` says
        whether the model insists on alternating roles (law 1: else nothing is touched); ``tool`` is ours;
        ``length`` is that of the chain, where its newest messages are left out.
        """
        dialect, prelude, outgoing = self.counted.dialect, self.prelude, self.outgoing[:length]
        outgoing = without_reasoning(outgoing, unsigned, dialect) if unsigned else outgoing
        view = apply(plan, outgoing)
        merged = dialect.alternating(view, plan.note_places, prelude) if alternates else [*prelude, *view]
        body = self.body.with_tool(tool) if tool else self.body
        return body.with_messages([*self.head, *merged])

    @property
    def first_words(self) -> str:
        """What the first user message says."""
        messages = zip(self.raws, self.entries, strict=True)
        first = next((raw for raw, entry in messages if entry.message.role == "user"), b"{}")
        return self.counted.dialect.read(first).text

    @property
    def first_user(self) -> bytes:
        """Identity of the first user message (of the first message, where there is none)."""
        for entry in self.entries:
            if entry.message.role == "user":
                return entry.message.identity
        return self.entries[0].message.identity if self.entries else b""

    def joint(self, answer: bytes, end: int) -> Joint | None:
        """What names an answer (its identity) to the messages before number ``end`` by its place alone.

        None where no user message stands between it and the answer before.
        """
        start, user = end, -1
        while start and (role := self.entries[start - 1].message.role) != "assistant":
            start -= 1
            if role == "user" and user < 0:
                user = start
        if user < 0:
            return None
        return Joint(joint(self.hashes[start - 1] if start else self.root, answer), self.hashes[user])

    def joint_at(self, place: int) -> Joint | None:
        """The same of an answer that stands in the history; None where that message is none."""
        message = self.entries[place].message
        return self.joint(message.identity, place) if message.role == "assistant" else None

    def joints(self, most: int) -> tuple[bytes, ...]:
        """The joints beside its newest messages, at most so many, newest first; empty beside no answer."""
        last = len(self.hashes) - 1
        found = map(self.joint_at, range(last, max(last - most, -1), -1))
        return tuple([joint.hash if joint else b"" for joint in found])

    def raw_of(self, chain_hash: bytes) -> bytes:
        """One of its messages, by its chain hash; it is looked for from the end, near which it is."""
        return self.raws[self.hashes.last_place(chain_hash)]

    def first_joint(self, answer: bytes = b"") -> bytes:
        """That of the first answer, or of one (its identity) that comes now; empty where there is none."""
        for place, entry in enumerate(self.entries):
            if entry.message.role == "assistant":
                found = self.joint_at(place)
                break
        else:
            found = self.joint(answer, len(self.entries)) if answer else None
        return found.hash if found else b""

    def outgoing_chain(self, chain: Chain) -> Chain:
        """The chain with the tokens of what goes out in the place of our answers."""
        tokens = list(chain.tokens)
        for place, hidden in self.hidden.items():
            tokens[place] = hidden.tokens
        return replace(chain, tokens=Sizes.of(tokens))
