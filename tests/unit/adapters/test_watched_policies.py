"""Policies that are edited while the server runs."""

import json
import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import SettingsFile, load_settings
from proxy.adapters.files.toml_file import FileError
from proxy.adapters.files.watcher import LoadedPolicies, WatchedPolicies
from proxy.core.policy.policy import Policy
from proxy.errors import InvalidPolicy
from proxy.telemetry import JSONLines, Metrics

PRESETS = PolicyLibrary().names()


def watched(
    metrics: Metrics,
    default: str,
    written: SettingsFile | None = None,
    library: PolicyLibrary | None = None,
) -> WatchedPolicies:
    return WatchedPolicies(LoadedPolicies.load(library or PolicyLibrary(), default, written), metrics)


class House:
    """A directory of policies that somebody edits, and the server's view of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metrics = Metrics()

    def write(self, name: str, text: str) -> Path:
        path = self.directory / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def open(self, default: str = "default") -> WatchedPolicies:
        return watched(self.metrics, default, library=PolicyLibrary(self.directory))

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"unabridged_{name}", labels) or 0.0

    @property
    def reloads(self) -> tuple[float, float]:
        """Policies loaded and refused so far."""
        name = "policy_reloads_total"
        return self.count(name, result="loaded"), self.count(name, result="refused")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def log() -> Iterator[list[dict[str, object]]]:
    """The lines that were logged, as an operator's tools read them."""
    lines: list[dict[str, object]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = json.loads(JSONLines().format(record))
            del line["at"]
            lines.append(line)

    logger, handler = logging.getLogger("proxy"), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def settle(policies: WatchedPolicies) -> None:
    """Time enough for an edit to be taken: two looks."""
    policies.poll()
    policies.poll()


RECENT = "[keep]\nrecent = {}\n"


def recent(policies: WatchedPolicies, name: str) -> float:
    return policies.in_force.named(name).keep.recent


def test_every_policy_is_there_from_the_start_and_no_name_is_the_default(house: House) -> None:
    house.write("mine", RECENT.format(0.1))
    policies = house.open("balanced")
    assert [policies.in_force.named(name).name for name in [*PRESETS, "mine"]] == [*PRESETS, "mine"]
    assert policies.in_force.named("").name == "balanced"


def test_a_default_that_cannot_be_used_does_not_start(house: House) -> None:
    house.write("mine", "recent = 1\n")
    with pytest.raises(FileError, match=r"mine\.toml:1: unknown key"):
        house.open("mine")


def test_another_policy_that_cannot_be_used_is_said_and_holds_up_nothing(
    house: House, log: list[dict[str, object]]
) -> None:
    path = house.write("mine", "recent = 1\n")
    policies = house.open()
    with pytest.raises(InvalidPolicy):
        policies.in_force.named("mine")
    assert policies.named_or_default("mine") == policies.in_force.default
    assert policies.stale() == ["mine"]
    assert log == [
        {
            "level": "warning",
            "message": "a policy cannot be used as it is now",
            "reason": f"{path}:1: unknown key `recent`; did you mean `keep.recent`?",
            "as_before": [],
            "unusable": ["mine"],
        }
    ]


@pytest.mark.parametrize("default", ["default", "mine"])
def test_an_edit_is_in_force_once_it_has_settled(
    house: House, log: list[dict[str, object]], default: str
) -> None:
    house.write("mine", RECENT.format(0.1))
    policies = house.open(default)
    house.write("mine", RECENT.format(0.2))
    policies.poll()
    assert recent(policies, "mine") == 0.1, "half a file may be written by now"
    policies.poll()
    assert recent(policies, "mine") == 0.2
    assert recent(policies, "") == (0.2 if default == "mine" else 0.25)
    assert log == [{"level": "info", "message": "policies were read anew", "policies": ["mine"]}]
    assert house.reloads == (1, 0)


def test_a_file_that_is_still_being_written_waits(house: House) -> None:
    house.write("mine", RECENT.format(0.1))
    policies = house.open()
    for share in (0.2, 0.21, 0.212):
        house.write("mine", RECENT.format(share))
        policies.poll()
        assert recent(policies, "mine") == 0.1
    policies.poll()
    assert recent(policies, "mine") == 0.212


def test_a_replaced_file_is_noticed_though_its_size_and_time_stayed_the_same(house: House) -> None:
    path = house.write("mine", RECENT.format(0.1))
    policies = house.open()
    times = path.stat()
    other = house.write("other", RECENT.format(0.2))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)
    settle(policies)
    assert recent(policies, "mine") == 0.2


def test_what_is_extended_is_watched_too(house: House, log: list[dict[str, object]]) -> None:
    house.write("base", RECENT.format(0.1))
    house.write("mine", 'extends = "base"\n')
    policies = house.open("mine")
    house.write("base", RECENT.format(0.2))
    settle(policies)
    assert recent(policies, "") == 0.2
    assert [line["policies"] for line in log] == [["base", "mine"]]


