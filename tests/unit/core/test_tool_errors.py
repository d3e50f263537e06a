"""Errors are never cached, so a result that may be one is taken for one."""

from __future__ import annotations

import json

import pytest

from proxy.core.tool_cache.derive import is_error

TEXTS = [
    "Error: user not found",
    "error",
    "ValueError: bad month",
    "  \n[ERROR] disk full",
    "<error>no</error>",
    'Traceback (most recent call last):\n  File "a.py", line 1',
    "compiling…\ndone in 3 s\nmake: *** [all] Error 2",
    "$ run\nbash: run: command not found",
    "Permission denied",
    "ls: cannot access 'x': No such file or directory",
    "Request timed out after 30 s",
    "HTTP 503 Service Unavailable",
    "HTTP/1.1 404 Not Found",
    "404 Not Found",
    "status code: 429",
    "Could not connect",
    "Failed to fetch",
    "Unable to find that",
    "Rate limit exceeded",
    "Connection refused",
    "Command exited with code 1",
    "compiled\nexit status 2",
    "Segmentation fault (core dumped)",
    "An unexpected error occurred",
    "エラー: 見つかりません",
    "错误:没有权限",
    "Fehler: keine Berechtigung",
    "La copie des plans : échec",
]

OBJECTS: list[object] = [
    {"error": "no such flight"},
    {"error": {"code": 5}},
    {"errors": ["a"]},
    {"is_error": True},
    {"isError": True, "content": []},
    {"success": False},
    {"ok": False, "data": 1},
    {"status": "error"},
    {"status": "Failed"},
    {"status": 404},
    {"statusCode": "500"},
    {"exit_code": 1, "stdout": ""},
    {"type": "error"},
    {"Error": "no such flight"},
    {"success": "false"},
    {"exit_code": "-1"},
    {"result": {"error": "bad"}},
    {"data": {"success": False}},
    {"content": [{"type": "text", "text": "Error: no"}]},
    {"message": "An error occurred"},
    {"message": "Error: no such user"},
    [{"id": 1}, {"error": "gone"}],
    "Error: in a string of JSON",
]

RESULTS = [
    "",
    "42",
    "true",
    "Sunny, 21 degrees in Bern.",
    "450 results",
    "The terror of the deep, and other books",
    '{"half": ',
    json.dumps({"user": "mia", "error": None}),
    json.dumps({"errors": [], "items": [1, 2]}),
    json.dumps({"success": True, "status": "ok", "status_code": 200, "exit_code": 0}),
    json.dumps({"status": "available", "seats": 404}),
    json.dumps(["a", "b"]),
    json.dumps([{"id": 404}]),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_may_be_an_error_is_one(text: str) -> None:
    assert is_error(text)


@pytest.mark.parametrize("value", OBJECTS, ids=str)
def test_json_that_may_be_an_error_is_one(value: object) -> None:
    assert is_error(json.dumps(value))
    assert is_error(json.dumps(value, indent=2))


@pytest.mark.parametrize("text", RESULTS)
def test_a_plain_result_is_no_error(text: str) -> None:
    assert not is_error(text)


def test_no_state_is_nested_too_deeply_to_be_looked_at() -> None:
    for depth in range(500, 1_000):
        assert not is_error('{"status":' + '{"a":' * depth + "1" + "}" * depth + "}")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "_" * 200_000, '"' + "\\" * 99_999])
def test_no_result_is_too_odd_to_be_looked_at(text: str) -> None:
    assert not is_error(text)
