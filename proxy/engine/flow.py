"""The five records that carry a request from its bytes to what is written down, in the order of their making.

- :class:`Incoming`: the request as the client sent it, with the policy that was chosen for it
- :class:`Request`: the same with its history and session read, and what it may cost
- :class:`Decision`: what is cut of it, and what stands in the place of that
- :class:`Exchange`: the bytes that go out, and what becomes of the turn
- :class:`Sent`: the upstream's answer, its body still to come

A :class:`Request` holds what came in, an :class:`Exchange` the request and its decision. None keeps a copy of
what another holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from math import ceil
from typing import Self

import msgspec

from proxy.core.budget.budget import Budget, Stage, stage_of
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Epoch, Plan, view_tokens
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions
from proxy.core.policy.policy import Policy
from proxy.core.tool_cache.cache import ToolCache
from proxy.engine.intake.history import Appended, History
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.intake.naming import Envelope
from proxy.engine.models.models import Model
from proxy.engine.sessions.session_cache import EpochLog, SessionState
from proxy.engine.tool_rounds import Answerer, Rounds
from proxy.ports import UpstreamResponse


class Incoming(msgspec.Struct, frozen=True):
    """A request as it came in, its body decoded."""

    envelope: Envelope
    """Its head: who sends it, and what its headers ask for."""
    body: bytes
    policy: Policy
    arrived: float
    """Monotonic seconds."""
    chosen_by: str = ""
    """What chose its policy, in words."""
    appended: Appended | None = None
    """Of a turn that was sent without its history, which stands in the body by now."""
    is_shadow: bool = False
    """Whether it is decided on and recorded, and forwarded as it came whatever was decided."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be decided on: what came in, what it may cost, and what is known of its lane."""

    incoming: Incoming
    history: History
    session: SessionState
    log: EpochLog | None
    """The lane's epochs; None where neither the store nor this process can say."""
    model: Model
    chain: Chain
    """What goes out of the history, counted, if nothing is cut."""
    budget: Budget
    conditions: Conditions = UNKNOWN_CONDITIONS
    tool: bytes = b""
    """The tool that we add where something is cut; empty where none may be offered."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned in its session."""
    home: MemoryHome | None = None
    """Where its turn is remembered; None where its policy remembers nothing."""

    @property
    def cache_key(self) -> str:
        """What names the provider's cache where something is cut; empty where nothing does, or the client."""
        model, economy = self.model, self.incoming.policy.economy
        may_name = economy.enabled and not (model.refuses_cache_key or self.history.body.names_cache)
        return self.session.cached.cache_key if may_name else ""

    @property
    def counted(self) -> int:
        return self.budget.head + self.chain.tokens.total

    def tool_under(self, plan: Plan) -> bytes:
        """The tool that goes out under this plan: one that reads only what is cut, where something is."""
        return self.tool if plan != EMPTY or self.incoming.policy.memory.enabled else b""

    def alternates(self, epoch: Epoch | None) -> bool:
        """Whether notes go out within their neighbours, for a model that wants alternating roles.

        As the epoch in force says, else the policy; where that leaves it to the model, as soon as it has
        refused anything else.
        """
        rule = self.incoming.policy.summary.alternate
        if rule == "auto":
            return self.model.alternates or (epoch is not None and epoch.alternates)
        return rule if epoch is None else epoch.alternates


class Decision(msgspec.Struct, frozen=True):
    """What a request is forwarded with."""

    plan: Plan
    stage: Stage
    """Of the view before this request's edits."""
    view: int
    """Counted tokens of the view, without the head."""
    log: EpochLog | None
    """The lane's epochs by now."""
    epoch: Epoch | None = None
    """The one in force."""
    number: int = 0
    """Epochs in force, 0 where there is none."""
    summary: str = "none"
    degraded: tuple[str, ...] = ()
    lacking: int = 0
    """Counted tokens that an epoch lacks to pay, which waits for them; 0 where none waits."""
    is_unsigned: bool = False
    """Whether no signed reasoning goes out: nobody knows behind what it was made, or it was refused."""

    @classmethod
    def under(cls, request: Request, plan: Plan, epoch: Epoch | None = None) -> Self:
        """What a request is forwarded with under a plan, where no epoch begins at it."""
        view = view_tokens(plan, request.chain.tokens)
        return cls(
            plan=plan,
            stage=stage_of(request.budget.usage(view), request.incoming.policy.stages),
            view=view,
            log=request.log,
            epoch=epoch,
            number=epoch.number if epoch is not None else 0,
            summary="ready" if plan.gaps and plan.anchors else "none",
        )

    @property
    def parent(self) -> str:
        """Id of the epoch in force, upon which the next one is written; empty where there is none."""
        return self.epoch.id if self.epoch is not None else ""


