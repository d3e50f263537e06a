"""The five records that carry a request from its bytes to its stored turn, in the order they are made.

A :class:`Request` holds its :class:`Incoming`, an :class:`Exchange` holds the request and its
:class:`Decision`; a :class:`PeekedResponse` is what comes back. None of them copies fields of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from math import ceil
from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage, stage_of
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Epoch, Plan, view_tokens
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions
from proxy.core.policy.policy import Policy
from proxy.core.recall.tool import carries_tool
from proxy.core.tool_cache.cache import ToolCache
from proxy.engine.intake.history import Appended, History
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.intake.naming import Envelope
from proxy.engine.models.asking import CallOptions
from proxy.engine.models.models import NOTHING_ADDED, Added, Model
from proxy.engine.sessions.session_cache import EpochLog, SessionState
from proxy.engine.tool_rounds import Answerer, Rounds
from proxy.ports import Header, Recorded, UpstreamResponse

NOTHING_FRESH = ToolCache()
_DAY = 86_400.0


class Incoming(msgspec.Struct, frozen=True):
    """A request as it came in, its body decoded."""

    envelope: Envelope
    """The request's head: its caller, and what its headers ask for."""
    body: bytes
    policy: Policy
    arrived: float
    """Monotonic seconds."""
    chosen_by: str = ""
    """How the policy was chosen, in words."""
    appended: Appended | None = None
    """Set for a turn that was sent without its history; ``body`` then already includes the stored history."""
    is_shadow: bool = False
    """Whether the request is decided on and recorded, but forwarded unchanged whatever was decided."""

    @property
    def lower_budget(self) -> int | None:
        """The budget in tokens that the request asks for; None where the policy allows no more than that."""
        asked = self.envelope.budget
        if asked is None:
            return None
        allowed = self.policy.budget.limit
        return asked if allowed is None or asked < allowed else None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to decide on: what came in, its budget, and the state of its lane."""

    incoming: Incoming
    history: History
    session: SessionState
    epoch_log: EpochLog | None
    """The lane's epochs; None where neither the store nor this process can say."""
    model: Model
    chain: Chain
    """The messages that would be sent if nothing were cut, with their token counts."""
    budget: Budget
    conditions: Conditions = UNKNOWN_CONDITIONS
    tool: bytes = b""
    """The proxy's own tool, added where something is cut; empty where none may be offered."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned in its session."""
    home: MemoryHome | None = None
    """Where memory stores this turn; None where the policy turns memory off."""

    @property
    def cache_key(self) -> str:
        """The key sent to the provider's prompt cache where something is cut.

        Empty where the policy's economy is off, the model refuses the parameter, or the client names the
        cache.
        """
        model, economy = self.model, self.incoming.policy.economy
        may_name = economy.enabled and not (
            Added.CACHE_KEY in model.refuses or self.history.body.has_cache_key
        )
        return self.session.cached.cache_key if may_name else ""

    @property
    def ttl(self) -> float:
        """Seconds that the session lives after this turn; without a header, at most a day for its first one.

        While the store is away nobody knows which turn is the first, so the policy's ttl holds.
        """
        ttl, session = self.incoming.policy.store.ttl, self.session
        is_known = session.found.session is not None or session.is_store_away
        return min(ttl, _DAY) if session.is_headerless and not is_known else ttl

    @property
    def counted_tokens(self) -> int:
        """Counted tokens of the request if nothing were cut, head included."""
        return self.budget.head + self.chain.tokens.total

    @property
    def starts_mid_conversation(self) -> bool:
        """Whether a session begins with this request in the middle of a conversation.

        The conversation may have been sent before, in a session that nobody can find.
        """
        return self.session.is_new and self.conditions.head_sent == 0 and self.chain.sent_before > 0

    @property
    def is_one_off(self) -> bool:
        """Whether no request may ever continue from what is cut here.

        So it is with requests for titles, with one that drops its oldest messages, and with each one of a
        client that names no session and changes the answers which it sends back.
        """
        if self.history.suffix.length:
            return self.conditions.head_sent == 0
        return self.session.is_detached or (self.session.is_headerless and self.starts_mid_conversation)

    @property
    def media_tokens(self) -> int | None:
        """How many of the tokens are of images, audio and files; None where nobody can count all tokens."""
        return None if self.history.body.has_provider_additions else self.chain.media_tokens

    @property
    def summary_caller(self) -> CallOptions:
        """In whose name the model is asked for summaries and memories of this conversation."""
        envelope, rules = self.incoming.envelope, self.incoming.policy.summary
        window, query = self.budget.window.limit, envelope.api_version
        return CallOptions.for_summaries(rules, self.model.name, envelope.credentials, window, query)

    def tool_under(self, plan: Plan) -> bytes:
        """Return the proxy's tool where it goes out with the request under this plan; else empty."""
        is_sent = self.tool and carries_tool(plan, self.incoming.policy, self.history.own_tool_tokens())
        return self.tool if is_sent else b""

    def without_tool(self) -> Self:
        """Return the request without the proxy's tool, and without its calls if the client has no tools."""
        history = self.history.with_hidden(self.session.hidden, has_tool=False)
        return replace(self, tool=b"", history=history, chain=self.chain.with_hidden(history.hidden))

    def alternates(self, epoch: Epoch | None) -> bool:
        """Whether notes are merged into neighbouring messages, for a model that requires alternating roles.

        The policy decides, or where an epoch is in force, that epoch. If the policy leaves it to the model
        ("auto"), notes are merged once the model has refused other orders, or the epoch in force merges them.
        """
        rule = self.incoming.policy.summary.alternate
        if rule == "auto":
            return self.model.alternates or (epoch is not None and epoch.alternates)
        return rule if epoch is None else epoch.alternates


