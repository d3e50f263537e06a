"""Real stores for tests: servers on unix sockets, and a clock that the test sets."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis

from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.embedded import EmbeddedValkey, server_binary
from proxy.core.conversation.records import HiddenCalls, Joint, Node, Session, Suffix, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import Lookup, LookupResult, SessionKey, SessionStore
from tests.support.servers import listener

DAY = 86_400.0
KEY = SessionKey("aa", "01")
OTHER = SessionKey(KEY.tag, "02")
THIRD = SessionKey(KEY.tag, "03")
STRANGER = SessionKey("bb", KEY.sid)


@dataclass
class HandClock:
    """A clock that moves only when the test moves it."""

    time: float = 1_700_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


async def pass_time(clock: HandClock, seconds: float) -> None:
    clock.time += seconds
    await asyncio.sleep(seconds)  # servers have a clock of their own


@dataclass
class Server:
    """A server that a test may stop, freeze, fill and start again; nothing of it is kept on disk."""

    command: list[str]
    socket: Path
    options: list[str] = field(default_factory=list[str])
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.command, "--port", "0", "--unixsocket", str(self.socket), "--save", "", *self.options],
            cwd=self.socket.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(lambda: answers(self.socket))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def run(self, *command: str | bytes | float) -> Any:
        """Run a command."""
        return run(self.url, *command)


@dataclass(frozen=True)
class Site:
    """A store's URL, and the URLs of its servers."""

    url: str
    servers: Sequence[str]


def wait_until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def is_left_alone(store: RedisStore) -> bool:
    """Whether the store does not call its server for a while, after a failure."""
    return store._connection._breaker.is_open  # pyright: ignore[reportPrivateUsage]


def free_port() -> int:
    with listener() as probe:
        return int(probe.getsockname()[1])


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def run(url: str, *command: str | bytes | float) -> Any:
    """Run a command, and return the server's answer."""
    client = cast("Any", redis.Redis).from_url(url)
    try:
        return client.execute_command(*command)
    finally:
        client.close()


def valkey_command() -> list[str]:
    return [str(server_binary())]


@contextmanager
def serving(command: list[str], *options: str) -> Generator[Server]:
    """Run a server in a temporary directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ua-") as directory:
        server = Server(command, Path(directory) / "s", list(options))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextmanager
def embedded_valkey() -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="ua-") as directory:
        valkey = EmbeddedValkey(Path(directory))
        valkey.start()
        try:
            yield valkey.url
        finally:
            valkey.stop()


def redis_server_command() -> list[str] | None:
    path = shutil.which("redis-server")
    return [path] if path else None


SERVERS = ["valkey", *(["redis"] if redis_server_command() else []), "cluster"]
"""The installed servers, against which the contract tests run."""


def keys_without_ttl(*urls: str) -> list[bytes]:
    """The keys of a store that would never end, but for those of memories, which are to stay.

    They are those of every scope that is listed and not a thread's own, what tells the channels of a
    workspace, and the list itself.
    """
    held: dict[str, list[bytes]] = {url: run(url, "KEYS", "*") for url in urls}
    index = keys.session(keys.INDEX)
    staying = {index, index + keys.ENDS}
    for url in (url for url, names in held.items() if index.encode() in names):
        scopes = [member.decode().split("/") for member in run(url, "ZRANGE", index, 0, -1)]
        lasting = [keys.session(SessionKey(tag, keys.MEMORY)) for kind, tag in scopes if kind != "thread"]
        staying |= {name + part for name in lasting for part in ("", *keys.SCOPE_PARTS)}
    return [
        name
        for url, names in held.items()
        for name in names
        if name.decode() not in staying and not name.endswith(b":memory:channels")
        if run(url, "TTL", name) == -1
    ]


def dump(url: str) -> list[bytes]:
    """Return everything that a server stores: names of keys, values, fields, members and scores."""
    names: list[bytes] = run(url, "KEYS", "*")
    return [text for name in names for text in (name, *texts_in(url, name))]


def texts_in(url: str, name: bytes) -> list[bytes]:
    """Return every value, field, member and score of a key."""
    return _texts(_value(url, name))


def _value(url: str, name: bytes) -> Any:
    commands = {
        b"string": ("GET", name),
        b"hash": ("HGETALL", name),
        b"list": ("LRANGE", name, 0, -1),
        b"set": ("SMEMBERS", name),
        b"zset": ("ZRANGE", name, 0, -1, "WITHSCORES"),
    }
    kind = run(url, "TYPE", name)
    return run(url, *commands[kind]) if kind != b"none" else []  # it has expired since it was listed


def _texts(value: Any) -> list[bytes]:
    """Return the parts of a value, however it is nested."""
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, dict):
        return [text for pair in cast("dict[Any, Any]", value).items() for text in _texts(pair)]
    if isinstance(value, (list, tuple, set)):
        return [text for each in cast("list[Any]", value) for text in _texts(each)]
    return [str(value).encode()]


# --- what is written in tests ---


def chain(*names: str) -> list[bytes]:
    """Return readable chain hashes, from short names."""
    told = ("/".join(names[: i + 1]).encode() for i in range(len(names)))
    return [each.ljust(32, b".") if len(each) <= 32 else hashlib.sha256(each).digest() for each in told]


def nodes(*names: str, known: int = 0, complete: bool = True) -> tuple[Node, ...]:
    """A chain's nodes from number `known` on; a name that begins with `a` is an answer that we gave."""
    hashes = [b"", *chain(*names)]
    return tuple(
        Node(
            hash=hashes[i + 1],
            parent=hashes[i],
            raw=f'{{"role":"any","content":"{name}"}}'.encode(),
            tokens=10 + i,
            at=1_700_000_000.0 + i,
            sequence=i,
            answer=name.startswith("a"),
            complete=complete or not name.startswith("a"),
        )
        for i, name in enumerate(names)
        if i >= known
    )