def test_a_default_outside_any_directory_is_watched_with_what_it_extends(tmp_path: Path) -> None:
    outside = House(tmp_path)
    outside.write("base", RECENT.format(0.1))
    path = outside.write("mine", 'extends = "base"\n')
    policies = watched(outside.metrics, str(path))
    assert recent(policies, "mine") == recent(policies, "") == 0.1
    with pytest.raises(InvalidPolicy):
        policies.in_force.named("base")
    outside.write("base", RECENT.format(0.2))
    settle(policies)
    assert recent(policies, "") == 0.2
    outside.write("mine", RECENT.format(0.3))
    settle(policies)
    assert recent(policies, "mine") == recent(policies, "") == 0.3


def test_a_file_that_begins_to_hide_a_preset_counts_for_all_that_extend_it(house: House) -> None:
    policies = house.open("balanced")
    house.write("default", 'extends = "default"\n[keep]\nrecent = 0.1\n')
    settle(policies)
    assert recent(policies, "default") == recent(policies, "") == recent(policies, "agent") == 0.1


def test_a_bad_edit_keeps_the_old_policy_and_says_so_once(house: House, log: list[dict[str, object]]) -> None:
    house.write("mine", RECENT.format(0.1))
    house.write("yours", 'extends = "mine"\n')
    policies = house.open("mine")
    path = house.write("mine", "[keep]\nrecend = 0.2\n")
    settle(policies)
    house.write("other", "")
    settle(policies)
    assert recent(policies, "") == recent(policies, "yours") == 0.1
    refused, loaded = log
    assert refused == {
        "level": "warning",
        "message": "a policy cannot be used as it is now",
        "reason": f"{path}:2: unknown key `keep.recend`; did you mean `recent`?",
        "as_before": ["mine", "yours"],
        "unusable": [],
    }
    assert loaded["policies"] == ["other"]
    assert house.reloads == (1, 2)
    assert house.count("policies_stale") == 2
    assert policies.stale() == ["mine", "yours"]


def test_a_mistake_that_is_mended_is_forgotten(house: House, log: list[dict[str, object]]) -> None:
    house.write("mine", RECENT.format(0.1))
    policies = house.open()
    for text in ("[keep\n", RECENT.format(0.1)):
        house.write("mine", text)
        settle(policies)
    assert [line["level"] for line in log] == ["warning", "info"]
    assert (house.count("policies_stale"), policies.stale()) == (0, [])


def test_a_new_file_can_be_named(house: House) -> None:
    policies = house.open()
    house.write("new", RECENT.format(0.1))
    settle(policies)
    assert recent(policies, "new") == 0.1


def test_a_policy_whose_file_is_deleted_stays_and_that_is_said(
    house: House, log: list[dict[str, object]]
) -> None:
    path = house.write("mine", RECENT.format(0.1))
    policies = house.open()
    path.unlink()
    settle(policies)
    house.write("other", "")
    settle(policies)
    assert recent(policies, "mine") == 0.1
    assert [line.get("reason") for line in log] == ["mine: its file is gone", None]
    assert policies.stale() == ["mine"]
    house.write("mine", RECENT.format(0.2))
    settle(policies)
    assert (recent(policies, "mine"), policies.stale()) == (0.2, [])


def test_a_default_whose_directory_is_deleted_stays(house: House, tmp_path: Path) -> None:
    path = house.write("mine", RECENT.format(0.1))
    policies = house.open("mine")
    path.unlink()
    tmp_path.rmdir()
    settle(policies)
    assert recent(policies, "") == 0.1
    assert policies.stale() == ["mine"]


def test_a_comment_is_no_news(house: House, log: list[dict[str, object]]) -> None:
    house.write("mine", RECENT.format(0.1))
    policies = house.open()
    before = policies.in_force.named("mine")
    house.write("mine", "# why\n" + RECENT.format(0.1))
    settle(policies)
    assert policies.in_force.named("mine") == before
    assert (log, house.reloads) == ([], (0, 0))


