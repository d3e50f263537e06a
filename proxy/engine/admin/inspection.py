"""Reads sessions for the admin API: transcripts, views, and why a view is as it is. Read-only.

Methods that wait for the store are asynchronous. The others compute the state of a possibly long session on
demand: a server should call them in a thread.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from proxy.core.budget.budget import Budget, Window, WindowSource, stage_of
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import HiddenCalls, Node, Session, outgoing_slices, path_to
from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.formats.splice import element_slices
from proxy.core.planning.chain import Chain
from proxy.core.planning.changes import as_requested
from proxy.core.planning.life import in_force, line_of
from proxy.core.planning.plan import EMPTY, Epoch, apply
from proxy.core.planning.reasoning import without_reasoning
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Summary
from proxy.core.recall.tool import carries_tool
from proxy.core.tool_cache.cache import ToolCache, ToolRules
from proxy.core.tool_cache.derive import derive, initial
from proxy.engine.models.asking import CallOptions
from proxy.engine.summaries.jobs import Missing, Owner, SummaryJobs
from proxy.errors import NotFound, RequestError
from proxy.ports import NAMED, Header, SessionKey, SessionStore, TokenCounter, UnreadableRecord

_SHORTEST = 4
"""The least number of characters of an id that may stand for it."""
_ID = re.compile(rf"(\w+)\.([0-9a-f]+)\.({NAMED}|[0-9a-f]+)")
"""A whole id; no key but a session's has a name of this form."""
_CANDIDATES = 20
"""How many sessions an error response lists if a name is ambiguous."""


class AmbiguousSession(RequestError):  # noqa: N818 - as in `proxy.errors`
    """A name matches several sessions; `candidates` has the id, name and beginning of each."""

    status = 409
    code = "ambiguous_session"

    def __init__(self, given: str, candidates: Sequence[Mapping[str, str]]) -> None:
        self.candidates: Sequence[Mapping[str, str]] = candidates
        super().__init__(f'"{given}" may mean {len(candidates)} sessions: give the whole id of one.')

    def body(self) -> dict[str, Any]:
        return {"error": {**super().body()["error"], "candidates": self.candidates[:_CANDIDATES]}}


class UnknownDialect(UnreadableRecord):
    """A session's messages are in a dialect that this release does not know."""

    default_message = "The session was written by a newer release of the proxy."
    reason = "newer_release"


@dataclass(frozen=True)
class Inspected:
    """A session with its epochs."""

    id: str
    key: SessionKey
    session: Session
    epochs: tuple[Epoch, ...]
    hidden: Mapping[bytes, HiddenCalls] = field(default_factory=dict[bytes, HiddenCalls])
    """Its answers with hidden calls, by chain hash."""

    def owner(self, rules: Summary, credentials: Sequence[Header] = ()) -> Owner:
        """Return the owner of the summaries of its latest lane; ``credentials`` allow writing summaries."""
        session = self.session
        caller = CallOptions.for_summaries(rules, session.model, credentials)
        return Owner(session.tenant, self.key, session.lane, caller)


@dataclass(frozen=True)
class NewestExchange:
    """The newest exchange of a session."""

    user_question: str
    agent_messages: int
    final_answer: str | None


class Everything(NamedTuple):
    """All messages and epochs that are stored of a session."""

    nodes: list[Node]
    """The whole tree, in the order of arrival."""
    epochs: Mapping[str, tuple[Epoch, ...]]
    """By lane."""


