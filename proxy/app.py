"""Builds the ASGI application from the settings. No other module builds these parts."""

import asyncio
import logging
import multiprocessing
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import with_secrets
from proxy.adapters.files.watcher import LoadedPolicies, WatchedPolicies
from proxy.adapters.plugins import load_plugins
from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores import check_secret, open_store, watch_secret
from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.tokens import TiktokenCounter
from proxy.adapters.tracing import TracedUpstream, open_tracer, traced_store
from proxy.adapters.upstream import open_upstream
from proxy.cache import CacheMemory, Lru
from proxy.config import Settings, is_loopback
from proxy.core.dialects.dialect import Dialect
from proxy.core.dialects.registry import CHAT, DIALECTS
from proxy.engine.admin.edits import Edits
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Inspection
from proxy.engine.admin.memories import MemoryAdmin
from proxy.engine.admin.notices import Notices
from proxy.engine.admin.stats import Stats
from proxy.engine.answers.recall import Recall
from proxy.engine.answers.sending import Sender
from proxy.engine.answers.tool_cache import ToolCaches
from proxy.engine.answers.tool_loop import ToolLoop
from proxy.engine.append.append import Appends
from proxy.engine.append.turn_queue import TurnQueue
from proxy.engine.background import Background
from proxy.engine.billing import Billing
from proxy.engine.foreground import Contention, Foreground
from proxy.engine.intake.naming import Naming
from proxy.engine.intake.reader import BodyCache, Reader
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.counts import MemoryCounts
from proxy.engine.memory.maintenance import Maintenance
from proxy.engine.memory.model import MemoryModel
from proxy.engine.memory.reader import MemoryReader
from proxy.engine.memory.scheduler import MemoryScheduler
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.engine.memory.writer import MemoryWriter
from proxy.engine.models.asking import ModelClient
from proxy.engine.models.models import Models
from proxy.engine.models.stated_windows import StatedWindows
from proxy.engine.pipeline import Pipeline
from proxy.engine.planning.decisions import Decisions
from proxy.engine.planning.epochs import Epochs
from proxy.engine.proof import Proofs
from proxy.engine.recording.backlog import Backlog
from proxy.engine.recording.recorder import Recorder
from proxy.engine.sessions.attachments import Attachments
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import SessionCache
from proxy.engine.sessions.suffixes import Suffixes
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.jobs import SummaryJobs
from proxy.engine.summaries.pool import Summaries
from proxy.http.admin import AdminAPI
from proxy.http.admin.auth import AdminAuth
from proxy.http.admin.bills import StatsOperations
from proxy.http.admin.memories import MemoryOperations
from proxy.http.admin.sessions import SessionOperations
from proxy.http.admin.watching import WatchOperations
from proxy.http.drain import Drain
from proxy.http.front import Front, exception_handlers, probe_routes
from proxy.http.limits import Admission
from proxy.http.managed import Managed, TracedRoute
from proxy.http.origins import Origins
from proxy.http.page import Frame, Renderer
from proxy.http.page.home import Home
from proxy.http.page.memory import MemoryPages
from proxy.http.page.policies import PolicyPages
from proxy.http.page.session import SessionPages
from proxy.http.relay import Relay
from proxy.http.request_head import RequestHeads
from proxy.ports import Search, TokenCounter, Upstream
from proxy.telemetry import Metrics, set_up_logging
from proxy.tracing import Tracer

_CUT_OFF = 1.0
"""Seconds for requests that are cut off at the end to save what there is to keep of them."""
_LEARNED = 4
"""One fourth of the cache memory is for what is stored nowhere else."""
_LINGER = 0.01
"""Seconds for which turns wait to be stored together, where no other process reads them."""


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    """Seconds since 1970, UTC."""
    monotonic = staticmethod(time.monotonic)
    """Seconds of a clock that never jumps."""


@dataclass(frozen=True)
class Dependencies:
    """The engine's outside dependencies, and the memories that its caches share."""

    memory: CacheMemory
    """For entries that are read or asked for again after eviction."""
    learned_memory: CacheMemory
    """For entries that are stored nowhere else: no large body can evict them."""
    clock: SystemClock
    metrics: Metrics
    store: InProcessStore | RedisStore
    upstream: Upstream
    counter: TokenCounter
    search: Search
    policies: WatchedPolicies
    tracer: Tracer | None = None