class Decision(msgspec.Struct, frozen=True):
    """The plan that a request is forwarded with, and the state of its lane after that decision."""

    plan: Plan
    stage: Stage
    """Stage of the view before this request's edits."""
    view_tokens: int
    """Counted tokens of the view, without the head."""
    epoch_log: EpochLog | None
    """The lane's epochs after this decision."""
    epoch: Epoch | None = None
    """The epoch in force."""
    number: int = 0
    """Number of the epoch in force, 0 where there is none."""
    summary: str = "none"
    degraded: tuple[str, ...] = ()
    lacking: int = 0
    """Counted tokens by which a waiting epoch falls short of paying for itself; 0 where none waits."""
    is_unsigned: bool = False
    """Whether all signed reasoning is left out: it was refused, or nobody knows what preceded it."""

    @classmethod
    def under(cls, request: Request, plan: Plan, epoch: Epoch | None = None) -> Self:
        """Return the decision to forward a request under a plan without beginning an epoch."""
        view = view_tokens(plan, request.chain.tokens)
        return cls(
            plan=plan,
            stage=stage_of(request.budget.usage(view), request.incoming.policy.stages),
            view_tokens=view,
            epoch_log=request.epoch_log,
            epoch=epoch,
            number=epoch.number if epoch is not None else 0,
            summary="ready" if plan.gaps and plan.anchors else "none",
        )

    @property
    def parent(self) -> str:
        """Id of the epoch in force, on which the next one builds; empty where there is none."""
        return self.epoch.id if self.epoch is not None else ""

    def begins_epoch(self, request: Request) -> bool:
        """Whether an epoch began at this request."""
        before, now = request.epoch_log, self.epoch_log
        return before is not None and now is not None and len(now.epochs) > len(before.epochs)


class Exchange(msgspec.Struct, kw_only=True):
    """A request on its way to the upstream and back: the bytes to send, and the state of the turn."""

    request: Request
    decision: Decision
    counted_tokens: int = 0
    """Counted tokens of what is forwarded, head included."""
    sent_tokens: int = 0
    """Tokens of head and view as the model counts them: as forwarded or, in shadow, as it would have been."""
    full_tokens: int = 0
    """Tokens of the head and the whole conversation as the model counts them, had nothing been recalled."""
    base_body: bytes
    """The body to send, before the parameters are added that only the proxy asks for."""
    body: bytes = b""
    """The body to send."""
    adds_usage: bool = False
    """Whether the proxy asks the upstream for usage that the client did not ask for."""
    adds_cache_key: bool = False
    """Whether the proxy added a prompt cache key that the client did not send."""
    refused: Added = NOTHING_ADDED
    """What the request was sent again without, because it may have been refused."""
    refused_members: frozenset[str] = frozenset()
    """Names of members that the request's messages were sent again without."""
    may_be_refused: bool = False
    """Whether the answer was passed on, with status 200, before it told whether it is one."""
    tool_cache: ToolCache = NOTHING_FRESH
    """Tool results that are still fresh at the end of the request's history."""
    degraded: list[str] = []
    answer: bytes = b""
    """Chain hash of the answer, once the answer is complete."""
    is_announced: bool = False
    """Whether the request's messages are in the store already."""
    recaller: Answerer | None = None
    """Answers the calls of the tool that the proxy added to the request."""
    rounds: Rounds | None = None
    """The rounds of tool calls in the answer that the client does not see."""
    recording: asyncio.Task[Recorded | None] | None = None
    """The task that writes the turn to the store."""

    def set_request(self, request: Request, decision: Decision, plain_body: bytes) -> None:
        """Set the request, its decision and the body to send, and count their tokens."""
        self.request, self.decision, self.base_body = request, decision, plain_body
        self._count_tokens()

    def __post_init__(self) -> None:
        self._count_tokens()

    def _count_tokens(self) -> None:
        """Count the tokens of what is sent; the parameters that only the proxy asks for are to be added."""
        request = self.request
        budget, ratio = request.budget, request.budget.ratio
        without = budget.head - budget.tool
        head = budget.head if request.tool_under(self.decision.plan) else without
        view, whole = head + self.decision.view_tokens, without + request.chain.tokens.total
        self.counted_tokens = whole if request.incoming.is_shadow else view
        self.sent_tokens = ceil(view * ratio)
        ours = request.history.own_tool_tokens() if request.history.hidden else 0
        self.full_tokens = ceil((whole - ours) * ratio)
        self.body = self.base_body
        self.adds_usage = self.adds_cache_key = False

    def response_headers(self) -> list[Header]:
        """Return the headers that tell the client about the request, before the first byte (docs/api.md)."""
        request, decision, window = self.request, self.decision, self.request.budget.window
        tokens = f"sent={self.sent_tokens};full={self.full_tokens};budget={request.budget.tokens or 'none'}"
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


class PeekedResponse(msgspec.Struct, frozen=True):
    """An upstream's answer to a managed request, its body still to come."""

    response: UpstreamResponse
    peeked: bytes
    """The part of the body that was read already."""
    is_over: bool
    """Whether ``peeked`` is the whole body."""
    possible_error: bytes = b""
    """What may be a refusal: the body of an error, or the data of a stream's first event."""
    is_stream: bool = False
    """Whether the body is a stream of events, whatever its content type."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the whole body, including what was read already."""
        return self._chunks() if self.peeked or self.is_over else self.response.chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.peeked:
            yield self.peeked
        if not self.is_over:
            async for chunk in self.response.chunks():
                yield chunk


def reserve_of(history: History, policy: Policy) -> int | None:
    """Return the output tokens to keep free: the request's own limit, else the policy's reserve."""
    limit = history.body.output_limit
    return policy.budget.reserved if limit is None else limit