@dataclass(frozen=True)
class Inspection:
    """Reads sessions for the admin API."""

    dialects: Mapping[str, Dialect]
    store: SessionStore
    counter: TokenCounter
    policies: Callable[[str], Policy]
    """Returns a policy by its name; the default policy if there is none of that name."""
    summary_jobs: SummaryJobs
    searched: int = 10_000
    """How many sessions, newest first, are searched for a name."""

    async def newest(
        self, limit: int, since: float = 0.0, words: str = ""
    ) -> tuple[list[Inspected], Counter[str]]:
        """Return the sessions used last, and how many others cannot be read, by the reason.

        Only sessions used after ``since`` (seconds since 1970) are returned, and only those that contain all
        ``words`` in their name, model, policy, id or beginning.
        """
        listed = await self.store.sessions(self.searched if words else limit)
        found, left_out = list[Inspected](), Counter(listed.left_out)
        wanted = words.casefold().split()
        for key, session in listed.sessions:
            if session.updated <= since or len(found) == limit:
                break
            names = (session.name, session.model, session.policy, key.id_for(session.tenant))
            text = "\n".join([*names, session.began_with]).casefold()
            if not all(word in text for word in wanted):
                continue
            try:
                found.append(await self._listed(key, session))
            except UnreadableRecord as error:
                left_out[error.reason] += 1
        return found, left_out

    async def find(self, name: str) -> Inspected:
        """Return a session by its id, by its name, or by the beginning of its id, if only one matches.

        The tenant at the beginning of an id may be left out. Raises NotFound and AmbiguousSession.
        """
        if whole := _ID.fullmatch(name):
            key = SessionKey(whole[2], whole[3])
            session = await self.store.session(key)
            if session is not None and session.tenant == whole[1]:
                return await self._inspected(key, session)
        listed = await self.store.sessions(self.searched)
        meant = [found for found in listed.sessions if found[1].name == name]
        if not meant and len(name) >= _SHORTEST:
            for key, session in listed.sessions:
                whole = key.id_for(session.tenant)
                if whole.startswith(name) or whole.partition(".")[2].startswith(name):
                    meant.append((key, session))
        if not meant:
            among = ""
            if len(listed.sessions) == self.searched:
                among = f" among the {self.searched:,} used last; others are found by their whole id"
            elif unreadable := listed.left_out.total():
                among = f" among those that can be read; {unreadable} cannot"
            raise NotFound(f"There is no such session{among}.")
        if len(meant) > 1:
            candidates = [
                {"id": key.id_for(session.tenant), "name": session.name, "began_with": session.began_with}
                for key, session in meant
            ]
            raise AmbiguousSession(name, candidates)
        return await self._inspected(*meant[0])

    async def find_unrecorded(self, name: str) -> tuple[SessionKey, str]:
        """Return the key and the tenant of a session that has had no turn, by its whole id. Raises NotFound.

        Something may be stored of it nevertheless, or nothing.
        """
        whole = _ID.fullmatch(name)
        if whole is None or await self.store.session(key := SessionKey(whole[2], whole[3])) is not None:
            raise NotFound("There is no such session.")
        return key, whole[1]

    async def read(self, key: SessionKey) -> Inspected:
        """Return a session as it is now. Raises NotFound."""
        session = await self.store.session(key)
        if session is None:
            raise NotFound("There is no such session.")
        return await self._inspected(key, session)

    async def _inspected(self, key: SessionKey, session: Session) -> Inspected:
        hidden = {each.hash: each for each in await self.store.hidden(key)}
        return replace(await self._listed(key, session), hidden=hidden)

    async def _listed(self, key: SessionKey, session: Session) -> Inspected:
        epochs = await self.store.epochs(key, session.lane)
        return Inspected(key.id_for(session.tenant), key, session, epochs)

    async def everything(self, found: Inspected) -> Everything:
        """Return the whole tree of messages, and the epochs of every lane."""
        nodes = await self.store.nodes(found.key)
        lanes = await self.store.lanes(found.key)
        epochs = {lane: await self.store.epochs(found.key, lane) for lane in lanes}
        return Everything(sorted(nodes.values(), key=lambda node: (node.at, node.sequence)), epochs)

    async def branch(self, found: Inspected, tip: str | None = None) -> "Branch":
        """Return the branch from the root to a tip (hex; the session's own by default). Raises NotFound."""
        nodes = _branch(await self.store.nodes(found.key), found.session, tip)
        raw = await self.store.injection(found.key)
        return Branch(self, found, nodes, None if raw is None else Injection(raw))

    async def transcript(self, found: Inspected, tip: str | None = None) -> list[tuple[int | None, Node]]:
        """Return the numbered messages of a branch, and among them, numbered None, incomplete turns.

        A turn without a complete answer is incomplete; it follows the message that it was sent after. One
        that was sent after messages of another branch is listed in that branch's transcript alone.
        """
        nodes = await self.store.nodes(found.key)
        branch = _branch(nodes, found.session, tip)
        # Incomplete turns beside the branch: each ends in an answer that was cut off, or in a message of the
        # client that got no answer. They are listed after the message that they follow.
        shown = {node.hash for node in branch}
        inner = {node.parent for node in nodes.values()} | shown
        ends = [
            node for node in nodes.values() if node.hash not in inner and not (node.answer and node.complete)
        ]
        unanswered: defaultdict[bytes, list[Node]] = defaultdict(list)
        for end in sorted(ends, key=lambda node: (node.at, node.sequence)):
            path = path_to(nodes, end.hash, after=shown)
            if any(node.answer and node.complete for node in path):
                continue  # a turn of another branch
            place = unanswered[path[0].parent]
            place += [node for node in path if node not in place]
        root = branch[0].parent if branch else b""
        numbered: list[tuple[int | None, Node]] = [(None, node) for node in unanswered.get(root, ())]
        for number, node in enumerate(branch):
            numbered.append((number, node))
            numbered += [(None, other) for other in unanswered.get(node.hash, ())]
        return numbered

    def dialect_of(self, session: Session) -> Dialect:
        """Return the dialect of a session's messages. Raises UnknownDialect."""
        found = self.dialects.get(session.dialect)
        if found is None:
            raise UnknownDialect
        return found

    def policy_of(self, session: Session) -> Policy:
        """Return the policy of a session's latest turn; the default policy if that one is gone."""
        return self.policies(session.policy)


