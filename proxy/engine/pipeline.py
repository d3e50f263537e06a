"""The path of a managed request, from its bytes to its answer; it reads from top to bottom.

The HTTP layer calls :meth:`Pipeline.prepare`, :meth:`Pipeline.answer`, and, once the answer is over,
:meth:`~proxy.engine.recording.recorder.Recorder.begin`, which writes the turn to the store.
"""

import asyncio
import hashlib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from proxy.core.conversation.extension import ABSENT, MEMBER, Extension, Injection, take_extension
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.dialect import MODEL_NAME_CHARACTERS, Dialect
from proxy.core.planning.chain import Chain
from proxy.core.planning.situation import Conditions
from proxy.core.recall.tool import recall_tool
from proxy.engine.answers.sending import Sender
from proxy.engine.answers.tool_cache import ToolCaches
from proxy.engine.answers.tool_loop import ToolLoop
from proxy.engine.background import Background
from proxy.engine.flow import NOTHING_FRESH, Exchange, Incoming, PeekedResponse, Request
from proxy.engine.foreground import Foreground
from proxy.engine.intake.history import History
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.intake.naming import Naming
from proxy.engine.intake.reader import BodyCache, ReadBody, Reader
from proxy.engine.memory.reader import MemoryReader
from proxy.engine.models.models import Added, Models
from proxy.engine.planning.decisions import Decisions
from proxy.engine.recording.recorder import Recorder
from proxy.engine.sessions.attachments import Attachments
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import EpochLog, SessionState
from proxy.engine.sessions.suffixes import Placement, Suffixes
from proxy.ports import NAMED
from proxy.tracing import PLAN, UNTRACED, current, step

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
"""Shortest and longest seconds between two checks whether a compaction is over."""
_ROOT = root_hash()
"""The root hash of sessions that a header names."""


