"""A Redis Cluster as one client: each command goes to the node that holds the slot of its key.

Keeps the rules of :mod:`proxy.adapters.stores.redis.connection`: nothing is sent again after a fault, calls
wait for a free connection, and the loop is never blocked. Redis-py's own cluster client (8.1) keeps none of
them: it runs each command of a transaction in a thread and waits for that, repeats what a slot on its way
refuses, and takes no connections of ours; ten tests of `tests/contract/test_cluster.py` fail over it.
What is sent again is what a node refused because its slot had moved (MOVED; cluster specification,
"Redirection"). While a slot is on its way (ASK) its sessions are refused, for a script would find half of its
keys.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.crc import key_slot
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import MovedError, RedisClusterException, RedisError, ResponseError

from proxy.adapters.stores.redis.distance import Distance

_T = TypeVar("_T")
_Command = tuple[tuple[Any, ...], Mapping[str, Any]]
"""A command's words, and how redis-py reads its answer."""

_EVERYWHERE: Final = "PING"
"""What is said to every node, having no key."""

_ASKED: Final = 4
"""How many nodes may be asked for the slots within the time of making a connection and one trip."""


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int


class _Slots(NamedTuple):
    """A range of slots, and who holds it."""

    first: int
    last: int
    owner: Address


class Cluster(Redis):
    """The client of a whole cluster. `seed` leads to any node; `distance` is that of its nodes."""

    def __init__(self, seed: BlockingConnectionPool, distance: Distance) -> None:
        super().__init__(connection_pool=seed)  # pyright: ignore[reportUnknownMemberType]
        self._seed = seed
        self._distance = distance
        self._nodes: dict[Address, Redis] = {}
        self._slots: list[_Slots] = []
        self._sources: deque[Address] = deque([_address(seed)])
        self._is_known = False
        self._learning = asyncio.Lock()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node that holds its key's slot; one without a key to every node."""
        if args[0] == _EVERYWHERE:
            await self._know()
            nodes = list(self._nodes.values())
            answers = await asyncio.gather(*(self.guarded(_sent(node, (args, options))) for node in nodes))
            return answers[0]

        async def send() -> Any:
            return await _sent(await self.owner(_slot(args)), (args, options))

        return await self.following(send)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: FBT001, FBT002
        """Commands in one trip to each node that they concern; in a transaction that is one."""
        return _Pipeline(self, transaction=transaction)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001
        for node in self._nodes.values():
            await node.aclose()
        await self._seed.aclose()

    async def run(self, commands: Sequence[_Command], *, transaction: bool) -> list[Any]:
        """The answers to commands, in their order; a refusal is an answer."""
        if transaction:
            (slot,) = {_slot(words) for words, _ in commands}

            async def send() -> list[Any]:
                return await _pipelined(await self.owner(slot), commands, transaction=True)

            return await self.following(send)
        parts: dict[Redis, list[int]] = defaultdict(list)
        for number, (words, _) in enumerate(commands):
            parts[await self.owner(_slot(words))].append(number)
        answers: dict[int, Any] = {}
        for node, numbers in parts.items():
            answered = await self.guarded(_pipelined(node, [commands[number] for number in numbers]))
            answers |= zip(numbers, answered, strict=True)
        for number, (words, options) in enumerate(commands):
            if isinstance(answers[number], MovedError):
                self._moved(answers[number])
                answers[number] = await self.execute_command(*words, **options)
        return [answers[number] for number in range(len(commands))]

    async def following(self, send: Callable[[], Awaitable[_T]]) -> _T:
        """Send, and once more where the slot has moved."""
        with suppress(MovedError):
            return await self.guarded(send())
        return await self.guarded(send())

    async def guarded(self, answer: Awaitable[_T]) -> _T:
        """An answer; where none comes, or a slot has moved, the slots are asked for by the next call."""
        try:
            return await answer
        except MovedError as moved:
            self._moved(moved)
            raise
        except ResponseError:
            raise
        except BaseException:
            self._is_known = False
            raise

    # --- who holds what ---

    def _moved(self, moved: MovedError) -> None:
        """Ask whom the node has named: others may not have heard of it yet."""
        host: str = moved.host  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if host:  # else the node that answered does not know its own name
            self._sources.appendleft(Address(host, moved.port))
        self._is_known = False

    async def owner(self, slot: int) -> Redis:
        """The node that holds a slot. Raises RedisClusterException where none does."""
        await self._know()
        at = bisect_right(self._slots, slot, key=lambda slots: slots.first) - 1
        if at < 0 or slot > self._slots[at].last:
            self._is_known = False
            raise RedisClusterException("a slot is held by no node")
        return self._nodes[self._slots[at].owner]

    async def _know(self) -> None:
        """Ask one node after the other who holds which slots; the next time, begin with another."""
        if self._is_known:
            return
        async with self._learning:
            if self._is_known:
                return
            distance, asked = self._distance, min(len(self._sources), _ASKED)
            for _ in range(len(self._sources)):
                source = self._sources[0]
                self._sources.rotate(-1)
                try:
                    async with asyncio.timeout((distance.making.seconds + distance.trip.seconds) / asked):
                        found = await _sent(self._node(source), (("CLUSTER SLOTS",), {}))
                except ResponseError as refusal:
                    raise RedisClusterException("it is not a cluster") from refusal
                except (RedisError, OSError):
                    continue
                await self._take_slots(source, found)
                return
            raise ConnectionFailed("No node of the cluster answers.")

    async def _take_slots(self, source: Address, found: list[Any]) -> None:
        slots: list[_Slots] = []
        for first, last, (host, port, *_), *_ in found:  # the primary is named before its replicas
            name = host.decode() if host not in {None, b"", b"?"} else source.host  # it may not know its own
            slots.append(_Slots(first, last, Address(name, port)))
        owners = {each.owner for each in slots}
        gone = [self._nodes[address] for address in self._nodes.keys() - owners]
        self._nodes = {address: self._node(address) for address in owners}
        self._slots = sorted(slots)
        self._sources = deque(dict.fromkeys([*owners, _address(self._seed)]))
        self._is_known = True
        for node in gone:  # calls that are under way end there
            await node.connection_pool.disconnect(inuse_connections=False)

    def _node(self, address: Address) -> Redis:
        if address not in self._nodes:
            pool = BlockingConnectionPool(
                max_connections=self._seed.max_connections,
                timeout=self._seed.timeout,
                connection_class=self._seed.connection_class,
                **{**self._seed.connection_kwargs, **address._asdict()},
            )
            self._nodes[address] = Redis.from_pool(pool)
        return self._nodes[address]


