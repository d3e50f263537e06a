"""One managed request, from its bytes to the bytes that are forwarded, and from the answer to the record.

The way through the house (DESIGN 3): read, name, look up once, count what is new, decide, splice, send; and
after the last byte of the answer, write down. Whoever moves the bytes calls :meth:`Engine.prepare`,
:meth:`Engine.send` and, when the answer is over or cut off, :meth:`Exchange.end`.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from proxy.core.body import read_body
from proxy.core.budget import UNKNOWN_WINDOW, Budget, budget_tokens
from proxy.core.overflow import is_overflow_error
from proxy.core.plan import Epoch, apply
from proxy.core.policy import Policy
from proxy.engine.epochs import Case, Epochs, Verdict
from proxy.engine.foreground import Foreground
from proxy.engine.history import History, Reader
from proxy.engine.lru import Lru
from proxy.engine.models import Models
from proxy.engine.naming import Headers, Naming, session_header
from proxy.errors import ContextLengthExceeded, InvalidPolicy, PolicyForbidden, StoreUnavailable
from proxy.ports import Clock, Found, Lookup, SessionKey, SessionStore, Upstream, UpstreamResponse
from proxy.telemetry import Metrics

POLICY_HEADER = b"x-unabridged-policy"
BUDGET_HEADER = b"x-unabridged-budget"
_ASKED = 64
"""Chain hashes, newest first, by which a session is recognised."""
_DEADLINE = 3.0
"""Seconds that a request may wait for everything of ours together."""
_REMEMBERED = 20_000
_REFUSAL_BYTES = 2**20
_REFUSALS = frozenset({400, 413, 422, 500})


@dataclass(frozen=True)
class Incoming:
    """A request as it came in."""

    headers: Headers
    body: bytes
    forwarded: Sequence[tuple[bytes, bytes]]
    """The headers that go to the upstream."""


@dataclass(frozen=True)
class Place:
    """Where a request belongs."""

    tenant: str
    key: SessionKey
    name: str
    headerless: bool


@dataclass
class Prepared:
    """A request that is ready to be sent, and what must be known to record its turn."""

    place: Place
    policy: Policy
    history: History
    budget: Budget
    case: Case
    verdict: Verdict
    found: Found
    body: bytes
    degraded: list[str] = field(default_factory=list[str])
    arrived: float = 0.0

    @property
    def sent_tokens(self) -> int:
        """Counted tokens of what is forwarded."""
        return self.budget.head + self.verdict.view

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """The contract's headers: what was known before the first byte."""
        real, verdict = self.budget.real, self.verdict
        tokens = f"sent={real(self.sent_tokens)};full={real(self.case.counted)};budget={self.budget.tokens}"
        pairs = [
            (b"x-unabridged-session", self.place.name),
            (b"x-unabridged-stage", verdict.stage.value),
            (b"x-unabridged-epoch", str(verdict.number)),
            (b"x-unabridged-tokens", tokens),
            (b"x-unabridged-cut", str(verdict.plan.cut)),
            (b"x-unabridged-summary", verdict.summary),
            (b"x-unabridged-tool-cache", "hits=0"),
        ]
        reasons = [*self.degraded, *verdict.degraded]
        if reasons:
            pairs.append((b"x-unabridged-degraded", ", ".join(reasons)))
        return [(name, value.encode("latin-1", errors="replace")) for name, value in pairs]


@dataclass
class Sent:
    """An upstream's answer to a managed request, its body still to come."""

    response: UpstreamResponse
    begun: bytes
    """What was read of the body already."""
    is_over: bool
    """Whether ``begun`` is all of it."""


