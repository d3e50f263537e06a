"""What is logged, and what is not."""

from __future__ import annotations

import logging

import pytest

from proxy.telemetry import JSONLines, log_fault

CANARY = "canary9f3c"


def fail() -> None:
    text = CANARY
    raise LookupError(text) from ValueError(text)


def test_a_fault_is_told_by_its_class_and_its_place_and_never_by_its_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("proxy"), "propagate", True)
    try:
        fail()
    except LookupError as error:
        log_fault("something failed", error)
    line = JSONLines().format(caplog.records[0])
    assert CANARY not in line
    assert "LookupError" in line
    assert "in fail" in line
