"""Memory in one process: the parts of the engine, a scripted model, and a clock that the test sets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.watcher import LoadedPolicies, WatchedPolicies
from proxy.adapters.stores import open_store
from proxy.app import Dependencies, Engine, SystemClock, build_engine
from proxy.config import Settings
from proxy.core.conversation.records import Node, Session, Turn
from proxy.core.formats.json import dumps
from proxy.core.memory.records import About
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Incoming, Request
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.intake.naming import Envelope
from proxy.engine.memory.model import ModelAccess
from proxy.engine.memory.scope_cache import CachedScope
from proxy.engine.models.asking import CallOptions
from proxy.ports import Upstream, UpstreamResponse
from tests.support.clients import SECRET, write_policy
from tests.support.remembering import COMPRESSING, ITEMS, bullets_in, note, task_of
from tests.support.stores import HandClock
from tests.support.upstreams import COUNTER, Message, completion, count_tokens, said
from tests.support.world import outside

_MODEL = "gpt-4.1"
_LONG_AGO = 1_500_000_000.0
"""Time never goes back."""
_LINE = re.compile(r"^(\d+)\. \[[^\]]+\] [^:]+: (.+)$", re.MULTILINE)


@dataclass
class Whole:
    """An answer that is complete at once."""

    content: bytes
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.content

    async def aclose(self) -> None:
        """Nothing is open."""


def noted_in(text: str) -> list[Message]:
    """Return the items of a writer that leaves nothing out: every line of a transcript, literally."""
    return [{**note(line), "from": [int(number)]} for number, line in _LINE.findall(text)]


@dataclass
class Writer:
    """An upstream that writes memories by rule, after so many ``seconds``."""

    notes: Callable[[str], list[Message]] = noted_in
    seconds: float = 0.0
    calls: int = 0
    at_once: int = 0
    most_at_once: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0

    async def send(
        self, method: str, target: str, headers: object, body: Any, *, at_root: bool = False
    ) -> UpstreamResponse:
        return await self._asked(json.loads(body)) if body else Whole(b"{}", 404)

    async def _asked(self, body: Message) -> UpstreamResponse:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        answer = self._answer(task_of(body), body["messages"][-1]["content"])
        self.prompt_tokens += count_tokens(body)
        self.answer_tokens += COUNTER.count(answer)
        return Whole(json.dumps(completion(said(answer))).encode())

    def _answer(self, task: str, text: str) -> str:
        if task.startswith(ITEMS):
            return json.dumps({"items": self.notes(text)})
        if task.startswith(COMPRESSING):
            return text.splitlines()[1][:80]
        return "\n".join(f"- {line}" for line in bullets_in(text))

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class MemoryWorld:
    """Writes and reads memories with the parts of the engine."""

    inside: Engine
    outside: Dependencies
    clock: HandClock
    policy: Policy
    _threads: list[Any] = field(default_factory=list[Any])

    @property
    def reader(self) -> ModelAccess:
        """The caller and the policy for calls to the model."""
        return ModelAccess(CallOptions.for_summaries(self.policy.summary, _MODEL), self.policy)

    async def request(self, session: str, person: str, messages: Sequence[Message]) -> Request:
        """Return a prepared request; the first one of a session gets the memory briefing."""
        pipeline, headers = self.inside.pipeline, {b"x-unabridged-session": session.encode()}
        envelope = Envelope.read(pipeline.naming, "/chat/completions", headers, [])
        body = dumps({"model": _MODEL, "user": person, "messages": [*messages]})
        exchange = await pipeline.prepare(Incoming(envelope, body, self.policy, self.clock.now()))
        return exchange.request

    def home(self, request: Request) -> MemoryHome:
        """Return the memory home of a request."""
        assert request.home is not None
        return request.home

    async def converse(self, session: str, person: str, messages: Sequence[Message]) -> None:
        """Run a session with these messages, and have it remembered."""
        request = await self.request(session, person, messages)
        home, key = self.home(request), request.session.key
        turn = await self.recorded(request, session, person)
        about = About(tenant=home.tenant, name=home.name, policy=self.policy.name, model=_MODEL)
        await self.outside.store.memories.note(home.scope, key, turn.session.updated, about)
        await self.inside.memory_scheduler.read(key, home, self.reader)

    async def recorded(self, request: Request, session: str, person: str, exchanges: int = 0) -> Turn:
        """The turn of a request without an answer, once it is stored; of a session of so many exchanges."""
        scope, chain, now = self.home(request).scope, request.chain, self.clock.now()
        pairs = zip(chain.hashes, [b"", *chain.hashes], chain.raws, strict=False)
        nodes = [
            Node(
                hash=link,
                parent=parent,
                raw=raw,
                tokens=0,
                at=now + 60 * place,
                sequence=place,
                scope=scope.tag,
                person=person,
            )
            for place, (link, parent, raw) in enumerate(pairs)
        ]
        record = Session(
            name=session,
            tenant=self.home(request).tenant,
            created=now,
            updated=now,
            tip=chain.hashes[-1],
            model=_MODEL,
            exchanges=exchanges or chain.exchanges,
        )
        turn = Turn(session=record, nodes=tuple(nodes), advances_tip=True, headerless=False)
        await self.outside.store.record(request.session.key, turn, self.policy.store.ttl)
        return turn

    def told(self, request: Request) -> str:
        """Return the memory briefing of a request's session."""
        injection = request.history.injection
        return "" if injection is None else injection.memory

    async def recalled(self, request: Request, query: str, room: int) -> str:
        """Return the result of one recall."""
        return await self.inside.pipeline.memories.recalled(request, query, room)

    async def scope(self, request: Request) -> CachedScope:
        """Return the memory scope of a request."""
        return await self.inside.memory_scheduler.writer.scopes.remembered(self.home(request).scope)

    async def settled(self) -> None:
        """Wait until no work is in progress."""
        await self.inside.pipeline.background.drain()


@asynccontextmanager
async def memory_world(
    writer: Upstream, directory: Path, rules: str = "", store: str = "memory://", rest: float = 300.0
) -> AsyncGenerator[MemoryWorld]:
    """A world whose memories this writer writes, under a policy with these rules for memory.

    A session is over after ``rest`` seconds without a turn.
    """
    path = write_policy(directory, "remembering", f'extends = "default"\n[memory]\nenabled = true\n{rules}')
    clock, usual = HandClock(_LONG_AGO), outside(COUNTER)
    world = replace(
        usual,
        clock=cast("SystemClock", clock),
        store=open_store(store, clock, 15.0, 0.2),
        upstream=writer,
        policies=WatchedPolicies(LoadedPolicies.load(PolicyLibrary(), str(path)), usual.metrics),
    )
    settings = Settings(
        upstream="http://127.0.0.1:9/v1",
        secret=SecretStr(SECRET),
        upstream_key=SecretStr("operator"),
        background_calls=8,
        memory_rest=rest,
    )
    inside = build_engine(settings, world)
    try:
        yield MemoryWorld(inside, world, clock, world.policies.in_force.default)
    finally:
        await inside.pipeline.background.drain()
        await world.search.aclose()
        await world.store.aclose()
