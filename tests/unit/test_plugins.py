"""Parts of other distributions, by entry point: found once, or the start says what is wrong with them."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint

import pytest

from proxy import plugins
from proxy.errors import PluginError

GROUP = "unabridged.compactors"


class Part:
    def can_compact(self, units: object) -> bool:
        return True


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("someones_plugin")
    vars(made).update(Part=Part, part=Part(), Fails=lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def point(value: str, name: str = "theirs") -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_no_plugin_is_no_fault() -> None:
    assert plugins.load("unabridged.no-such-group") == {}


def test_a_class_is_called_and_an_object_taken_as_it_is(module: types.ModuleType) -> None:
    found = [point("someones_plugin:part", "object"), point("someones_plugin:Part", "class")]
    parts = plugins.loaded(found, ["can_compact"])
    assert isinstance(parts["class"], Part)
    assert parts["object"] is module.part


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("no_such_module:Part", "cannot be loaded: ModuleNotFoundError"),
        ("someones_plugin:Missing", "cannot be loaded: AttributeError"),
        ("someones_plugin:Part", "has no `compact`"),
    ],
)
def test_a_broken_plugin_is_named(value: str, complaint: str) -> None:
    with pytest.raises(PluginError, match=complaint) as told:
        plugins.loaded([point(value)], ["can_compact", "compact"])
    assert "'theirs' of unabridged.compactors" in str(told.value)


def test_two_plugins_of_one_name_are_a_fault() -> None:
    found = [point("someones_plugin:Part"), point("someones_plugin:part")]
    with pytest.raises(PluginError, match="Two plug-ins"):
        plugins.loaded(found, [])
