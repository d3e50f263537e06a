"""What is logged, and what is not."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import time
from datetime import datetime
from typing import Any

import pytest

from proxy.app import begin_log
from proxy.config import Settings
from proxy.telemetry import (
    JSONLines,
    Lines,
    Metrics,
    TextLines,
    log_event,
    log_fault,
    log_request,
    log_warning,
    set_up_logging,
)

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


class Writes(io.StringIO):
    """Keeps apart what is written apart."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, s: str) -> int:
        if self.closed:
            raise ValueError
        self.written.append(s)
        return len(s)

    def told(self) -> list[list[str]]:
        """The messages of each write so far."""
        written, self.written = self.written, []
        return [[json.loads(line)["message"] for line in text.splitlines()] for text in written]


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Writes:
    for log in (logging.getLogger("uvicorn.error"), logging.getLogger("proxy")):
        monkeypatch.setattr(log, "handlers", [])  # given back in the end
        monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(sys, "stderr", Writes())
    set_up_logging()
    assert isinstance(sys.stderr, Writes)
    return sys.stderr


def test_what_the_server_itself_says_is_json_too(errors: Writes) -> None:
    logging.getLogger("uvicorn.error").warning("Invalid %s", "request")
    assert errors.told() == [["Invalid request"]]


async def test_the_lines_of_one_pass_of_the_loop_are_one_write(errors: Writes) -> None:
    log_request(status=200)
    log_event("draining")
    assert errors.told() == []
    await asyncio.sleep(0)
    assert errors.told() == [["request", "draining"]]
    log_request(status=200)
    await asyncio.sleep(0)
    assert errors.told() == [["request"]]


async def test_no_write_is_longer_than_a_pipe_takes_in_one_piece(errors: Writes) -> None:
    for _ in range(100):
        log_request(status=200, model="模型" * 20, session="045ed7dd")
    await asyncio.sleep(0)
    assert max(len(text.encode()) for text in errors.written) <= 4096
    assert len(errors.written) < 10
    assert sum(map(len, errors.told())) == 100


async def test_a_warning_is_written_at_once_after_what_was_logged_before_it(errors: Writes) -> None:
    log_request(status=200)
    log_warning("look")
    assert errors.told() == [["request", "look"]]
    await asyncio.sleep(0)
    assert errors.told() == []


def test_what_no_loop_runs_for_is_written_at_once(errors: Writes) -> None:
    log_request(status=200)
    assert errors.told() == [["request"]]


def test_a_loop_that_ends_before_it_has_written_holds_no_later_line_up(errors: Writes) -> None:
    async def log() -> None:
        log_request(status=200)

    ended = asyncio.new_event_loop()
    ended.run_until_complete(log())
    ended.close()
    asyncio.run(log())
    log_request(status=200)
    assert [message for write in errors.told() for message in write] == ["request"] * 3


def test_the_end_of_the_process_leaves_no_line_unwritten(errors: Writes) -> None:
    async def log() -> None:
        log_request(status=200)
        for handler in logging.getLogger("proxy").handlers:
            handler.flush()  # as logging does then

    asyncio.run(log())
    assert errors.told() == [["request"]]


def test_a_request_tells_when_it_was_answered(errors: Writes) -> None:
    log_request(status=200, id="req-1")
    (line,) = map(json.loads, errors.written)
    at = line.pop("at")
    assert line == {"level": "info", "message": "request", "status": 200, "id": "req-1"}
    assert abs(datetime.fromisoformat(at).timestamp() - time.time()) < 60


def test_nobody_is_in_the_way_of_a_request_where_standard_error_is_closed(errors: Writes) -> None:
    errors.close()
    log_request(status=200)
    log_warning("look")


def test_what_utf_8_cannot_hold_is_told_all_the_same() -> None:
    record = logging.LogRecord("proxy", logging.INFO, "", 0, "request", None, None)
    record.fields = {"model": "half \ud800", "budget": 10**30}
    line = json.loads(JSONLines().format(record))
    assert (line["model"], line["budget"]) == ("half \ud800", 10**30)


async def test_tasks_that_are_alive_are_told() -> None:
    assert "\nunabridged_tasks 1.0\n" in Metrics().exposition().decode()


# --- for people ---


def line(message: str, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("proxy", logging.WARNING, "", 0, message, None, None)
    record.created, record.fields = 1.5, fields
    return record


def test_a_line_of_text_has_its_level_its_worker_and_its_fields() -> None:
    told = TextLines(worker=2).format(line("look here", status=200, model="gpt-4o", reason="two words"))
    assert told == (
        '1970-01-01T00:00:01.500+00:00 warning look here worker=2 status=200 model=gpt-4o reason="two words"'
    )
    assert json.loads(JSONLines(worker=2).format(line("look here")))["worker"] == 2


def test_what_clients_choose_reaches_no_terminal_as_control_characters() -> None:
    told = TextLines().format(line("look\x1b[2J", model="\x1b]0;owned\x07", half="\ud800", list=["\x9b"]))
    assert told.isprintable()


def test_where_a_fault_was_stands_below_its_line() -> None:
    told = TextLines().format(line("it failed", error="KeyError", frames="  File a\n    b\n"))
    assert told.splitlines()[1:] == ["      File a", "        b"]


@pytest.mark.parametrize(
    ("form", "is_terminal", "is_text"),
    [(None, True, True), (None, False, False), ("json", True, False), ("text", False, True)],
)
def test_lines_are_text_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch, form: str | None, is_terminal: bool, is_text: bool
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    Lines(form).handle(line("look"))
    assert stream.getvalue().startswith("{") is not is_text


@pytest.mark.parametrize(
    ("given", "level"),
    [({}, logging.INFO), ({"log_content": True}, logging.DEBUG),
     ({"log_content": True, "log_level": "error"}, logging.ERROR)],
)  # fmt: skip
def test_contents_are_logged_at_debug_level_unless_another_is_asked_for(
    given: dict[str, Any], level: int
) -> None:
    begin_log(Settings.load(**given))
    assert logging.getLogger("proxy").level == level
    set_up_logging()
