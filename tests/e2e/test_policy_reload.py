"""Policies that are edited while the server runs, seen from outside."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from proxy.adapters.files import watcher as watched
from tests.support.clients import Chat, Chats, proxying, tokens_of, told, write_policy
from tests.support.servers import PATIENCE, until
from tests.support.upstreams import Model

BUDGET = '[budget]\ntokens = {}\n[summary]\nenabled = false\nwait = "0s"\n'


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at files fifty times a second, not twice."""
    monkeypatch.setattr(watched, "_EVERY", 0.02)


@dataclass
class House:
    """A server whose policies a test edits."""

    url: str
    directory: Path
    client: httpx2.AsyncClient

    def edit(self, text: str, name: str = "mine") -> None:
        write_policy(self.directory, name, text)

    async def budget(self, policy: str = "") -> int | None:
        """The budget of a request under a policy; None where there is no such policy."""
        return await budget_at(self.client, self.url, policy)

    async def until(self, budget: int, policy: str = "") -> None:
        await until(budget, lambda: self.budget(policy))

    async def ready(self) -> dict[str, object]:
        return (await self.client.get(f"{self.url}/readyz")).json()

    async def until_stale(self, *names: str) -> None:
        await until({"status": "ready", "stale_policies": list(names)}, self.ready)

    async def metrics(self) -> list[str]:
        return (await self.client.get(f"{self.url}/metrics")).text.splitlines()


async def budget_at(client: httpx2.AsyncClient, url: str, policy: str = "") -> int | None:
    chat = Chat(url, client=client)
    chat.headers |= {"X-Unabridged-Policy": policy} if policy else {}
    answer = await chat.ask("How much is there?")
    if answer.status_code == 400:
        assert answer.json()["error"]["code"] == "invalid_policy"
        return None
    return tokens_of(answer)["budget"]


@pytest.fixture
async def house(model: Model, tmp_path: Path) -> AsyncIterator[House]:
    write_policy(tmp_path, "mine", BUDGET.format(1000))
    async with (
        proxying(model.url, policies=tmp_path, policy="mine") as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):
        yield House(url, tmp_path, client)


async def test_an_edit_is_in_force_without_a_restart(house: House) -> None:
    assert (await house.budget(), await house.budget("mine")) == (1000, 1000)
    house.edit(BUDGET.format(900))
    await house.until(900)
    assert await house.budget("mine") == 900
    assert 'unabridged_policy_reloads_total{result="loaded"} 1.0' in await house.metrics()


async def test_a_bad_edit_keeps_the_old_policy_and_is_seen(house: House) -> None:
    house.edit("[budget]\ntokens = 900\ntocens = 1\n")
    await house.until_stale("mine")
    assert await house.budget() == 1000
    told = await house.metrics()
    assert 'unabridged_policy_reloads_total{result="refused"} 1.0' in told
    assert "unabridged_policies_stale 1.0" in told
    house.edit(BUDGET.format(900))
    await house.until(900)
    assert await house.ready() == {"status": "ready"}


async def test_a_new_file_can_be_named_and_a_deleted_one_stays(house: House) -> None:
    assert await house.budget("new") is None
    house.edit(BUDGET.format(700), "new")
    await house.until(700, "new")
    (house.directory / "new.toml").unlink()
    await house.until_stale("new")
    assert await house.budget("new") == 700


async def test_a_store_that_must_not_fail_is_one_from_the_edit_on(model: Model, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "mine", BUDGET.format(1000))
    nobody = "redis://127.0.0.1:1"
    async with (
        proxying(model.url, policy=str(path), store=nobody) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):

        async def status() -> int:
            return (await client.get(f"{url}/readyz")).status_code

        assert await status() == 200
        write_policy(tmp_path, "mine", BUDGET.format(1000) + '[store]\non_fault = "closed"\n')
        await until(503, status)


PRUNING = BUDGET + "[stages]\nwarn = 0.5\ntrim = 0.6\ncompact = 0.7\ntarget = 0.3\n"
PATIENT = """
[budget]
tokens = 4000
reserve = 100
[stages]
warn = 0.9
trim = 0.9
compact = 0.95
target = 0.1
[importance]
low = 0.9
keywords = ["item"]
[keep]
recent = 0.01
first_user = false
pins = ["Question 0"]
[summary]
min_gap = 1
role = "system"
max_tokens = 10
alternate = true
[strategy]
name = "sliding_window"
last = 1000
"""


def messages(body: bytes) -> bytes:
    """The messages of a body as they were written, without the bracket that ends them."""
    return body[body.index(b'"messages"') : body.rindex(b"]")]


async def test_an_edit_changes_no_byte_of_a_plan_in_force_until_an_epoch_begins(
    model: Model, chats: Chats, house: House
) -> None:
    house.edit(PRUNING.format(800))
    await house.until(800)
    chat = chats(house.url)

    async def ask(number: int) -> tuple[int, bytes]:
        answer = await chat.ask(f"Question {number}: what became of item {number * 37}? " + "Tell me. " * 12)
        assert answer.status_code == 200
        return int(told(answer, "epoch")), messages(bytes(model.chats[-1].body))

    number, epoch, before = 0, 0, b""
    while epoch == 0:
        number += 1
        epoch, before = await ask(number)
    house.edit(PATIENT)
    await house.until(4000)
    for later in range(1, 7):
        now, after = await ask(number + later)
        assert now == epoch
        assert after.startswith(before)
        before = after
    house.edit(PRUNING.format(600))
    await house.until(600)
    now, after = await ask(number + 7)
    assert now == epoch + 1
    assert not after.startswith(before)