class _Pipeline(Pipeline):
    """A pipeline whose commands may belong to several nodes.

    One that watches a key speaks to the node that holds it, over one connection, from WATCH to EXEC. A slot
    that moves in between is a refusal: what was read under the watch is to be read anew.
    """

    def __init__(self, cluster: Cluster, *, transaction: bool) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, transaction, None)
        self._cluster = cluster

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """Watch a key, or ask while one is watched."""
        run = cast("Any", super()).immediate_execute_command
        if self.watching:
            return await self._cluster.guarded(run(*args, **options))

        async def begin() -> Any:
            await self.reset()  # a connection to the node that held the slot before
            self.connection_pool = (await self._cluster.owner(_slot(args))).connection_pool
            return await run(*args, **options)

        return await self._cluster.following(begin)

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002
        """The answers, in order. Raises the first refusal, where it is to."""
        if self.watching:
            return await self._cluster.guarded(cast("Awaitable[list[Any]]", super().execute(raise_on_error)))
        commands, self.command_stack = self.command_stack, []
        answers = await self._cluster.run(commands, transaction=self.is_transaction) if commands else []
        for answer in answers if raise_on_error else ():
            if isinstance(answer, Exception):
                raise answer
        return answers


async def _sent(node: Redis, command: _Command) -> Any:
    words, options = command
    return await cast("Any", node).execute_command(*words, **options)


async def _pipelined(node: Redis, commands: Sequence[_Command], *, transaction: bool = False) -> list[Any]:
    async with node.pipeline(transaction=transaction) as pipe:
        for words, options in commands:
            pipe.execute_command(*words, **options)  # pyright: ignore[reportUnknownMemberType]
        return await pipe.execute(raise_on_error=False)


def _slot(words: Sequence[Any]) -> int:
    """The slot of a command's first key: the others share its hash tag."""
    key = words[3] if words[0].startswith("EVAL") else words[1]
    return key_slot(key.encode() if isinstance(key, str) else key)


def _address(pool: BlockingConnectionPool) -> Address:
    return Address(pool.connection_kwargs.get("host", "localhost"), pool.connection_kwargs.get("port", 6379))
