"""Looking into sessions: transcripts, views and why they are as they are. Read-only; serves the admin API.

What needs the processor for a long session is apart from what waits for the store: whoever serves others
meanwhile runs it in a thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.budget import Budget, stage_of
from proxy.core.identity import read_message
from proxy.core.messages import Content
from proxy.core.plan import EMPTY, Epoch, apply, in_force
from proxy.core.policy import Policy
from proxy.core.records import Node, Session
from proxy.core.situation import Chain, Situation
from proxy.errors import InvalidPolicy, NotFound
from proxy.ports import SessionKey, SessionStore, TokenCounter

_SEARCHED = 10_000
"""Sessions, the newest first, among which one is looked for by its name."""
_SHORTEST = 4
"""Characters of an id by which a session may be named."""


@dataclass(frozen=True)
class Cycle:
    """The newest exchange of a session."""

    user_question: str
    agent_messages: int
    final_answer: str | None


@dataclass(frozen=True)
class Inspected:
    """A session with its epochs."""

    id: str
    key: SessionKey
    session: Session
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Everything:
    """All that is kept of a session."""

    nodes: list[Node]
    """The whole tree, in the order of arrival."""
    epochs: Mapping[str, tuple[Epoch, ...]]
    """By lane."""


class Inspection:
    """Reads sessions for people."""

    def __init__(self, store: SessionStore, counter: TokenCounter, policies: Callable[[str], Policy]) -> None:
        self._store = store
        self._counter = counter
        self._policies = policies

    async def newest(self, limit: int) -> list[Inspected]:
        """The sessions used last."""
        found = await self._store.sessions(limit)
        return [await self._inspected(key, session) for key, session in found]

    async def find(self, name: str) -> Inspected:
        """A session by its id, or by its name or the beginning of its id where only one has that.

        An id may begin after its tenant, as short ids are shown. Raises NotFound.
        """
        parts = name.split(".")
        if len(parts) == 3:
            key = SessionKey(parts[1], parts[2])
            session = await self._store.session(key)
            if session is not None and session.tenant == parts[0]:
                return await self._inspected(key, session)
        listed = await self._store.sessions(_SEARCHED)
        meant = [found for found in listed if found[1].name == name]
        if not meant and len(name) >= _SHORTEST:
            meant = [found for found in listed if _begins_with(name, *found)]
        if len(meant) != 1:
            raise NotFound("More than one session has that name." if meant else "There is no such session.")
        return await self._inspected(*meant[0])

    async def read(self, key: SessionKey) -> Inspected:
        """A session as it is now. Raises NotFound."""
        session = await self._store.session(key)
        if session is None:
            raise NotFound("There is no such session.")
        return await self._inspected(key, session)

    async def _inspected(self, key: SessionKey, session: Session) -> Inspected:
        epochs = await self._store.epochs(key, session.lane)
        return Inspected(_id(key, session), key, session, epochs)

    async def everything(self, found: Inspected) -> Everything:
        """The whole tree, and the epochs of every lane."""
        nodes = await self._store.nodes(found.key)
        lanes = await self._store.lanes(found.key)
        epochs = {lane: await self._store.epochs(found.key, lane) for lane in lanes}
        return Everything(sorted(nodes.values(), key=lambda node: (node.at, node.sequence)), epochs)

    async def branch(self, found: Inspected, tip: str | None = None) -> list[Node]:
        """The messages from the root to a tip (hex; the session's own by default). Raises NotFound."""
        return _branch(await self._store.nodes(found.key), found.session, tip)

    async def transcript(self, found: Inspected, tip: str | None = None) -> list[tuple[int | None, Node]]:
        """A branch, numbered, with answers that were cut off, each after what it answered, without a number.

        Below the tip it goes on with the newest turn that was cut off, if there is one.
        """
        nodes = await self._store.nodes(found.key)
        branch = _branch(nodes, found.session, tip)
        cut_off = [node for node in nodes.values() if not node.complete]
        told: list[tuple[int | None, Node]] = []
        for number, node in enumerate(branch):
            is_tip = node is branch[-1]
            told.append((number, node))
            told += [(None, other) for other in cut_off if other.parent == node.hash and not is_tip]
        return told + [(None, node) for node in _cut_off_below(nodes, branch, cut_off)]

    def policy_of(self, session: Session) -> Policy:
        """The policy of a session's latest turn; the default one, where that is no more."""
        try:
            return self._policies(session.policy)
        except InvalidPolicy:
            return self._policies("")

    def situation(self, found: Inspected, branch: Sequence[Node]) -> tuple[Situation, Epoch | None]:
        """A branch under the plan in force for it."""
        session = found.session
        chain = _chain(branch)
        budget = Budget(max(session.budget, 1), session.ratio, session.head_tokens)
        counted = budget.head + sum(chain.tokens)
        epoch = in_force(found.epochs, chain.hashes, counted, chain.is_spared_by)
        policy = self.policy_of(session)
        return Situation(chain, epoch.plan if epoch else EMPTY, policy, budget, self._counter.count), epoch

    @staticmethod
    def view(found: Inspected, situation: Situation) -> list[bytes]:
        """What is forwarded of a branch: the head, then the chain as its plan leaves it."""
        return [*found.session.head, *apply(situation.plan, situation.chain.raws)]

    @staticmethod
    def stage(situation: Situation) -> str:
        """The stage of the view."""
        return stage_of(situation.budget.usage(situation.view), situation.policy.stages).value

    @staticmethod
    def cycle(branch: Sequence[Node]) -> Cycle | None:
        """The newest exchange of a branch; None where nobody has asked anything."""
        contents = [Content.of(node.raw) for node in branch]
        asked = [place for place, content in enumerate(contents) if content.role == "user"]
        if not asked:
            return None
        after = contents[asked[-1] + 1 :]
        is_answered = bool(after) and after[-1].role == "assistant" and not any(after[-1].tool_calls())
        return Cycle(contents[asked[-1]].text, len(after), after[-1].text if is_answered else None)


def _id(key: SessionKey, session: Session) -> str:
    return f"{session.tenant}.{key.tag}.{key.sid}"


def _begins_with(beginning: str, key: SessionKey, session: Session) -> bool:
    whole = _id(key, session)
    return whole.startswith(beginning) or whole.partition(".")[2].startswith(beginning)


def _branch(nodes: Mapping[bytes, Node], session: Session, tip: str | None) -> list[Node]:
    if tip:
        wanted = nodes.get(_unhex(tip))
        if wanted is None:
            raise NotFound("There is no such tip.")
    else:
        complete = (node for node in nodes.values() if node.complete)
        newest = max(complete, key=lambda node: (node.at, node.sequence), default=None)
        wanted = nodes.get(session.tip, newest)
    return list(_walk(nodes, wanted))[::-1]


def _cut_off_below(
    nodes: Mapping[bytes, Node], branch: Sequence[Node], cut_off: Sequence[Node]
) -> list[Node]:
    """The newest turn that hangs below the tip and was cut off in mid-answer."""
    for node in sorted(cut_off, key=lambda node: -node.at):
        path = list(_walk(nodes, node, until=branch[-1].hash))
        if path and path[-1].parent == branch[-1].hash:
            return path[::-1]
    return []


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _walk(nodes: Mapping[bytes, Node], node: Node | None, until: bytes = b"") -> Iterator[Node]:
    """From a node towards the root, up to and without the node of hash ``until``."""
    while node is not None and node.hash != until:
        yield node
        node = nodes.get(node.parent)


def _chain(branch: Sequence[Node]) -> Chain:
    return Chain(
        messages=[read_message(Content.of(node.raw)) for node in branch],
        raws=[node.raw for node in branch],
        tokens=[node.tokens for node in branch],
        hashes=[node.hash for node in branch],
    )
