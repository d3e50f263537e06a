"""The daily run of memories before a scripted model, by a clock that moves when it is told to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import CacheMemory, Lru
from proxy.core.dialects.registry import DIALECTS
from proxy.core.memory.records import About, Archived, Item, Scope, ScopeKind, Texts
from proxy.core.policy.policy import Policy, PolicySet
from proxy.core.policy.sections import Memory as Rules
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.background import Background
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.maintenance import Maintenance
from proxy.engine.memory.model import MemoryModel, ModelAccess
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.engine.memory.writer import MemoryWriter
from proxy.engine.models.asking import CallOptions
from proxy.ports import Changes, SessionKey
from tests.support.asking import asking
from tests.support.memories import DAY, NOW, forgetting_in
from tests.support.remembering import RememberingModel
from tests.support.stores import HandClock, turn
from tests.support.upstreams import COUNTER, giving_way

PERSON = Scope(ScopeKind.PERSON, "aa")
WORKSPACE = Scope(ScopeKind.WORKSPACE, "ee")
KEY = SessionKey("cc", "named")
OPERATOR = [(b"authorization", b"Bearer sk-operator")]
YEAR = 365 * DAY


@dataclass
class Place:
    """One process, or several, before one store and one model."""

    model: RememberingModel
    rules: Rules = field(default_factory=lambda: Rules(enabled=True))
    clock: HandClock = field(default_factory=lambda: HandClock(NOW))
    credentials: Sequence[tuple[bytes, bytes]] = ()
    kept_in: InProcessStore | RedisStore | None = None

    def __post_init__(self) -> None:
        self.store = self.kept_in or InProcessStore(self.clock)
        self.memories, self.upstream = self.store.memories, HttptoolsUpstream(self.model.url)
        self.background = Background()

    def process(self) -> Maintenance:
        memory = CacheMemory()
        questions = MemoryModel(asking(self.upstream), giving_way(self.clock, quiet=0.0), COUNTER)
        sources = Conversations(self.store, DIALECTS, memory)
        writer = MemoryWriter(ScopeCache(self.memories, memory), sources, questions, COUNTER, self.clock)
        policies = PolicySet(Policy(memory=self.rules))
        return Maintenance(
            writer,
            lambda: policies,
            self.background,
            Lru(memory),
            rest=300.0,
            credentials=self.credentials,
            look=0.01,
        )

    @property
    def reader(self) -> ModelAccess:
        return ModelAccess(CallOptions("gpt-test", OPERATOR, 5.0), Policy(memory=self.rules))

    @property
    def forgetting(self) -> Forgetting:
        """What forgets these memories when a person asks for it."""
        return forgetting_in(self.store, self.clock)

    async def know(
        self, *items: Item, scope: Scope = PERSON, texts: Texts | None = None, **about: Any
    ) -> None:
        """Let a scope have these items and texts."""
        await self.memories.note(scope, KEY, self.clock.now(), About(tenant="t", name="ana", **about))
        await self.know_more(*items, scope=scope, texts=texts)

    async def know_more(self, *items: Item, scope: Scope = PERSON, texts: Texts | None = None) -> None:
        """Let a scope that there is have these items and texts."""
        version = (await self.memories.remembered(scope)).version
        changes = Changes(items={item.id: item for item in items}, texts=texts)
        assert await self.memories.change(scope, changes, version)

    async def items(self, scope: Scope = PERSON) -> dict[str, Item]:
        found = (await self.memories.remembered(scope)).items
        return {name: item for name, item in found.items() if item is not None}

    async def archive(self) -> Sequence[Archived]:
        return [*(await self.memories.archive(PERSON)).values()]


async def said(place: Place, key: SessionKey, *texts: str) -> None:
    """Record a session in which a user says these things, and is answered."""
    names = [f"{kind}{number}" for number, _ in enumerate(texts) for kind in "ua"]
    recorded = turn(*names, updated=place.clock.now(), model="gpt-test", policy="default")
    raws = [
        json.dumps({"role": role, "content": content}).encode()
        for text in texts
        for role, content in (("user", text), ("assistant", "Noted."))
    ]
    at = place.clock.now()
    nodes = tuple(
        replace(node, raw=raw, at=at, scope=PERSON.tag, person="ana")
        for node, raw in zip(recorded.nodes, raws, strict=True)
    )
    await place.store.record(key, replace(recorded, nodes=nodes), YEAR)


async def reading(place: Place, *texts: str) -> None:
    """Have a session to read, of which a person says these things."""
    about = About(tenant="t", name="ana", since=place.clock.now())
    await place.memories.note(PERSON, KEY, place.clock.now(), about)
    await said(place, KEY, *texts)
    place.clock.time += 400.0