@pytest.mark.parametrize("name", ["nobody", "../mine", "/etc/passwd", "mine.toml", "x" * 10_000, "\0", "é"])
def test_a_name_that_is_none_touches_no_file(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("mine", "")
    policies = house.open()

    def touched(*_: object) -> None:
        pytest.fail("a file was looked for")

    for access in ("stat", "open", "glob"):
        monkeypatch.setattr(Path, access, touched)
    with pytest.raises(InvalidPolicy):
        policies.in_force.named(name)


def test_the_name_and_so_the_lane_stays_through_edits(house: House) -> None:
    path = house.write("v1.2", "")
    policies = watched(house.metrics, str(path))
    house.write("v1.2", 'extends = "balanced"\n')
    settle(policies)
    policy: Policy = policies.in_force.named("")
    assert (policy.name, policy.extends) == ("v1.2", "balanced")


# --- the settings file ---


def test_settings_that_wait_for_the_next_start_are_told_until_they_are_as_they_were(
    house: House, log: list[dict[str, object]]
) -> None:
    file = house.write("config", "port = 9000\nhttp_client = 'httpx'\n")
    _, written = load_settings(config=file, http_client="httptools")
    policies = watched(house.metrics, "default", written)
    house.write("config", "port = 9001\nworkers = 2\nhttp_client = 'httptools'\n")
    settle(policies)
    (warning,) = [line for line in log if line["level"] == "warning"]
    assert warning["settings"] == ["port", "workers"]
    house.write("config", "port = 9000\npolicy = 'agent'\n")
    settle(policies)
    assert len([line for line in log if line["level"] == "warning"]) == 1
    assert policies.in_force.named("").name == "agent"
    assert house.count("settings_reloads_total", result="loaded") == 2


def test_a_policy_that_a_flag_names_is_not_the_files_to_change(house: House) -> None:
    file = house.write("config", "policy = 'agent'\n")
    settings, written = load_settings(config=file, policy="off")
    policies = watched(house.metrics, settings.policy, written)
    house.write("config", "policy = 'balanced'\n")
    settle(policies)
    assert policies.in_force.named("").name == "off"


def test_a_policy_by_its_path_gives_way_to_another_and_is_missed_by_nobody(house: House) -> None:
    house.write("mine", "")
    file = house.write("config", "policy = 'mine.toml'\n")
    settings, written = load_settings(config=file)
    policies = watched(house.metrics, settings.policy, written)
    assert policies.in_force.named("").name == "mine"
    house.write("config", "\n")
    settle(policies)
    assert policies.in_force.named("").name == "default"
    settle(policies)
    assert policies.stale() == []


def test_a_rule_cannot_name_a_policy_that_is_there_by_its_path_alone(house: House) -> None:
    house.write("mine", "")
    file = house.write("config", "policy = 'mine.toml'\n")
    settings, written = load_settings(config=file)
    policies = watched(house.metrics, settings.policy, written)
    house.write("config", "policy = 'mine.toml'\n[[use]]\nmodel = 'x'\npolicy = 'mine'\n")
    settle(policies)
    assert "there is no such policy" in policies.settings_fault()
    assert not policies.in_force.rules


@pytest.mark.parametrize("path", ["~nosuchuser/x.toml", "a\\u0000b.toml"])
def test_a_path_that_none_can_have_changes_nothing(house: House, path: str) -> None:
    file = house.write("config", "policy = 'agent'\n")
    settings, written = load_settings(config=file)
    policies = watched(house.metrics, settings.policy, written)
    house.write("config", f'policy = "{path}"\n')
    settle(policies)
    assert policies.in_force.named("").name == "agent"
    assert policies.settings_fault()


def test_a_new_worker_begins_as_its_supervisor_was_at_the_last_look(house: House, tmp_path: Path) -> None:
    own = House(tmp_path / "policies")
    own.directory.mkdir()
    own.write("mine", RECENT.format(0.1))
    file = house.write("config", "policy = 'agent'\n")
    settings, written = load_settings(config=file)
    kept = LoadedPolicies.load(PolicyLibrary(own.directory), settings.policy, written)
    path = own.write("mine", "[keep\n")
    assert kept.reloaded().refused == {}, "a file may be half written"
    path.unlink()
    own.directory.rmdir()
    house.write("config", "policy = 'nobody'\n")
    for _ in range(2):
        kept = kept.reloaded()
    begun = WatchedPolicies(pickle.loads(pickle.dumps(kept)), house.metrics)
    assert recent(begun, "mine") == 0.1
    assert begun.stale() == ["mine"]
    assert begun.in_force.named("").name == "agent"
    assert house.count("settings_stale") == 1


def test_a_settings_file_that_is_gone_changes_nothing(house: House) -> None:
    file = house.write("config", "[[use]]\nclient = 'x'\npolicy = 'off'\n")
    _, written = load_settings(config=file)
    policies = watched(house.metrics, "default", written)
    file.unlink()
    settle(policies)
    assert [rule.policy for rule in policies.in_force.rules] == ["off"]
    assert house.count("settings_stale") == 1


def test_a_key_that_does_nothing_any_more_is_told_of_at_the_start_and_after_an_edit(
    house: House, log: list[dict[str, object]]
) -> None:
    text = '[recall]\nenabled = true\nembeddings = "small"\n'
    house.write("mine", text)
    policies = house.open()
    house.write("mine", text + "rounds = 2\n")
    policies.poll()
    policies.poll()
    told = [line for line in log if line["message"] == "a policy has a key that does nothing"]
    assert [line["policy"] for line in told] == ["mine", "mine"]
    assert all("`recall.embeddings` has no effect any more" in str(line["reason"]) for line in told)
    assert policies.in_force.named("mine").recall.rounds == 2
