"""Where the parts meet: settings in, an ASGI application out. Nothing else builds a part."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.types import ASGIApp

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.secrets import kept_secret
from proxy.adapters.files.watched import WatchedPolicies
from proxy.adapters.httptools import HttptoolsUpstream
from proxy.adapters.httpx import HttpxUpstream
from proxy.adapters.plugins import load_plugins
from proxy.adapters.redis.sealing import Keyring
from proxy.adapters.remembering import RememberingStore
from proxy.adapters.sqlite_search import SqliteSearch
from proxy.adapters.stores import open_store
from proxy.adapters.tiktoken import TiktokenCounter
from proxy.adapters.timed import TimedStore
from proxy.config import Settings
from proxy.engine.append import Appends
from proxy.engine.background import Background
from proxy.engine.backlog import Backlog
from proxy.engine.bodies import Bodies
from proxy.engine.curation import Curation
from proxy.engine.deciding import Decisions
from proxy.engine.embeddings import Embeddings
from proxy.engine.epochs import Epochs
from proxy.engine.extras import Extras
from proxy.engine.foreground import Foreground
from proxy.engine.forks import Forks
from proxy.engine.hidden import Hidden
from proxy.engine.history import Reader
from proxy.engine.injections import Injections
from proxy.engine.inspection import Inspection
from proxy.engine.line import Line
from proxy.engine.models import Models
from proxy.engine.naming import Naming
from proxy.engine.pins import Pins
from proxy.engine.recall import Recall
from proxy.engine.recognition import Recognition
from proxy.engine.record import Recorder
from proxy.engine.request import Engine
from proxy.engine.summaries import Summaries
from proxy.engine.summary_jobs import SummaryJobs
from proxy.engine.tools import Tools
from proxy.engine.warmth import Warmth
from proxy.errors import StoreUnavailable
from proxy.http.admin import AdminAPI
from proxy.http.admission import Admission
from proxy.http.body_memory import BodyMemory
from proxy.http.drain import Drain, Draining
from proxy.http.front import Front, refusals, request_id
from proxy.http.managed import Managed
from proxy.http.probes import probe_routes
from proxy.http.relay import Relay
from proxy.lru import Memory
from proxy.ports import Search, SessionStore, TokenCounter, Upstream
from proxy.telemetry import Metrics, log_warning, set_up_logging

SECRET_FILE = "secret"  # noqa: S105 - a file's name
_CUT_OFF = 1.0
"""Seconds in which requests that are cut off at the end say what there is to keep of them."""
ADMIN_TOKEN_FILE = "admin-token"  # noqa: S105 - a file's name
_HTTP_CLIENTS = {"httptools": HttptoolsUpstream, "httpx": HttpxUpstream}
_LEARNED = 4
"""Which part of the memory for caches is for what stands nowhere else."""
_LINGER = 0.01
"""Seconds for which turns wait for others to be stored with, where no other process looks for them."""


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    """Seconds since 1970, UTC."""
    monotonic = staticmethod(time.monotonic)
    """Seconds of a clock that never jumps."""


@dataclass(frozen=True)
class Outside:
    """What the engine needs of the world, and the memories that its caches share."""

    memory: Memory
    """For what is read, or asked for, again where it has gone."""
    learned: Memory
    """For what stands nowhere else: no large body pushes it out."""
    clock: SystemClock
    metrics: Metrics
    store: SessionStore
    upstream: Upstream
    counter: TokenCounter
    search: Search
    policies: WatchedPolicies


@dataclass(frozen=True)
class Inside:
    """The engine, and what works beside it."""

    engine: Engine
    hidden: Hidden
    recorder: Recorder
    appends: Appends
    line: Line
    backlog: Backlog
    summaries: Summaries
    summary_jobs: SummaryJobs


def create_app(
    settings: Settings, on_ready: Callable[[], object] = lambda: None, *, owns_store: bool = False
) -> ASGIApp:
    """Build the proxy. The store must be named; the embedded one is started by whoever serves.

    ``on_ready`` is called before the first request. Who ``owns_store`` vouches that nobody but this process
    writes to it: no other worker, no other server.
    Raises SettingsError, PluginError and PolicyError.
    """
    set_up_logging(logging.DEBUG if settings.log_content else logging.INFO)
    load_plugins()
    outside = _outside(settings, owns_store=owns_store)
    inside = _inside(settings, outside)
    metrics, policies = outside.metrics, outside.policies
    drain = Drain(settings.drain_timeout)
    probes = probe_routes(
        outside.store,
        metrics,
        lambda: drain.is_ready,
        opens_on_fault=lambda: policies.named("").store.on_fault == "open",
        stale_policies=policies.stale,
    )
    own = Starlette(
        routes=[*probes, *_admin_api(settings, outside, inside).routes()],
        lifespan=_lifespan(outside, inside, drain, on_ready),
        exception_handlers=refusals(),
    )
    admission = Admission(lambda: policies.named("").limits.streams, BodyMemory(settings.body_memory))
    relay = Relay(outside.upstream, admission, request_id, metrics.relayed)
    logs_content = settings.log_content
    managed = Managed(
        inside.hidden, inside.appends, relay, metrics, admission, outside.memory, logs_content=logs_content
    )
    return Draining(Front(managed, relay, own), drain)


def _outside(settings: Settings, *, owns_store: bool) -> Outside:
    clock, learned = SystemClock(), Memory(settings.cache_memory // _LEARNED, part=2)
    memory = Memory(settings.cache_memory - learned.most)
    metrics = Metrics(lambda: memory.held + learned.held)
    policies = WatchedPolicies(PolicyLibrary.of(settings.policies), settings.policy, metrics)
    keyring = Keyring(_secrets(settings), policies.encrypts)
    url = settings.store or "memory://"
    linger = _LINGER if owns_store else 0.0
    store = open_store(url, clock, settings.store_timeout, settings.store_breaker, keyring, linger)
    return Outside(
        memory=memory,
        learned=learned,
        clock=clock,
        metrics=metrics,
        store=TimedStore(RememberingStore(store, clock, memory) if owns_store else store, metrics),
        upstream=_HTTP_CLIENTS[settings.http_client](
            settings.upstream,
            connect_timeout=settings.upstream_connect_timeout,
            read_timeout=settings.upstream_read_timeout,
        ),
        counter=TiktokenCounter(),
        search=SqliteSearch(),
        policies=policies,
    )


def _inside(settings: Settings, outside: Outside) -> Inside:
    store, clock, learned = outside.store, outside.clock, outside.learned
    secret, former = (*_secrets(settings), None)[:2]
    naming = Naming(secret or "", outside.memory, settings.tenant_header, former=former)
    foreground = Foreground()
    summaries = Summaries(
        outside.upstream, store, outside.counter, foreground, clock, outside.metrics, learned
    )
    summary_jobs = SummaryJobs(summaries, naming, learned)
    engine = _engine(outside, naming, foreground, summary_jobs)
    backlog = Backlog(store, pause=settings.store_breaker)
    recorder = Recorder(
        recognition=engine.recognition,
        background=engine.background,
        store=store,
        counter=outside.counter,
        models=engine.models,
        clock=clock,
        metrics=outside.metrics,
        backlog=backlog,
        patience=settings.save_timeout,
    )
    line = Line(store, engine.background, clock, settings.line_lease)
    is_shared = settings.workers == 1 or settings.shares_store
    appends = Appends(store, engine.reader, recorder, line, outside.memory, is_shared=is_shared)
    hidden = Hidden(engine, recorder)
    return Inside(engine, hidden, recorder, appends, line, backlog, summaries, summary_jobs)


def _engine(outside: Outside, naming: Naming, foreground: Foreground, summary_jobs: SummaryJobs) -> Engine:
    store, upstream, counter, clock = outside.store, outside.upstream, outside.counter, outside.clock
    memory, learned = outside.memory, outside.learned
    models, injections = Models(upstream, prices.context_window, clock, learned), Injections(store, learned)
    reader, recognition = Reader(counter, memory), Recognition(store, naming, learned, injections.digest)
    return Engine(
        upstream=upstream,
        bodies=Bodies(memory),
        reader=reader,
        models=models,
        recognition=recognition,
        decisions=Decisions(
            reader=reader,
            models=models,
            recognition=recognition,
            epochs=Epochs(store, summary_jobs, counter, clock, outside.metrics, learned),
            recall=Recall(outside.search, counter, Embeddings(upstream, memory), outside.metrics, memory),
        ),
        pins=Pins(store, learned),
        injections=injections,
        naming=naming,
        foreground=foreground,
        background=Background(),
        extras=Extras(models, naming),
        warmth=Warmth(prices.prices_of, clock, learned),
        tools=Tools(outside.metrics, memory),
        policies=outside.policies.named,
        clock=clock,
    )


def _lifespan(
    outside: Outside, inside: Inside, drain: Drain, on_ready: Callable[[], object]
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Load what is slow before the first request; end in order after the last."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        loading = (outside.counter.ready(), asyncio.to_thread(prices.load))
        await asyncio.gather(*loading, _check_secret(outside.store))
        watching = asyncio.create_task(outside.policies.watch())
        on_ready()
        with drain.serving():
            yield
        watching.cancel()
        await drain.emptied(_CUT_OFF)
        await inside.summaries.aclose()
        inside.line.close()
        await inside.engine.background.drain()
        await inside.backlog.aclose()
        await outside.search.aclose()
        await outside.upstream.aclose()
        await outside.store.aclose()

    return lifespan


async def _check_secret(store: SessionStore) -> None:
    """Tell the operator of a secret with which nothing in the store will be found."""
    with suppress(StoreUnavailable):  # requests will say so
        if not await store.knows_secret():
            log_warning("the store was written with another UNABRIDGED_SECRET: no session of it is found")


def _secrets(settings: Settings) -> tuple[str, ...]:
    """The secrets, newest first: as set, else one made at the first start and kept beside the data."""
    return settings.secrets or (kept_secret(settings.data_dir / SECRET_FILE),)


def _admin_api(settings: Settings, outside: Outside, inside: Inside) -> AdminAPI:
    store, clock, engine = outside.store, outside.clock, inside.engine
    inspection = Inspection(store, outside.counter, engine.policies)
    curation = Curation(
        store=store,
        inspection=inspection,
        recognition=engine.recognition,
        epochs=engine.decisions.epochs,
        pins=engine.pins,
        tools=engine.tools,
        injections=engine.injections,
        summary_jobs=inside.summary_jobs,
        line=inside.line,
        clock=clock,
        recorder=inside.recorder,
        credentials=_operator_credentials(settings),
    )
    forks = Forks(store, inspection, engine.naming, clock, inside.recorder.written)
    return AdminAPI(inspection, curation, forks, clock.now, _admin_token(settings))


def _operator_credentials(settings: Settings) -> list[tuple[bytes, bytes]]:
    """The auth header of work that no client's request has caused."""
    key = settings.upstream_key
    return [(b"authorization", f"Bearer {key.get_secret_value()}".encode())] if key else []


def _admin_token(settings: Settings) -> str:
    if settings.admin_token is not None:
        return settings.admin_token.get_secret_value()
    return kept_secret(settings.data_dir / ADMIN_TOKEN_FILE)
