"""Traces, as a collector gets them: what a managed request went through, and nothing of what was said."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason="opentelemetry is not installed: the extra otel")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from proxy import tracing
from proxy.adapters.tracing import open_tracer
from proxy.core.recall.tool import NAME as RECALL
from tests.support.clients import Chats, Small, proxying, question, user, write_policy
from tests.support.servers import Exchange, FakeUpstream, eventually
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, calling, said

CANARY = "canary-7f3a"
"""In every message of these conversations, and in the names of their sessions."""
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RECALLING = """
[budget]
tokens = 4000
[summary]
enabled = false
[economy]
enabled = false
[recall]
enabled = true
"""


@dataclass(frozen=True)
class Told:
    """A span as it was told."""

    name: str
    kind: str
    """`server`, `client` or `internal`."""
    trace: str
    id: str
    parent: str
    """Empty where there is none."""
    seconds: float
    has_failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """A collector of traces on loopback, which keeps what it is told."""

    spans: list[Told] = field(default_factory=list[Told])
    services: set[str] = field(default_factory=set[str])
    raw: bytearray = field(default_factory=bytearray)

    async def serve_one(self, exchange: Exchange) -> None:
        body = await exchange.body()
        assert exchange.request.target == "/v1/traces"
        self.raw += body
        for told in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                str(_value(a.value)) for a in told.resource.attributes if a.key == "service.name"
            }
            self.spans += [_told(span) for scope in told.scope_spans for span in scope.spans]
        await exchange.answer(200, [(b"Content-Type", b"application/x-protobuf")], b"")

    def of(self, name: str) -> list[Told]:
        """The spans whose name begins so, in the order of their ends."""
        return [span for span in self.spans if span.name.startswith(name)]

    async def one(self, name: str) -> Told:
        """The only span of a name, once it has been told."""
        await eventually(lambda: bool(self.of(name)))
        (span,) = self.of(name)
        return span

    def below(self, span: Told) -> list[str]:
        """The names of the spans within this one, sorted."""
        return sorted(each.name for each in self.spans if each.parent == span.id)


def _told(span: trace_pb2.Span) -> Told:
    kind: str = trace_pb2.Span.SpanKind.Name(span.kind)
    return Told(
        name=span.name,
        kind=kind.removeprefix("SPAN_KIND_").lower(),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        has_failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes={attribute.key: _value(attribute.value) for attribute in span.attributes},
    )


def _value(value: Any) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """Tracing is on, and what is told never has anything of what was said."""
    collector = Collector()
    async with FakeUpstream(collector.serve_one).serve() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # milliseconds
        yield collector
    assert collector.spans
    assert not any(word in bytes(collector.raw) for word in (CANARY.encode(), b"sk-test"))


def header(request_headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode() for key, value in request_headers if key.lower() == name]


async def test_a_request_is_a_span_with_its_parts_below_it(
    model: Model, collector: Collector, chats: Chats
) -> None:
    async with proxying(model.url) as url:
        answer = await chats(url, X_Unabridged_Session=CANARY).ask(CANARY)
        assert answer.status_code == 200
        request = await collector.one(tracing.REQUEST)
    plan, call = await collector.one(tracing.PLAN), await collector.one(tracing.CHAT)
    assert (request.kind, plan.kind, call.kind) == ("server", "internal", "client")
    assert (request.parent, plan.parent, call.parent) == ("", request.id, request.id)
    assert {plan.trace, call.trace} == {request.trace}
    assert call.seconds <= request.seconds
    assert collector.services == {"unabridged"}


async def test_it_tells_of_session_stage_and_tokens_and_its_call_of_model_and_usage(
    model: Model, collector: Collector, small: Small, chats: Chats
) -> None:
    model.caches = True
    url = await small(summaries=False)
    chat = chats(url, X_Unabridged_Session=CANARY)
    *_, answer = [await chat.ask(f"{CANARY} {question(number)}") for number in range(9)]
    await eventually(lambda: len(collector.of(tracing.REQUEST)) == 9)
    request, call = collector.of(tracing.REQUEST)[-1], collector.of(tracing.CHAT)[-1]
    told = dict(pair.split("=") for pair in answer.headers["x-unabridged-tokens"].split(";"))
    ours = request.attributes
    assert [ours[name] for name in (tracing.SENT, tracing.FULL, tracing.BUDGET)] == [
        int(told[name]) for name in ("sent", "full", "budget")
    ]
    assert ours[tracing.STAGE] == answer.headers["x-unabridged-stage"]
    assert str(ours[tracing.EPOCH]) == answer.headers["x-unabridged-epoch"] != "0"
    assert str(ours[tracing.CUT]) == answer.headers["x-unabridged-cut"] != "0"
    assert ours[tracing.STATUS] == 200
    assert len({each.attributes[tracing.CONVERSATION] for each in collector.of(tracing.REQUEST)}) == 1
    usage = answer.json()["usage"]
    assert call.name == "chat gpt-test"
    assert call.attributes[tracing.OPERATION] == "chat"
    assert call.attributes[tracing.REQUEST_MODEL] == ours[tracing.REQUEST_MODEL] == "gpt-test"
    assert call.attributes[tracing.INPUT_TOKENS] == usage["prompt_tokens"]
    assert call.attributes[tracing.OUTPUT_TOKENS] == usage["completion_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert call.attributes[tracing.CACHED_TOKENS] == ours[tracing.CACHED] == cached > 0


async def test_a_client_s_trace_goes_on_through_the_proxy_to_the_upstream(
    model: Model, collector: Collector, chats: Chats
) -> None:
    async with proxying(model.url) as url:
        await chats(url, Traceparent=CLIENT, Tracestate="vendor=1").ask(CANARY)
        request, call = await collector.one(tracing.REQUEST), await collector.one(tracing.CHAT)
    _, trace, parent, _ = CLIENT.split("-")
    assert (request.trace, request.parent) == (trace, parent)
    (sent,) = model.chats
    assert header(sent.headers, b"traceparent") == [f"00-{trace}-{call.id}-01"]
    assert header(sent.headers, b"tracestate") == ["vendor=1"]


async def test_a_hidden_round_has_its_own_span_and_the_answer_s_usage_is_its_call_s(
    model: Model, collector: Collector, chats: Chats, tmp_path: Path
) -> None:
    model.replies += [calling(("r1", RECALL, json.dumps({"query": "bridge"}))), said("In cash.")]
    talk = [user(f"{CANARY}: the bridge was paid in cash"), said("Noted.")]
    for number in range(25):
        talk += [user(f"What of item {number}? " + "Tell me all. " * 12), said("So it is. " * 25)]
    async with proxying(model.url, policy=str(write_policy(tmp_path, "recalling", RECALLING))) as url:
        await chats(url).say(*talk, user("How was the bridge paid?"))
        request, hidden = await collector.one(tracing.REQUEST), await collector.one(tracing.ROUND)
    first, second = sorted(collector.of(tracing.CHAT), key=lambda call: call.parent == hidden.id)
    assert (first.parent, second.parent, hidden.parent) == (request.id, hidden.id, request.id)
    assert tracing.INPUT_TOKENS in second.attributes
    assert tracing.INPUT_TOKENS not in first.attributes


async def test_a_summary_is_a_span_with_its_own_call_and_usage(
    model: Model, collector: Collector, small: Small, chats: Chats
) -> None:
    chat = chats(await small())
    while not model.summaries:
        await chat.ask(f"{CANARY} {question(len(model.chats))}")
    await eventually(lambda: bool(collector.of(tracing.SUMMARY)))
    summary = collector.of(tracing.SUMMARY)[0]
    calls = [each for each in collector.of(tracing.CHAT) if each.parent == summary.id]
    assert calls
    assert all(each.attributes[tracing.INPUT_TOKENS] > 0 for each in calls)
    # Spans are told in groups, and a request's may come in a later one than that of its summary.
    await eventually(lambda: summary.trace in {request.trace for request in collector.of(tracing.REQUEST)})


async def test_what_is_asked_of_the_store_is_told_where_it_is_a_server(
    model: Model, collector: Collector, chats: Chats
) -> None:
    with embedded_valkey() as store:
        async with proxying(model.url, store=store) as url:
            await chats(url, X_Unabridged_Session=CANARY).ask(CANARY)
            request = await collector.one(tracing.REQUEST)
        below = collector.of(tracing.STORE)
        assert {call.parent for call in below} == {request.id}
        assert {call.kind for call in below} == {"client"}
        assert {"find", "record"} <= {call.attributes[tracing.DATABASE_OPERATION] for call in below}


async def test_an_upstream_that_refuses_is_told_as_a_failed_call(
    model: Model, collector: Collector, chats: Chats
) -> None:
    model.window = 1
    async with proxying(model.url) as url:
        assert (await chats(url).ask(CANARY)).status_code == 400
        request = await collector.one(tracing.REQUEST)
    call = collector.of(tracing.CHAT)[0]
    assert (call.has_failed, call.attributes[tracing.ERROR]) == (True, "400")
    assert not request.has_failed  # it was the client's mistake


async def test_nobody_waits_for_a_collector_that_is_away(
    model: Model, chats: Chats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with proxying(model.url) as url:
        assert (await chats(url).ask("Hello")).status_code == 200


async def test_nobody_waits_for_a_collector_that_hangs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        await exchange.body()
        asked.set()
        await exchange.gone()

    async with FakeUpstream(hang).serve() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # milliseconds
        tracer = open_tracer()
        assert tracer is not None
        tracer.request([]).end()
        await asked.wait()
        await tracer.aclose()
        assert server.open_connections == 1  # its request is still under way


async def test_without_a_collector_a_request_goes_on_with_the_headers_that_it_had(
    model: Model, chats: Chats
) -> None:
    async with proxying(model.url) as url:
        await chats(url, Traceparent=CLIENT).ask("Hello")
        await chats(url).ask("Hello")
    first, second = model.chats
    assert header(first.headers, b"traceparent") == [CLIENT]
    assert header(second.headers, b"traceparent") == []


PROGRAM = """
import sys, proxy.app
from proxy.config import Settings
sys.modules.update(dict.fromkeys(sys.argv[1:]))
proxy.app.create_app(Settings.load(store="memory://", secret="x" * 16, admin_token="t"))
print("opentelemetry.exporter.otlp" in sys.modules)
"""
"""Makes a proxy where the modules that are named are missing; tells whether what speaks to a collector is
imported. (redis-py imports some of the rest where it is installed.)"""


def making(*missing: str, **variables: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", PROGRAM, *missing]
    return subprocess.run(command, capture_output=True, text=True, env=plain | variables, check=True)


def test_without_a_collector_what_would_speak_to_it_is_not_even_imported() -> None:
    assert making().stdout == "False\n"


def test_where_its_package_is_missing_the_proxy_says_what_to_install_and_serves() -> None:
    made = making("opentelemetry.exporter", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318")
    assert "pip install 'unabridged[otel]'" in made.stderr


def test_a_malformed_header_which_may_be_a_credential_is_told_of_and_not_shown() -> None:
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    made = making(**collector, OTEL_EXPORTER_OTLP_HEADERS="hunter2")
    assert "Header format invalid" in made.stderr
    assert "hunter2" not in made.stderr


async def test_tracers_opened_one_after_another_leave_the_filter_of_such_headers_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    for _ in range(2):
        tracer = open_tracer()
        assert tracer is not None
        await tracer.aclose()
    assert len(logging.getLogger("opentelemetry.util.re").filters) == 1


@pytest.mark.parametrize("variables", [{}, {"OTEL_SDK_DISABLED": "true"}])
def test_tracing_is_off_unless_a_collector_is_named_and_nobody_switches_it_off(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    if variables:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert open_tracer() is None


async def test_it_says_where_what_was_decided_was_not_done(
    collector: Collector, small: Small, chats: Chats
) -> None:
    chat = chats(await small(summaries=False), X_Unabridged_Mode="shadow")
    await chat.ask("Hello")
    await eventually(lambda: len(collector.of(tracing.REQUEST)) == 1)
    (request,) = collector.of(tracing.REQUEST)
    assert request.attributes[tracing.MODE] == "shadow"
