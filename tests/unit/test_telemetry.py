"""What is logged, and what is not."""

from __future__ import annotations

import json
import logging

import pytest

from proxy.telemetry import JSONLines, Metrics, log_fault, set_up_logging

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


def test_what_the_server_itself_says_is_json_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = logging.getLogger("uvicorn.error")
    for log in (server, logging.getLogger("proxy")):
        monkeypatch.setattr(log, "handlers", [])  # given back in the end
        monkeypatch.setattr(log, "propagate", False)
    set_up_logging()
    server.warning("Invalid %s", "request")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "Invalid request"


def test_what_utf_8_cannot_hold_is_told_all_the_same() -> None:
    record = logging.LogRecord("proxy", logging.INFO, "", 0, "request", None, None)
    record.fields = {"model": "half \ud800", "budget": 10**30}
    line = json.loads(JSONLines().format(record))
    assert (line["model"], line["budget"]) == ("half \ud800", 10**30)


async def test_tasks_that_are_alive_are_told() -> None:
    assert "\nunabridged_tasks 1.0\n" in Metrics().exposition().decode()