class Exchange(msgspec.Struct, kw_only=True):
    """A request on its way to the upstream and back: the bytes that go out, and what becomes of the turn."""

    request: Request
    decision: Decision
    sent_tokens: int = 0
    """Tokens of what is forwarded, by our own count."""
    sent: int = 0
    """Tokens of the view as the model counts them: of what is forwarded or, in shadow, would have been."""
    full: int = 0
    """Tokens of the whole conversation as the model counts them."""
    plain: bytes
    """What goes out, without the parameters that only we ask for."""
    body: bytes = b""
    """What goes out."""
    adds_usage: bool = False
    """Whether the upstream is asked for a usage that the client did not ask for."""
    adds_cache_key: bool = False
    """Whether the provider's cache is named, which the client did not ask for."""
    is_cache_key_refused: bool = False
    """Whether it went out once more because of that."""
    is_tool_refused: bool = False
    """Whether it went out once more without a tool of ours, the only one."""
    tools: ToolCache
    """Tool results that are fresh at its end."""
    degraded: list[str] = []
    answer: bytes = b""
    """Chain hash of the answer, once it is over."""
    is_announced: bool = False
    """Whether its messages are in the store already."""
    answerers: list[Answerer] = []
    """Who answers calls of tools that were added to it."""
    rounds: Rounds | None = None
    """What was said out of the client's sight in the answer."""
    recording: asyncio.Task[bool] | None = None
    """The turn on its way into the store."""

    def __post_init__(self) -> None:
        self.set_request(self.request, self.decision, self.plain)

    def set_request(self, request: Request, decision: Decision, plain: bytes) -> None:
        """Set the request, what was decided on it and the body to send, and count their tokens."""
        head, ratio = request.budget.head, request.budget.ratio
        view, whole = head + decision.view, head + request.chain.tokens.total
        self.request, self.decision = request, decision
        self.sent_tokens = whole if request.incoming.is_shadow else view
        self.sent, self.full = ceil(view * ratio), ceil(whole * ratio)
        self.plain = self.body = plain
        self.adds_usage = self.adds_cache_key = False

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """What the client is told of the request before the answer's first byte (docs/api.md)."""
        request, decision, window = self.request, self.decision, self.request.budget.window
        tokens = f"sent={self.sent};full={self.full};budget={request.budget.tokens or 'none'}"
        tokens += f";window={window.tokens or 'none'};window_from={window.source}"
        headers = [
            (b"x-unabridged-session", request.session.name.encode("latin-1", "replace")),
            (b"x-unabridged-stage", decision.stage.encode()),
            (b"x-unabridged-epoch", b"%d" % decision.number),
            (b"x-unabridged-tokens", tokens.encode()),
            (b"x-unabridged-cut", b"%d" % (decision.plan.cut if decision.plan.gaps else 0)),
            (b"x-unabridged-summary", decision.summary.encode()),
            (b"x-unabridged-tool-cache", b"hits=%d" % (self.rounds.hits if self.rounds else 0)),
        ]
        if request.incoming.is_shadow:
            headers.append((b"x-unabridged-mode", b"shadow"))
        reasons = [*self.degraded, *decision.degraded]
        if reasons:
            headers.append((b"x-unabridged-degraded", ", ".join(reasons).encode()))
        return headers


class Sent(msgspec.Struct, frozen=True):
    """An upstream's answer to a managed request, its body still to come."""

    response: UpstreamResponse
    begun: bytes
    """What was read of the body already."""
    is_over: bool
    """Whether ``begun`` is all of it."""
    opening: bytes = b""
    """What may be a refusal: the body of an error, the data of a stream's first event."""

    def chunks(self) -> AsyncIterator[bytes]:
        """All of its body, what was read of it included."""
        return self._chunks() if self.begun or self.is_over else self.response.chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.begun:
            yield self.begun
        if not self.is_over:
            async for chunk in self.response.chunks():
                yield chunk


def header_of(response: UpstreamResponse, wanted: bytes) -> bytes:
    """A header of an answer, in lower case; empty where it has none of that name."""
    for name, value in response.headers:
        if name.lower() == wanted:
            return value.strip().lower()
    return b""


def is_stream(response: UpstreamResponse) -> bool:
    """Whether an answer says that it is a stream of events."""
    return header_of(response, b"content-type").startswith(b"text/event-stream")