class Engine:
    """Everything that a managed request needs, wired once."""

    def __init__(
        self,
        *,
        store: SessionStore,
        upstream: Upstream,
        reader: Reader,
        models: Models,
        epochs: Epochs,
        naming: Naming,
        foreground: Foreground,
        policy: Policy,
        policies: Callable[[str], Policy],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._upstream = upstream
        self._reader = reader
        self._models = models
        self._epochs = epochs
        self._naming = naming
        self._foreground = foreground
        self._policy = policy
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._held: Lru[tuple[SessionKey, str], tuple[Epoch, ...]] = Lru(_REMEMBERED)
        self._lost: set[SessionKey] = set()
        self._background: set[asyncio.Task[None]] = set()

    def policy_of(self, headers: Headers) -> Policy:
        """The policy that a request asks for. Raises InvalidPolicy."""
        name = headers.get(POLICY_HEADER, b"").decode("latin-1").strip()
        return self._policies(name) if name else self._policy

    async def prepare(self, incoming: Incoming, policy: Policy) -> Prepared:
        """Decide what is forwarded. Raises the errors of a request that cannot be read, and no others."""
        arrived = self._clock.monotonic()
        body = read_body(incoming.body, policy.limits.messages)
        name = session_header(incoming.headers)
        tenant = self._naming.tenant(incoming.headers)
        history = self._reader.read(body, by_header=name is not None)
        explicit = _explicit_budget(incoming.headers)
        lane = _lane(history.model, policy.name, explicit)
        place, found, degraded = await self._look_up(tenant, name, history, lane, policy)
        self._reader.take_counts(history, found.counts)
        await self._reader.count(history)
        budget = await self._budget(history, policy, explicit)
        case = Case(
            tenant=tenant,
            key=place.key,
            lane=lane,
            model=history.model,
            chain=history.chain(),
            head_count=len(history.head),
            policy=policy,
            budget=budget,
            epochs=self._known_epochs(place.key, lane, found, is_down="store" in degraded),
            credentials=_credentials(incoming.forwarded),
            deadline=arrived + _DEADLINE,
        )
        self._list_models(case)
        verdict = await self._decide(case)
        if place.key in self._lost:
            degraded.append("previous-turn")
        return Prepared(
            place,
            policy,
            history,
            budget,
            case,
            verdict,
            found,
            _forwarded(history, verdict),
            degraded,
            arrived,
        )

    async def _look_up(
        self, tenant: str, name: str | None, history: History, lane: str, policy: Policy
    ) -> tuple[Place, Found, list[str]]:
        """Name the session and read what is known of it, in one trip to the store."""
        named = None if name is None else self._naming.named(tenant, name)
        tag = named.tag if named else self._naming.bucket(tenant, history.first_user)
        lookup = Lookup(
            tag=tag,
            sid=named.sid if named else None,
            newest=tuple(reversed(history.hashes[-_ASKED:])),
            uncounted=tuple(history.hashes[place] for place in history.uncounted),
            lane=lane,
            seen=(named.sid, len(self._held.get((named, lane)) or ())) if named else ("", 0),
        )
        degraded: list[str] = []
        try:
            found = await self._store.find(lookup)
        except StoreUnavailable:
            if policy.store.on_fault == "closed":
                raise
            found = Found()
            degraded.append("store")
        key = named or SessionKey(tag, found.sid or secrets.token_hex(8))
        shown = name if name is not None else self._naming.issue(tenant, key)
        return Place(tenant, key, shown, named is None), found, degraded

    def _known_epochs(
        self, key: SessionKey, lane: str, found: Found, *, is_down: bool
    ) -> tuple[Epoch, ...] | None:
        held = self._held.get((key, lane))
        if is_down:
            return held
        if held and found.sid is not None and key.sid == found.sid:
            fresh = [epoch for epoch in found.epochs if all(epoch.id != old.id for old in held)]
            epochs = (*held, *fresh)
        else:
            epochs = found.epochs
        self._held.put((key, lane), epochs)
        return epochs

    async def _budget(self, history: History, policy: Policy, explicit: int | None) -> Budget:
        window = self._models.window(history.model, policy)
        reserve = _reserve(history, policy)
        limit = policy.budget.tokens if isinstance(policy.budget.tokens, int) else None
        if explicit is not None:
            allowed = budget_tokens(limit, window, reserve) if limit or window else UNKNOWN_WINDOW
            if explicit > allowed:
                raise PolicyForbidden(f"The budget can be lowered, not raised (it is {allowed} tokens).")
            limit = explicit
        tokens = budget_tokens(limit, window, reserve)
        head = await self._reader.head_tokens(history)
        return Budget(tokens, self._models.ratio(history.model), head)

    async def _decide(self, case: Case) -> Verdict:
        verdict = await self._epochs.decide(case)
        if verdict.epochs is not None:
            self._held.put((case.key, case.lane), verdict.epochs)
        needed = case.budget.head + verdict.view
        if case.policy.budget.overflow == "error" and needed > case.budget.limit:
            raise ContextLengthExceeded(
                needed=case.budget.real(case.counted),
                kept=case.budget.real(needed),
                limit=case.budget.tokens,
            )
        return verdict

    def _list_models(self, case: Case) -> None:
        """Look the window of an unknown model up, in the background and once."""
        if self._models.needs_listing(case.model):
            self.in_background(self._models.read_listing(case.credentials, self._foreground))

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine beside the requests, to its end."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def send(self, prepared: Prepared, incoming: Incoming, in_flight: ExitStack) -> Sent:
        """Forward; a refusal for length teaches the window, and the request is pruned and sent once more.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse.
        """
        in_flight.enter_context(self._foreground.request())
        sent = await self._send(prepared, incoming)
        refusal = is_overflow_error(sent.response.status, _first_event(sent))
        if refusal is None:
            return sent
        self._models.learn_refusal(prepared.case.model, prepared.sent_tokens, refusal)
        if not await self._prune_harder(prepared, incoming):
            return sent
        await sent.response.aclose()
        return await self._send(prepared, incoming)

    async def _send(self, prepared: Prepared, incoming: Incoming) -> Sent:
        response = await self._upstream.send("POST", "/chat/completions", incoming.forwarded, prepared.body)
        try:
            return await _begin(response)
        except BaseException:
            await response.aclose()
            raise

    async def _prune_harder(self, prepared: Prepared, incoming: Incoming) -> bool:
        """Decide again under what was just learned; whether there is anything else to send."""
        explicit = _explicit_budget(incoming.headers)
        budget = await self._budget(prepared.history, prepared.policy, explicit)
        epochs = prepared.verdict.epochs
        verdict = await self._decide(replace(prepared.case, budget=budget, epochs=epochs))
        body = _forwarded(prepared.history, verdict)
        if body == prepared.body:
            return False
        prepared.budget, prepared.verdict, prepared.body = budget, verdict, body
        prepared.case = replace(prepared.case, budget=budget)
        return True

    def mark_lost(self, key: SessionKey) -> None:
        """The turn could not be written: the session's next answer says so."""
        self._lost.add(key)

    def mark_saved(self, key: SessionKey) -> None:
        """A later turn was written, and with it what was lost."""
        self._lost.discard(key)

    async def drain(self) -> None:
        """Wait for what goes on in the background."""
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)