def turn(
    *names: str,
    known: int = 0,
    headerless: bool = False,
    complete: bool = True,
    begun_at: bytes | None = None,
    joint: Joint | None = None,
    is_joined: bool = False,
    suffixes: Mapping[str, Suffix] | None = None,
    **session: Any,
) -> Turn:
    """A turn that ends a chain of these messages, the first `known` of them recorded before."""
    members: dict[str, Any] = {"name": "chat", "tenant": "t", "created": 1.0, "updated": 2.0} | session
    return Turn(
        session=Session(**members, tip=chain(*names)[-1]),
        nodes=nodes(*names, known=known, complete=complete),
        advances_tip=complete,
        headerless=headerless,
        begun_at=begun_at,
        joint=joint,
        is_joined=is_joined,
        suffixes=suffixes or {},
    )


def joint(*names: str, first: str = "") -> Joint:
    """The last of these messages, an answer of ours to the one before, by its place alone."""
    return Joint(hash=_place(names), user=chain(*names)[-2], first=first)


def _place(names: Sequence[str]) -> bytes:
    is_answer = len(names) > 1 and names[-1].startswith("a")
    return hashlib.sha256(repr((names[:-2], names[-1])).encode()).digest() if is_answer else b""


def epoch(name: str, parent: str = "", **members: Any) -> Epoch:
    usual: dict[str, Any] = {
        "number": 1,
        "lane": "lane",
        "reach": b"r" * 32,
        "depth": 1,
        "calm_below": 10,
        "at": 1_700_000_000.0,
        "stage": "compact",
        "reason": "full",
        "original_count": 9,
        "original_tokens": 900,
        "final_count": 3,
        "final_tokens": 300,
    }
    return Epoch(id=name, parent=parent, **(usual | members))


def hidden(*names: str, call: str = "one") -> HiddenCalls:
    """What stands upstream for the last of these messages, an answer of ours."""
    messages = (b'{"role":"assistant","tool_calls":["%b"]}' % call.encode(), b'{"role":"tool"}')
    return HiddenCalls(hash=chain(*names)[-1], messages=messages, tokens=12, at=1.0)


def lookup(*names: str, sid: str | None = KEY.sid, tag: str = KEY.tag, **members: Any) -> Lookup:
    """Ask for a chain of these messages, by header (`sid`) or by the chain alone (`sid=None`)."""
    newest = tuple(reversed(chain(*names)))
    joints = tuple(_place(names[:end]) for end in range(len(names), 0, -1)) if sid is None else ()
    others: dict[str, Any] = {"uncounted": newest, "lane": "lane", "joints": joints} | members
    return Lookup(tag=tag, sid=sid, newest=newest, **others)


async def found(store: SessionStore, *names: str, **members: Any) -> LookupResult:
    return await store.find(lookup(*names, **members))