@dataclass(frozen=True)
class Engine:
    """The engine and its background services."""

    pipeline: Pipeline
    appends: Appends
    turn_queue: TurnQueue
    backlog: Backlog
    summaries: Summaries
    summary_jobs: SummaryJobs
    memory_scheduler: MemoryScheduler
    billing: Billing


def create_app(
    settings: Settings,
    on_ready: Callable[[], object] = lambda: None,
    loaded: LoadedPolicies | None = None,
    *,
    owns_store: bool = False,
) -> ASGIApp:
    """Build the proxy. The store must be named; whoever serves starts the embedded one.

    ``loaded`` are the policies and rules to begin with, by default those that the settings name; their files
    are watched. ``on_ready`` is called before the first request. ``owns_store`` promises that only this
    process writes to the store: no other worker, no other server. Raises SettingsError, PluginError and
    FileError.
    """
    begin_log(settings)
    load_plugins()
    settings = with_secrets(settings)
    dependencies = _open_dependencies(settings, loaded, owns_store=owns_store)
    engine = build_engine(settings, dependencies)
    metrics, policies, pipeline = dependencies.metrics, dependencies.policies, engine.pipeline
    drain, is_shadow = Drain(settings.drain_timeout), settings.shadow
    counted = MemoryCounts(engine.memory_scheduler.daily, metrics, dependencies.memory).counted
    probes = probe_routes(dependencies.store, metrics, drain, policies, counted, is_shadow=is_shadow)
    own = Starlette(
        routes=[*probes, *_admin_routes(settings, dependencies, engine, drain)],
        lifespan=lambda _: _serving(dependencies, engine, drain, on_ready),
        exception_handlers=exception_handlers(),
    )
    admission = Admission(policies, settings.body_memory)
    relay = Relay(dependencies.upstream, admission, metrics.relayed)
    heads = RequestHeads(dependencies.memory, pipeline.naming, is_shadow=is_shadow)
    logs_content = settings.log_content
    managed = Managed(pipeline, engine.appends, relay, metrics, admission, logs_content=logs_content)
    origins = Origins(
        is_local=is_loopback(settings.host),
        public_url=settings.public_url,
        named=settings.cors_origin,
        hosts=settings.allowed_host,
    )
    chat = managed if dependencies.tracer is None else TracedRoute(managed, dependencies.tracer)
    return Front(chat, relay, own, origins=origins, heads=heads, drain=drain)


def begin_log(settings: Settings) -> None:
    """Set up logging by the settings; one of several workers adds its number to each line."""
    shows_content = settings.log_content and "log_level" not in settings.model_fields_set
    level = "DEBUG" if shows_content else settings.log_level.upper()
    is_worker = settings.workers > 1 and multiprocessing.parent_process() is not None
    number = int(multiprocessing.current_process().name.rpartition("-")[2]) if is_worker else None
    set_up_logging(logging.getLevelNamesMapping()[level], settings.log_format, number)