def _forwarded(history: History, verdict: Verdict) -> bytes:
    """The body that goes out: the client's own bytes unless a plan is in force (law 1)."""
    if not verdict.plan.gaps and not verdict.plan.replacements:
        return history.body.raw
    return history.body.with_messages([*history.head, *apply(verdict.plan, history.raws)])


async def _begin(response: UpstreamResponse) -> Sent:
    """Read as much as tells a refusal from an answer: all of an error, the first bytes of a stream."""
    if response.status == 200 and not _is_stream(response):
        return Sent(response, b"", is_over=False)
    begun = bytearray()
    async for chunk in response.chunks():
        begun += chunk
        if response.status not in _REFUSALS or len(begun) > _REFUSAL_BYTES:
            return Sent(response, bytes(begun), is_over=False)
    return Sent(response, bytes(begun), is_over=True)


def _is_stream(response: UpstreamResponse) -> bool:
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in response.headers
    )


def _first_event(sent: Sent) -> bytes:
    """The body of an error, or the data of a stream's first event where that may be one."""
    if sent.response.status != 200:
        return sent.begun
    head, _, _ = sent.begun.partition(b"\n\n")
    return head.removeprefix(b"data:").strip() if b'"error"' in head else b""


def _credentials(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What a background call takes over from the request that caused it."""
    names = (b"authorization", b"api-key", b"x-api-key", b"openai-organization", b"openai-project")
    return [(name, value) for name, value in headers if name.lower() in names]


def _lane(model: str, policy: str, budget: int | None) -> str:
    said = f"{model}\0{policy}\0{budget or ''}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]


def _explicit_budget(headers: Mapping[bytes, bytes]) -> int | None:
    text = headers.get(BUDGET_HEADER, b"").decode("latin-1").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) == 0:
        raise InvalidPolicy("X-Unabridged-Budget must be a positive number of tokens.")
    return int(text)


def _reserve(history: History, policy: Policy) -> int | None:
    """Output tokens to keep free: what the request allows itself, else what the policy says."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = history.body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return policy.budget.reserve if isinstance(policy.budget.reserve, int) else None
