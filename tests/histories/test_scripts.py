"""Scripts: a seed names one, and each can be made smaller down to a single step."""

from __future__ import annotations

from tests.histories.history import Mode
from tests.histories.scripts import STORE_FAULTS, Act, Script, script
from tests.histories.shrinking import smaller


def size(script: Script) -> int:
    return len(script.clients) + len(script.faults) + sum(len(client.steps) for client in script.clients)


def test_a_seed_names_one_script() -> None:
    assert [script(seed) for seed in range(20)] == [script(seed) for seed in range(20)]
    assert script(1) != script(2)


def test_scripts_do_everything_that_clients_do() -> None:
    clients = [client for seed in range(200) for client in script(seed).clients]
    steps = [step for client in clients for step in client.steps]
    assert {step.act for step in steps} == set(Act)
    assert {client.mode for client in clients} == set(Mode)
    assert any(client.header for client in clients if client.mode is Mode.FULL)
    assert not all(client.header for client in clients)
    assert {step.fate.partition(":")[0] for step in steps} == {
        "answer", "slow", "calls", "429", "500", "break", "error",
    }  # fmt: skip


def test_some_scripts_have_faults_where_these_are_named() -> None:
    faults = [fault.kind for seed in range(100) for fault in script(seed, faults=STORE_FAULTS).faults]
    assert set(faults) == set(STORE_FAULTS)
    assert not any(script(seed).faults for seed in range(100))


def test_a_script_is_made_smaller_one_thing_at_a_time() -> None:
    whole = script(
        next(seed for seed in range(100) if script(seed, faults=STORE_FAULTS).faults), faults=STORE_FAULTS
    )
    while candidates := list(smaller(whole)):
        assert all(size(each) < size(whole) for each in candidates)
        whole = candidates[0]
    assert size(whole) == 2
