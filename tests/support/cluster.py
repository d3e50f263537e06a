"""A real cluster of three nodes on loopback, each with a third of the slots and nothing on disk."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.stores import Server, free_port, keys_without_ttl, serving, valkey_command, wait_until

SLOTS = 16384


@dataclass(frozen=True)
class Node:
    """One of the nodes."""

    server: Server
    port: int
    bus: int
    """The port for the connections between nodes."""

    @property
    def url(self) -> str:
        """The URL for commands to this node only."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def id(self) -> str:
        """The node's id in the cluster."""
        return self.server.run("CLUSTER", "MYID").decode()

    def send(self, to: Node, names: Iterable[str | bytes]) -> None:
        """Move keys of this node to another one."""
        for name in names:
            self.server.run("MIGRATE", "127.0.0.1", to.port, name, 0, 5000)


@dataclass(frozen=True)
class Nodes:
    """The cluster."""

    nodes: Sequence[Node]

    @property
    def url(self) -> str:
        """The URL of the cluster as a store."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def run(self, *command: str | bytes | float) -> list[Any]:
        """Run a command on each node."""
        return [node.server.run(*command) for node in self.nodes]

    def names(self) -> set[str]:
        """Return all keys."""
        return {name.decode() for names in self.run("KEYS", "*") for name in names}

    def keys_without_ttl(self) -> list[bytes]:
        return keys_without_ttl(*(node.server.url for node in self.nodes))

    def owner(self, key: str) -> Node:
        """Return the node that holds the slot of a key."""
        slot: int = self.nodes[0].server.run("CLUSTER", "KEYSLOT", key)
        held: list[Any] = self.nodes[0].server.run("CLUSTER", "SLOTS")
        (port,) = [primary[1] for first, last, primary, *_ in held if first <= slot <= last]
        return next(node for node in self.nodes if node.port == port)

    def hand_over(self, key: str, to: Node) -> None:
        """Move the slot of a key, with all of its keys, to another node."""
        with self.on_its_way(key, to):
            pass

    @contextmanager
    def on_its_way(self, key: str, to: Node, *first: str) -> Generator[None]:
        """Move a key's slot to another node; the block runs when only the keys ``first`` have moved."""
        slot: int = to.server.run("CLUSTER", "KEYSLOT", key)
        source = self.owner(key)
        to.server.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.server.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        source.send(to, first)
        yield
        source.send(to, source.server.run("CLUSTER", "GETKEYSINSLOT", slot, 1000))
        for node in (to, source):
            node.server.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)


def _node(stack: ExitStack) -> Node:
    port, bus = free_port(), free_port()
    own = ["--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(bus)]
    # A port comes after the one that every server is started with, and counts.
    return Node(stack.enter_context(serving(valkey_command(), *own, "--port", str(port))), port, bus)


@contextmanager
def replica_of(node: Node, cluster: Nodes) -> Generator[Node]:
    """Start a replica of a node, which may take over from it."""
    with ExitStack() as stack:
        replica = _node(stack)
        replica.server.run("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        known = str(len(cluster.nodes) + 1).encode()
        wait_until(lambda: b"cluster_known_nodes:" + known in replica.server.run("CLUSTER", "INFO"), 30)
        for each in (node, replica):
            each.server.run("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        replica.server.run("CLUSTER", "REPLICATE", node.id)
        wait_until(lambda: replica.server.run("INFO", "replication").get("master_link_status") == "up", 30)
        yield replica


def take_over(heir: Node, *others: Node) -> None:
    """Let a replica take over the slots of its primary, and wait until these nodes know."""
    heir.server.run("CLUSTER", "FAILOVER", "TAKEOVER")

    def has_heard(node: Node) -> bool:
        held: list[Any] = node.server.run("CLUSTER", "SLOTS")
        return heir.port in {primary[1] for _, _, primary, *_ in held}

    wait_until(lambda: all(map(has_heard, others)), 30)


@contextmanager
def three_nodes(*, serves_in_part: bool = False) -> Generator[Nodes]:
    """Yield a cluster of three nodes, once all of them know each other.

    With ``serves_in_part``, those that are left go on when one is away.
    """
    with ExitStack() as stack:
        cluster = Nodes([_node(stack) for _ in range(3)])
        bounds = [number * SLOTS // 3 for number in range(4)]
        for node, first, after in zip(cluster.nodes, bounds, bounds[1:], strict=False):
            node.server.run("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        first, *others = cluster.nodes
        for number, node in enumerate(others):
            node.server.run("CLUSTER", "SET-CONFIG-EPOCH", number + 2)
            node.server.run("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus)
        wait_until(lambda: all(b"cluster_state:ok" in told for told in cluster.run("CLUSTER", "INFO")), 30)
        if serves_in_part:
            cluster.run("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster
