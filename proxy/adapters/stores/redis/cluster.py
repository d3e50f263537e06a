"""Routes commands: to the only server, or in a cluster to the node that holds the slot of the command's key.

Keeps the rules of :mod:`proxy.adapters.stores.redis.connection`: nothing is sent again after a fault, calls
wait for a free connection, and the event loop is never blocked. Redis-py's own cluster client (8.1) keeps
none of them: it runs each command of a transaction in a thread and waits for that, repeats commands refused
by a migrating slot, and cannot use our connection classes; ten tests of `tests/contract/test_cluster.py` fail
with it.
Commands are sent again only if a node refused them because their slot had moved (MOVED; cluster
specification, "Redirection"). While a slot is migrating (ASK), commands for its sessions fail, because a
script would find only half of its keys.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.crc import key_slot
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import (
    MovedError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from proxy.adapters.stores.redis.breaker import FOREIGN, Breaker, Rejected
from proxy.adapters.stores.redis.deadline import Deadline
from proxy.adapters.stores.redis.pool import Timeouts
from proxy.errors import StoreUnavailable

Word = str | bytes | float
Command = tuple[Word, ...]

_EVERYWHERE: Final = ("PING",)
"""The command that is sent to every node, because it has no key."""

_ASKED: Final = 4
"""How many nodes share the time of making one connection and one trip, when they are asked for the slots."""


class _Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _address(pool: BlockingConnectionPool) -> _Address:
    options = pool.connection_kwargs
    return _Address(options.get("host", "localhost"), options.get("port", 6379))


class Server:
    """One server, or a node of a cluster."""

    def __init__(self, pool: BlockingConnectionPool, timeouts: Timeouts, breaker: Breaker) -> None:
        self.pool = pool
        self._timeouts = timeouts
        self._breaker = breaker
        self._client = cast("Any", Redis.from_pool(pool))
        options = pool.connection_kwargs  # its URL may contain a password
        breaker.name = options.get("path") or str(_address(pool))

    async def run(
        self, commands: Sequence[Command], *, trips: int = 1, transaction: bool = False
    ) -> list[Any]:
        """Return the answers to commands in their order, as redis-py reads them; error replies included.

        Raises StoreUnavailable if they have no answer within the time of so many round trips, and
        ResponseError if the whole transaction is refused.
        """
        is_trial = self._breaker.admit()
        most = self._timeouts.of_call(trips, is_trial=is_trial)
        try:
            with Deadline(most, self._timeouts.trip.seconds) as deadline:
                answers = await self._answers(commands, deadline, transaction=transaction)
        except ResponseError:
            self._breaker.succeeded()
            raise
        except FOREIGN as failure:
            raise self._breaker.failed(failure) from failure
        self._breaker.succeeded()
        return answers

    async def _answers(
        self, commands: Sequence[Command], deadline: Deadline, *, transaction: bool
    ) -> list[Any]:
        async with self._client.pipeline(transaction=transaction and len(commands) > 1) as pipe:
            for words in commands:
                pipe.execute_command(*words)
            # While all connections are in use, their calls tell whether the server answers.
            deadline.is_answering = not self.pool.can_get_connection()
            pipe.connection = await cast("Any", self.pool).get_connection()
            pipe.connection.deadline = deadline
            return await pipe.execute(raise_on_error=False)

    async def aclose(self) -> None:
        await self._client.aclose()


class _Slots(NamedTuple):
    """A range of slots, and the node that holds it."""

    first: int
    last: int
    owner: _Address


class Cluster:
    """The nodes of a cluster. `seed` is a pool to any one of them; `timeouts` applies to all.

    Each node has a breaker of its own, so that a node that failed costs its own sessions alone; ``breaker``
    is that of the whole, for which no node answers.
    """

    def __init__(self, seed: BlockingConnectionPool, timeouts: Timeouts, breaker: Breaker) -> None:
        self._seed = seed
        self._first = _address(seed)
        self._timeouts = timeouts
        self._breaker = breaker
        breaker.name = str(self._first)
        self._nodes: dict[_Address, Server] = {}
        self._slots: list[_Slots] = []
        self._sources: deque[_Address] = deque([self._first])
        self._has_slots = False
        self._lock = asyncio.Lock()

    async def run(
        self, commands: Sequence[Command], *, trips: int = 1, transaction: bool = False
    ) -> list[Any]:
        """Do the same as :meth:`Server.run`, with one trip to each node that is concerned.

        The commands of a transaction must concern one node only. Commands that are refused because their
        slot has moved are sent once more. Raises ConnectionFailed or TimeoutError if no node answers, and
        StoreUnavailable if none holds the slot of a command.
        """
        self._breaker.admit()
        if commands[0] == _EVERYWHERE:
            await self._learn_slots()
            sent = (self._sent(node, commands, trips) for node in self._nodes.values())
            answers, *_ = await asyncio.gather(*sent)
        else:
            answers = await self._routed(commands, trips, transaction=transaction)
        moved = [number for number, answer in enumerate(answers) if isinstance(answer, MovedError)]
        if moved:
            again = await self._routed([commands[number] for number in moved], trips, transaction=transaction)
            for number, answer in zip(moved, again, strict=True):
                answers[number] = answer
        self._breaker.succeeded()
        return answers

    async def _routed(self, commands: Sequence[Command], trips: int, *, transaction: bool) -> list[Any]:
        parts: dict[Server, list[int]] = defaultdict(list)
        for number, words in enumerate(commands):
            # The slot is that of the first key; the command's other keys share the hash tag.
            key = words[3] if str(words[0]).startswith("EVAL") else words[1]
            slot = key_slot(key if isinstance(key, bytes) else str(key).encode())
            await self._learn_slots()
            at = bisect_right(self._slots, slot, key=lambda slots: slots.first) - 1
            if at < 0 or slot > self._slots[at].last:
                self._has_slots = False
                raise StoreUnavailable("The store cannot be used: a slot is held by no node.")
            parts[self._nodes[self._slots[at].owner]].append(number)
        answers: dict[int, Any] = {}
        for node, numbers in parts.items():
            part = [commands[number] for number in numbers]
            answers |= zip(numbers, await self._sent(node, part, trips, transaction=transaction), strict=True)
        return [answers[number] for number in range(len(commands))]

    async def _sent(
        self, node: Server, commands: Sequence[Command], trips: int, *, transaction: bool = False
    ) -> list[Any]:
        """Return a node's answers. If it sends none, or a slot has moved, the next call reads the slots."""
        try:
            answers = await node.run(commands, trips=trips, transaction=transaction)
        except MovedError as moved:  # raised for a transaction; no command of it was executed
            answers = [moved] * len(commands)
        except BaseException as failure:
            self._has_slots = self._has_slots and isinstance(failure, ResponseError | Rejected)
            raise
        for moved in (answer for answer in answers if isinstance(answer, MovedError)):
            host = cast("str", moved.host)  # pyright: ignore[reportUnknownMemberType]
            if host:  # empty if the node that answered does not know its own name
                # Next, ask the node to which the slot has moved: others may not know of the move yet.
                self._sources.appendleft(_Address(host, moved.port))
            self._has_slots = False
        return answers

    async def _learn_slots(self) -> None:
        """Read the slots from the first node that answers; the next time, begin with another node."""
        if self._has_slots:
            return
        most = self._timeouts.of_call(1, is_trial=False)
        async with asyncio.timeout(most), self._lock:
            if self._has_slots:
                return
            asked = min(len(self._sources), _ASKED)
            for _ in range(len(self._sources)):
                source = self._sources[0]
                self._sources.rotate(-1)
                try:
                    async with asyncio.timeout(most / asked):
                        (found,) = await self._node(source).run([("CLUSTER SLOTS",)])
                except (StoreUnavailable, RedisError, OSError):
                    continue
                if isinstance(found, NoPermissionError):
                    raise found
                if isinstance(found, ResponseError):
                    raise RedisClusterException("it is not a cluster") from found
                await self._take_slots(source, found)
                return
            raise ConnectionFailed("No node of the cluster answers.")

    async def _take_slots(self, source: _Address, found: list[Any]) -> None:
        slots: list[_Slots] = []
        for first, last, (host, port, *_), *_ in found:  # each range lists its primary before its replicas
            name = host.decode() if host not in {None, b"", b"?"} else source.host  # unknown to the node
            slots.append(_Slots(first, last, _Address(name, port)))
        owners = {each.owner for each in slots}
        gone = [self._nodes[address] for address in self._nodes.keys() - owners]
        self._nodes = {address: self._node(address) for address in owners}
        self._slots = sorted(slots)
        self._sources = deque(dict.fromkeys([*owners, self._first]))
        self._has_slots = True
        for node in gone:  # calls under way keep their connections until they end
            await node.pool.disconnect(inuse_connections=False)

    def _node(self, address: _Address) -> Server:
        if address not in self._nodes:
            pool = BlockingConnectionPool(
                max_connections=self._seed.max_connections,
                timeout=self._seed.timeout,
                connection_class=self._seed.connection_class,
                **{**self._seed.connection_kwargs, **address._asdict()},
            )
            self._nodes[address] = Server(pool, self._timeouts, self._breaker.another())
        return self._nodes[address]

    async def aclose(self) -> None:
        for node in self._nodes.values():
            await node.aclose()
        await self._seed.aclose()