@dataclass(frozen=True)
class Pipeline:
    """The parts that handle managed requests, wired once."""

    dialect: Dialect
    naming: Naming
    body_cache: BodyCache
    reader: Reader
    recognition: Recognition
    suffixes: Suffixes
    attachments: Attachments
    models: Models
    decisions: Decisions
    tool_caches: ToolCaches
    sender: Sender
    tool_loop: ToolLoop
    recorder: Recorder
    foreground: Foreground
    background: Background
    memories: MemoryReader

    async def prepare(self, incoming: Incoming) -> Exchange:
        """Decide what is forwarded. Raises the errors of a request that cannot be read.

        Raises StoreUnavailable if the store is away for an appended turn, or where the policy is closed on
        faults.
        """
        policy, is_shadow = incoming.policy, incoming.is_shadow
        read, extension, history = await self._read(incoming)
        history, session, log = await self._recognised(incoming, history)
        degraded = ["store"] if session.is_store_away else []
        home = None
        if policy.memory.enabled:
            home = self.memories.home(incoming, history, session.key, session.former_tag)
        pins, injection = await self._attached(incoming, extension, session, history, home, degraded)
        chain = history.counted
        if history.new:
            chain = await self.reader.count(history, session.found.counts)
            self.body_cache.keep(read, history, chain)
        if injection is not None:
            history = replace(history, injection=injection)
        request = await self._request(incoming, history, chain, session, log, pins, home)
        with step(PLAN) if current() is not None else UNTRACED:
            decision = await self.decisions.decide(request)
        body = history.body.raw if is_shadow else self.decisions.body(request, decision)
        exchange = Exchange(request=request, decision=decision, base_body=body, degraded=degraded)
        if not is_shadow:
            if policy.tools or injection is not None:
                exchange.tool_cache = await self.tool_caches.fresh(request)
            if request.tool:
                exchange.recaller = self.decisions.recaller(request, decision)
            self.sender.add_parameters(exchange)
        return exchange

    async def answer(self, exchange: Exchange) -> PeekedResponse:
        """Send the request and return the answer as the client gets it, with known tool calls answered here.

        Raises UpstreamUnreachable, UpstreamTimeout and UpstreamInvalidResponse.
        """
        request = exchange.request
        kind = f"{request.history.body.is_streamed} {request.model.name[:MODEL_NAME_CHARACTERS]}"
        credentials = request.incoming.envelope.credentials
        sent = await self.foreground.send_measured(kind, credentials, partial(self.sender.send, exchange))
        if exchange.tool_cache is NOTHING_FRESH and exchange.recaller is None:
            return sent
        return await self.tool_loop.run(exchange, sent)

    # --- the steps of `prepare`, in their order ---

    async def _read(self, incoming: Incoming) -> tuple[ReadBody, Extension, History]:
        """Read the body and place its messages on their chain; new messages are decoded and identified."""
        caller, appended = incoming.envelope.caller, incoming.appended
        scope = f"{caller.tenant}\0{caller.name}".encode(errors="surrogatepass")
        read = self.body_cache.read(
            incoming.body, scope, incoming.policy.limits.messages, is_shared=caller.name is None
        )
        body, extension = read.body, ABSENT
        if MEMBER in body.members:
            body, extension = take_extension(body)
        start = _ROOT if appended is None else appended.root
        if appended is None and (caller.key is None or caller.key.sid != NAMED):
            start = root_hash(body.person)  # the person talking, where the client says so, is part of it
        return read, extension, await self.reader.read(body, start, read.before)

    async def _recognised(
        self, incoming: Incoming, history: History
    ) -> tuple[History, SessionState, EpochLog | None]:
        """Return a request's session and its lane's epochs; wait for a compaction that is under way.

        It waits at most `summary.wait` seconds; after that the request goes on under the plan in force.
        Also returns the history, on the session's chain where its client has dropped the oldest messages.
        Raises StoreUnavailable.
        """
        policy, caller, now = incoming.policy, incoming.envelope.caller, self.recorder.clock.monotonic
        # Requests of one lane share their plans. What is planned in shadow applies only in shadow.
        parts = f"{history.model}\0{policy.name}\0{incoming.lower_budget or ''}"
        parts += "\0shadow" if incoming.is_shadow else ""
        lane = hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()[:16]
        is_closed = policy.store.on_fault == "closed"
        needs_store = incoming.appended is not None or is_closed
        if is_closed:
            await self.recorder.backlog.check()
        deadline, pause = now() + policy.summary.wait, _SHORTEST_PAUSE
        while True:
            session, log = await self.recognition.recognise(caller, history, lane, needs_store=needs_store)
            # The newest answer of a session that a header names may be on its way to the store.
            is_written = caller.key is None or session.key not in self.recorder.writing
            if incoming.appended is None and (is_written or session.is_unmatched):
                history, session, log = await self.suffixes.place(
                    caller, Placement(history, session, log), lane
                )
            stored = session.found.session
            if stored is None or not stored.blocked or not stored.is_compacting or now() >= deadline:
                return history, session, log
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attached(
        self,
        incoming: Incoming,
        extension: Extension,
        session: SessionState,
        history: History,
        home: MemoryHome | None,
        degraded: list[str],
    ) -> tuple[AbstractSet[bytes], Injection | None]:
        """Return the session's pins and its injection, including those of this request.

        Mostly both are empty.
        """
        appended, policy, found = incoming.appended, incoming.policy, session.found
        places, inject = (appended.pins, appended.inject) if appended is not None else ((), extension.inject)
        if extension.pins:
            places = extension.pins_from_end(len(history.head))
        pins, injection = frozenset[bytes](), None
        if places or session.cached.pins or (found.session is not None and found.session.pins):
            pinned = frozenset([history.hashes[-place] for place in places])
            pins, unsaved = await self.attachments.pins(session, pinned, policy.store.ttl)
            degraded += unsaved
        room = policy.memory.inject_tokens if home is not None else 0
        if not incoming.is_shadow and (inject or room or session.cached.injection or found.injected):
            memory = (
                partial(self.memories.opening, home, history, session.key, room) if home and room else None
            )
            injection, unkept = await self.attachments.injection(session, inject, policy.store.ttl, memory)
            degraded += unkept
        return pins, injection

    async def _request(
        self,
        incoming: Incoming,
        history: History,
        chain: Chain,
        session: SessionState,
        log: EpochLog | None,
        pins: AbstractSet[bytes],
        home: MemoryHome | None,
    ) -> Request:
        """Build the request to decide on, with its budget."""
        policy, credentials = incoming.policy, incoming.envelope.credentials
        model, last = self.models.of(session.tenant, history.model), session.found.session
        if last is not None and last.model == history.model and not model.ratio.samples:
            model.remember_ratio(last.ratio)  # another worker may have learned how it counts
        stated = model.stated
        refuses_tool = Added.TOOL in model.refuses
        refuses_tool |= Added.TOOL_BESIDE_FORMAT in model.refuses and history.body.has_format
        may_offer = policy.recall.enabled and not refuses_tool
        tool = recall_tool(history.body, with_memory=policy.memory.enabled) if may_offer else b""
        if session.hidden and not incoming.is_shadow:
            history = history.with_hidden(session.hidden, has_tool=bool(tool))
            chain = chain.with_hidden(history.hidden)
        budget = await self.decisions.budget(incoming, history, chain, model, tool)
        if stated.window is None and self.models.stated.may_tell(stated, credentials):
            self.background.run(self.models.stated.ask(stated, credentials), is_needed=False)
        if not session.cached.cache_key:
            session.cached.cache_key = self.naming.cache_key(session.key)
        is_suffix = history.suffix.length > 0
        answers = session.last_answers(history.head, budget.head, history.hashes, is_suffix=is_suffix)
        now, times = self.recorder.clock.now(), (answers.in_lane, answers.under_head, session.last_answer)
        idle, head_idle, pause = (None if at is None else max(now - at, 0.0) for at in times)
        return Request(
            incoming=incoming,
            history=history,
            session=session,
            epoch_log=log,
            model=model,
            chain=chain,
            budget=budget,
            conditions=Conditions(
                idle=idle,
                head_idle=head_idle,
                head_sent=answers.sent,
                pause=pause,
                boundary=incoming.envelope.is_boundary,
                prices=self.models.prices(model.name).under(policy.economy),
            ),
            tool=tool,
            pins=pins,
            home=home,
        )
