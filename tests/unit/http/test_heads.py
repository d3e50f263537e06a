"""What a head says is read once, whoever sends it again; what is wrong with it is said each time."""

from __future__ import annotations

import re

import pytest
from starlette.types import Scope

from proxy.cache import CacheMemory
from proxy.core.policy.policy import Policy, PolicySet
from proxy.engine.intake.naming import Naming
from proxy.errors import InvalidHeader, InvalidPolicy, UnabridgedError, UnsupportedMediaType
from proxy.http.request_head import RequestHeads

KEY = (b"authorization", b"Bearer k")

NAMING = Naming("secret", CacheMemory())


def scope(*headers: tuple[bytes, bytes], query: bytes = b"") -> Scope:
    return {"raw_path": b"/v1/chat/completions", "query_string": query, "headers": [*headers]}


@pytest.fixture
def heads() -> RequestHeads:
    return RequestHeads(CacheMemory(), NAMING)


def test_a_head_is_the_same_however_long_its_body_is(heads: RequestHeads) -> None:
    first = heads.of(scope(KEY, (b"content-length", b"10")))
    assert heads.of(scope(KEY, (b"content-length", b"11"))) is first
    assert heads.of(scope(KEY)).envelope is first.envelope


@pytest.mark.parametrize(
    "other",
    [
        scope((b"authorization", b"Bearer l")),
        scope(KEY, query=b"x=1"),
        scope(KEY, (b"x-unabridged-session", b"s")),
        scope(KEY, KEY),
        scope(),
    ],
)
def test_another_head_is_another(heads: RequestHeads, other: Scope) -> None:
    head = heads.of(scope(KEY))
    assert heads.of(other) is not head
    assert heads.of(scope(KEY)) is head


def test_a_head_tells_what_is_asked(heads: RequestHeads) -> None:
    asked = {
        b"x-unabridged-policy": b"agent",
        b"x-unabridged-mode": b"Append",
        b"x-unabridged-budget": b"900",
        b"x-unabridged-boundary": b"new",
        b"x-unabridged-channel": b"general",
        b"x-unabridged-workspace": b" acme ",
        b"x-unabridged-session": b"mine",
        b"content-encoding": b"gzip",
        b"accept-encoding": b"br",
        b"x-vendor": b"1",
    }
    head = heads.of(scope(KEY, *asked.items(), query=b"x=1"))
    envelope = head.envelope
    agent = Policy(name="agent")
    candidates = head.candidates(PolicySet(Policy(), {"agent": agent}))
    assert [each.policy for each in candidates.options] == [agent]
    assert (head.mode, head.encoding) == ("append", b"gzip")
    assert (envelope.target, envelope.budget, envelope.is_boundary) == ("/chat/completions?x=1", 900, True)
    assert (envelope.channel, envelope.workspace) == ("general", "acme")
    assert envelope.caller == NAMING.caller({KEY[0]: KEY[1], b"x-unabridged-session": b"mine"})
    assert envelope.forwarded == [KEY, (b"x-vendor", b"1"), (b"accept-encoding", b"identity")]
    assert envelope.credentials == [KEY]


@pytest.mark.parametrize("digits", [13, 31, 40])
def test_a_budget_larger_than_anything_is_a_number_that_the_policy_lowers(
    heads: RequestHeads, digits: int
) -> None:
    budget = heads.of(scope(KEY, (b"x-unabridged-budget", b"9" * digits))).envelope.budget
    assert budget is not None
    assert 10**9 < budget < 2**63


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ((b"x-unabridged-budget", b"many"), InvalidPolicy),
        ((b"x-unabridged-budget", b"0"), InvalidPolicy),
        ((b"x-unabridged-budget", b"-1"), InvalidPolicy),
        ((b"x-unabridged-budget", b"1e30"), InvalidPolicy),
        ((b"x-unabridged-budget", b"9" * 41), InvalidPolicy),
        ((b"x-unabridged-boundary", b"old"), InvalidHeader),
        ((b"x-unabridged-channel", b"a\x07"), InvalidHeader),
        ((b"x-unabridged-workspace", b"a" * 257), InvalidHeader),
        ((b"content-type", b"text/plain"), UnsupportedMediaType),
        (KEY, InvalidHeader),
    ],
)
def test_what_is_wrong_is_said_each_time_and_only_where_the_request_is_managed(
    heads: RequestHeads, wrong: tuple[bytes, bytes], error: type[UnabridgedError]
) -> None:
    for _ in range(2):
        head = heads.of(scope(KEY, wrong))
        with pytest.raises(error):
            _ = head.envelope


def test_of_a_repeated_content_type_the_first_counts(heads: RequestHeads) -> None:
    told = (b"content-type", b"application/json")
    assert heads.of(scope(KEY, told, told)).envelope.forwarded[:3] == [KEY, told, told]


def test_a_mode_that_there_is_not_is_refused_each_time(heads: RequestHeads) -> None:
    for _ in range(2):
        with pytest.raises(InvalidHeader):
            _ = heads.of(scope((b"x-unabridged-mode", b"half"))).mode


def test_heads_that_nobody_sends_any_more_are_forgotten() -> None:
    heads = RequestHeads(CacheMemory(2_000_000), NAMING)
    first = heads.of(scope(KEY))
    for number in range(100):
        heads.of(scope((b"x-padding", b"%d" % number * 30_000)))
    assert heads.of(scope(KEY)) is not first


def test_headers_of_ours_that_there_are_not_are_told_in_characters_of_our_choice() -> None:
    heads = RequestHeads(CacheMemory(), Naming("secret", CacheMemory(), "x-unabridged-team"))
    assert heads.of(scope(KEY, (b"x-unabridged-team", b"a"))).warning == b""
    odd = [(b'x-unabridged-a\r\nSet-Cookie: a"=\xe9\0,' + b"b" * 70_000, b"")]
    odd += [(b"x-unabridged-%d" % number, b"") for number in range(100)]
    warning = heads.of(scope(*odd)).warning
    assert re.fullmatch(rb"[0-9A-Za-z?;, _-]+", warning)
    assert warning.count(b"unknown header ") == 5
    assert len(warning) < 600