@dataclass(frozen=True)
class Branch:
    """A branch of a session, with everything derived from it, its plan in force and the current policy."""

    inspection: Inspection
    found: Inspected
    nodes: Sequence[Node]
    """The messages from the root to the tip."""
    injection: Injection | None = None
    """The session's injection."""

    @property
    def tip(self) -> str:
        """The chain hash of the last message, in hex; empty if there are no messages."""
        return self.nodes[-1].hash.hex() if self.nodes else ""

    @property
    def dialect(self) -> Dialect:
        return self.inspection.dialect_of(self.found.session)

    @property
    def situation(self) -> Situation:
        """The branch under the plan in force for it."""
        return self._in_force[0]

    @property
    def epoch(self) -> Epoch | None:
        """The epoch in force."""
        return self._in_force[1]

    @cached_property
    def _in_force(self) -> tuple[Situation, Epoch | None]:
        session, hidden = self.found.session, self.found.hidden
        chain = Chain.from_nodes(self.nodes, self.dialect)
        if hidden:
            hashes = enumerate(chain.hashes)
            chain = chain.with_hidden({place: hidden[each] for place, each in hashes if each in hidden})
        window = Window(session.window or None, WindowSource(session.window_from))
        sizes = (session.head_tokens, window, chain.last_user_tokens, chain.tokens.total, session.tool_tokens)
        budget = Budget(session.budget or None, session.ratio, *sizes)
        counted = budget.head + chain.tokens.total
        epoch = in_force(self.found.epochs, chain.hashes, counted, chain.keeps_open_part)
        policy, pins = self.inspection.policy_of(session), frozenset(session.pins)
        plan = epoch.plan if epoch else EMPTY
        return Situation(chain, plan, policy, budget, self.inspection.counter.count, pins=pins), epoch

    @cached_property
    def epochs(self) -> list[Epoch]:
        """The epochs that led to the one in force, oldest first, including that one."""
        return line_of(self.found.epochs, self.epoch)

    @property
    def tokens(self) -> int:
        """The size of its view, including the head, in the model's tokens."""
        situation, budget = self.situation, self.situation.budget
        unsent = 0 if carries_tool(situation.plan, situation.policy, self._ours) else budget.tool
        return budget.with_head(situation.view_tokens - unsent)

    @property
    def _ours(self) -> int:
        """Counted tokens of calls of the proxy's own tools, and their results."""
        hidden = self.found.hidden
        return sum(hidden[node.hash].own_tool_tokens for node in self.nodes if node.hash in hidden)

    @property
    def full_tokens(self) -> int:
        """The size of the whole branch and the head, in the model's tokens, had nothing been recalled."""
        budget = self.situation.budget
        return budget.with_head(self.situation.chain.tokens.total - self._ours - budget.tool)

    @property
    def stage(self) -> str:
        usage = self.situation.budget.usage(self.situation.view_tokens)
        return stage_of(usage, self.situation.policy.stages).value

    def missing(self) -> list[Missing]:
        """Return the gaps that have no summary, and why, as far as this process knows."""
        situation = as_requested(self.situation, self.found.epochs, self.epoch)
        return self.inspection.summary_jobs.missing(situation, self.found.owner(situation.policy.summary))

    def fresh(self) -> ToolCache:
        """Return the cache of tool results that are still fresh at the end of the branch."""
        injected = self.injection.tools if self.injection else ()
        rules = ToolRules(self.inspection.policy_of(self.found.session).tools)
        chain = self.situation.chain
        read = zip(chain.messages, chain.raws, chain.hashes, strict=True)
        upstream = {each.hash: each.messages for each in self.found.hidden.values()}
        return derive(initial(rules, injected), read, self.dialect, upstream).cache

    @property
    def prelude(self) -> Sequence[bytes]:
        """The messages that are always sent before the branch: system messages and the injection."""
        injected = self.injection.messages(self.dialect) if self.injection else ()
        return (*self.found.session.head, *injected)

    def view(self, epoch: Epoch | None) -> list[bytes]:
        """Return the messages that are forwarded: the prelude, and the branch with the plan of ``epoch``."""
        chain = self.situation.chain
        slices = outgoing_slices(chain.raws, chain.hidden)
        if epoch is not None and epoch.without_reasoning:
            slices = without_reasoning(slices, epoch.without_reasoning, self.dialect)
        several = {slices[place] for place in chain.hidden}
        view = apply(epoch.plan if epoch else EMPTY, slices)
        singles = (element_slices(b"[%b]" % each) if each in several else (each,) for each in view)
        return [*self.prelude, *(raw for each in singles for raw in each)]

    def newest_exchange(self) -> NewestExchange | None:
        """Return the newest exchange; None if there is no user message."""
        after = list[Content]()
        for node in reversed(self.nodes):
            content = self.dialect.read(node.raw)
            if content.role == "user":
                is_answered = bool(after) and after[0].role == "assistant" and not after[0].calls
                return NewestExchange(content.text, len(after), after[0].text if is_answered else None)
            after.append(content)
        return None


def _branch(nodes: Mapping[bytes, Node], session: Session, tip: str | None) -> list[Node]:
    if tip:
        try:
            wanted = bytes.fromhex(tip)
        except ValueError:
            wanted = b""
        if wanted not in nodes:
            raise NotFound("There is no such tip.")
    elif session.tip in nodes:
        wanted = session.tip
    else:
        complete = (node for node in nodes.values() if node.complete)
        newest = max(complete, key=lambda node: (node.at, node.sequence), default=None)
        wanted = newest.hash if newest else b""
    return path_to(nodes, wanted)