def _open_dependencies(
    settings: Settings, loaded: LoadedPolicies | None, *, owns_store: bool
) -> Dependencies:
    clock, learned = SystemClock(), CacheMemory(settings.cache_memory // _LEARNED, part=2)
    memory = CacheMemory(settings.cache_memory - learned.most)
    metrics = Metrics(lambda: memory.held + learned.held)
    if loaded is None:
        loaded = LoadedPolicies.load(PolicyLibrary(settings.policies), settings.policy)
    policies = WatchedPolicies(loaded, metrics)
    keyring = Keyring(settings.secrets, policies.encrypts)
    url = settings.store or "memory://"
    tracer, timed = open_tracer(), metrics.stored
    upstream: Upstream = open_upstream(settings, settings.operator_credentials)
    if tracer is not None:
        timed, upstream = traced_store(timed), TracedUpstream(upstream, settings.upstream, CHAT)
    store = open_store(
        url,
        clock,
        timeout=settings.store_timeout,
        rest=settings.store_breaker,
        keyring=keyring,
        linger=_LINGER if owns_store else None,
        timed=timed,
    )
    return Dependencies(
        memory=memory,
        learned_memory=learned,
        clock=clock,
        metrics=metrics,
        store=store,
        upstream=upstream,
        counter=TiktokenCounter(),
        search=SqliteSearch(memory),
        policies=policies,
        tracer=tracer,
    )


def build_engine(settings: Settings, dependencies: Dependencies, dialect: Dialect = CHAT) -> Engine:
    """Build the engine on the given outside dependencies."""
    store, upstream, counter = dependencies.store, dependencies.upstream, dependencies.counter
    clock, metrics = dependencies.clock, dependencies.metrics
    memory, learned = dependencies.memory, dependencies.learned_memory
    secret, former = (*settings.secrets, None, None)[:2]
    naming = Naming(secret or "", memory, settings.tenant_header, former=former)
    background = Background()
    foreground = Foreground(
        Contention(clock), clock, settings.background_calls, quiet=settings.background_pause
    )
    billing = Billing(store.bills, clock, metrics, prices.prices_of)
    asking = ModelClient(dialect, upstream, learned, billing)
    prompt_cache = PromptCache(asking, clock, learned, memory)
    summaries = Summaries(prompt_cache, store, counter, foreground, clock, metrics, learned)
    summary_jobs = SummaryJobs(summaries, naming, learned)
    models = Models(
        StatedWindows(upstream, clock, learned), prices.context_window, prices.prices_of, clock, learned
    )
    sessions, reader = SessionCache(learned), Reader(dialect, counter, memory)
    questions = MemoryModel(asking, foreground, counter)
    turns = _memory_scheduler(settings, dependencies, questions, background)
    scopes, sources = turns.writer.scopes, turns.writer.sources
    memories = MemoryReader(naming, scopes, dependencies.search, counter, clock, background, sources)
    recognition = Recognition(store, naming, sessions, clock, learned)
    suffixes = Suffixes(recognition, reader, store, naming)
    decisions = Decisions(
        reader=reader,
        models=models,
        sessions=sessions,
        epochs=Epochs(store, summary_jobs, counter, clock, metrics, learned),
        recall=Recall(dependencies.search, counter, metrics, memory, remembered=memories.recalled).of,
    )
    proofs = Proofs(
        decisions=decisions,
        asking=asking,
        foreground=foreground,
        background=background,
        billing=billing,
        store=store.bills,
        clock=clock,
        counter=counter,
        metrics=metrics,
        credentials=settings.operator_credentials,
    )

    backlog = Backlog(store, pause=settings.store_breaker)
    recorder = Recorder(
        recognition=recognition,
        suffixes=suffixes,
        background=background,
        store=store,
        counter=counter,
        models=models,
        clock=clock,
        metrics=metrics,
        backlog=backlog,
        save_timeout=settings.save_timeout,
        add_bill=billing.add,
        on_recorded=(turns.turn_recorded, proofs.turn_recorded),
    )
    sender = Sender(dialect, upstream, models, decisions, clock)
    pipeline = Pipeline(
        dialect=dialect,
        naming=naming,
        body_cache=BodyCache(dialect, memory),
        reader=reader,
        recognition=recognition,
        suffixes=suffixes,
        attachments=Attachments(store, sessions),
        models=models,
        decisions=decisions,
        tool_caches=ToolCaches(metrics, memory),
        sender=sender,
        tool_loop=ToolLoop(sender, recorder),
        recorder=recorder,
        foreground=foreground,
        background=background,
        memories=memories,
    )
    turn_queue = TurnQueue(store, background, clock, settings.line_lease)
    appends = Appends(dialect, store, reader, recorder, turn_queue, memory)
    return Engine(pipeline, appends, turn_queue, backlog, summaries, summary_jobs, turns, billing)


def _memory_scheduler(
    settings: Settings, dependencies: Dependencies, questions: MemoryModel, background: Background
) -> MemoryScheduler:
    """Build the scheduler of memory, with its writer and daily maintenance."""
    rest, credentials = settings.memory_rest, settings.operator_credentials
    sources = Conversations(dependencies.store, DIALECTS, dependencies.memory)
    scopes = ScopeCache(dependencies.store.memories, dependencies.memory)
    writer = MemoryWriter(scopes, sources, questions, dependencies.counter, dependencies.clock)
    met_on = Lru[str, str](dependencies.learned_memory)
    daily = Maintenance(writer, lambda: dependencies.policies.in_force, background, met_on, rest, credentials)
    return MemoryScheduler(dependencies.store.memories, writer, daily, background, rest)


@asynccontextmanager
async def _serving(
    dependencies: Dependencies, engine: Engine, drain: Drain, on_ready: Callable[[], object]
) -> AsyncGenerator[None]:
    """Load slow parts before the first request; end all in order after the last."""
    loading = (dependencies.counter.ready(), asyncio.to_thread(prices.load))
    knows, *_ = await asyncio.gather(check_secret(dependencies.store.meet()), *loading)
    watching = (
        asyncio.create_task(dependencies.policies.watch()),
        asyncio.create_task(engine.memory_scheduler.daily.every_day()),
        asyncio.create_task(watch_secret(dependencies.store, knows=knows)),
    )
    on_ready()
    try:
        with drain.serving():
            yield
    except asyncio.CancelledError:
        if not drain.is_over:
            raise
        return  # whoever presses Ctrl-C twice waits for nothing more, and reads of no failure
    for each in watching:
        each.cancel()
    await drain.wait_empty(_CUT_OFF)
    await engine.summaries.aclose()
    engine.turn_queue.close()
    engine.memory_scheduler.close()
    await engine.pipeline.background.drain()
    await engine.backlog.aclose()
    await engine.billing.aclose()
    await dependencies.search.aclose()
    await dependencies.upstream.aclose()
    await dependencies.store.aclose()
    if dependencies.tracer is not None:
        await dependencies.tracer.aclose()


def _admin_routes(
    settings: Settings, dependencies: Dependencies, engine: Engine, drain: Drain
) -> list[BaseRoute]:
    """Return the routes of the admin API and the page, for whoever holds the admin token."""
    store, clock, policies = dependencies.store, dependencies.clock, dependencies.policies
    pipeline, turns = engine.pipeline, engine.memory_scheduler
    naming, scopes, reading = pipeline.naming, turns.writer.scopes, pipeline.memories
    inspection = Inspection(
        DIALECTS, store, dependencies.counter, policies.named_or_default, engine.summary_jobs
    )
    memories = MemoryAdmin(scopes, dependencies.search, reading, clock, policies.named_or_default)
    forgetting = Forgetting(memories, naming)
    edits = Edits(
        store=store,
        inspection=inspection,
        recognition=pipeline.recognition,
        epochs=pipeline.decisions.epochs,
        tool_caches=pipeline.tool_caches,
        summary_jobs=engine.summary_jobs,
        turn_queue=engine.turn_queue,
        clock=clock,
        recorder=pipeline.recorder,
        forget_own_scope=forgetting.own_scope,
        credentials=settings.operator_credentials,
    )
    forks = Forks(store, inspection, naming, clock, pipeline.recorder.wait_written)
    token = cast("SecretStr", settings.admin_token).get_secret_value()
    stats = Stats(store, store.bills, engine.billing, clock)
    notices = Notices(inspection, stats, policies.stale, policies.settings_fault)
    auth = AdminAuth(token, clock.now, is_secure=(settings.public_url or "").startswith("https:"))
    api = AdminAPI(
        auth,
        SessionOperations(inspection, edits, forks, stats, clock.now),
        MemoryOperations(memories, forgetting, inspection, turns.daily, naming),
        StatsOperations(stats),
        WatchOperations(notices, inspection, clock.now, lambda: drain.has_begun),
    )
    frame = Frame(
        auth,
        Renderer(clock.now),
        Home(inspection, notices, stats, clock.now),
        SessionPages(inspection, memories, stats, edits, forks),
        MemoryPages(memories, forgetting),
        PolicyPages(policies, inspection, prices.prices_of, stats),
    )
    return [*api.routes(), *frame.routes()]
