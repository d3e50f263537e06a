"""After an answer, find out in the background whether its view lacked something that mattered.

Regret is counted in each turn whose view is cut. For a share of these turns, set by the policy, the model is
asked again, with the whole history or, as a control, with the same view, and the two answers are compared.
These calls are the operator's own: they use the operator's key, come after all users' requests, and stay
under the policy's daily ceiling. Contents are compared in memory; only counts are stored.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.budget.prices import Prompt
from proxy.core.conversation.records import Node, Turn
from proxy.core.dialects.answers import Answer
from proxy.core.economics.bill import NANO, bounded, money, prompt_of
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.situation import Situation
from proxy.core.proof.comparison import compared, strings_of, used
from proxy.core.proof.evidence import OUTCOMES, Arm, Evidence, Kind, Signal, Unproven
from proxy.core.proof.regret import Regret, asked_again, called_again, cut_texts, newly_cut, said_again
from proxy.engine.answers.recall import Recaller
from proxy.engine.background import Background
from proxy.engine.billing import LABEL_SEPARATOR, Billing
from proxy.engine.flow import Decision, Exchange
from proxy.engine.foreground import Foreground
from proxy.engine.models.asking import CallOptions, ModelClient, Unanswered
from proxy.engine.planning.decisions import Decisions
from proxy.engine.recording.turn_bill import plan_before
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import BillStore, Clock, Header, TokenCounter
from proxy.ports.bill_store import HOUR
from proxy.telemetry import Metrics, log_warning
from proxy.tracing import PROOF, step

_MOST_WAITING = 4
"""Most requests that wait to be asked again, since each is held in memory as a whole."""
_SECONDS = 300.0
"""Most seconds that a second answer may take."""
_HOURS_A_DAY = 24


class _Sample(NamedTuple):
    """An answer whose request was chosen to be asked again."""

    exchange: Exchange
    answer: Node
    arm: Arm

    @property
    def expected(self) -> "_Cost":
        """The expected cost: nothing in the provider's cache, and an answer as long as the first."""
        real = self.exchange.request.budget.real
        whole = real(self.exchange.request.counted_tokens)
        prompt = whole if self.arm is Arm.WHOLE else self.exchange.sent_tokens
        return _cost(self.exchange, Prompt(prompt, 0), real(self.answer.tokens))


class _Cost(NamedTuple):
    """The cost of a second answer."""

    money: int
    """Nano-dollars; 0 if the price is unknown."""
    tokens: int
    is_priced: bool


@dataclass
class Proofs:
    """Gathers evidence about cuts. ``credentials`` are the operator's; empty if there is no key."""

    decisions: Decisions
    asking: ModelClient
    foreground: Foreground
    background: Background
    billing: Billing
    store: BillStore
    clock: Clock
    counter: TokenCounter
    metrics: Metrics
    credentials: Sequence[Header]
    _waiting: int = 0
    _has_warned: bool = False
    """Whether the missing key was logged."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Calls are made one at a time, so that each knows what those before it have spent."""

    def turn_recorded(self, exchange: Exchange, turn: Turn) -> None:
        """After a turn was recorded: count regret, and maybe ask again, in the background."""
        if exchange.request.incoming.is_shadow or exchange.decision.plan == EMPTY:
            return
        self.background.run(self._count_regret(exchange, turn), is_needed=False)
        answer = turn.nodes[-1] if turn.nodes and turn.nodes[-1].answer else None
        arm = self._chosen(exchange) if answer is not None and answer.complete else None
        if arm is None or answer is None:
            return
        if not self.credentials:
            if not self._has_warned:
                self._has_warned = True
                log_warning(
                    "proof.share is set, but UNABRIDGED_UPSTREAM_KEY is not: answers are not compared"
                )
        elif exchange.rounds is not None and exchange.rounds.count:
            self._add(exchange, _unproven(Unproven.HIDDEN))
        elif self._waiting >= _MOST_WAITING:
            self._add(exchange, _unproven(Unproven.BUSY))
        else:
            self._waiting += 1
            self.background.run(self._compare_again(_Sample(exchange, answer, arm)), is_needed=False)

    def _chosen(self, exchange: Exchange) -> Arm | None:
        """With what the request is asked again, if it is chosen; the same on every worker."""
        request, share = exchange.request, exchange.request.incoming.policy.proof.share
        if not share:
            return None
        key = request.session.key
        digest = hashlib.sha256(f"{key.tag}\0{key.sid}\0".encode() + request.history.tip).digest()
        if int.from_bytes(digest[:8]) >= share * 2**64:
            return None
        return Arm.WHOLE if digest[8] & 1 else Arm.CONTROL

    def _add(self, exchange: Exchange, evidence: Evidence) -> None:
        policy = exchange.request.incoming.policy.name
        for (signal, kind, is_cut), number in evidence.asked_again.items():
            if is_cut:
                self.metrics.regret.labels(policy, signal, kind.role, kind.retention).inc(number)
        for (arm, agrees), number in evidence.compared.items():
            self.metrics.proof.labels(policy, arm, OUTCOMES[agrees]).inc(number)
        for why, number in evidence.unproven.items():
            self.metrics.proof.labels(policy, "unproven", why).inc(number)
        if counts := evidence.counts():
            self.billing.add_evidence(policy, exchange.request.model.name, counts)

    # --- regret ---

    async def _count_regret(self, exchange: Exchange, turn: Turn) -> None:
        """Count what the turn asked for again: users in its newest messages, the model in its answer."""

        def regret() -> Evidence:
            request, plan = exchange.request, exchange.decision.plan
            chain, before = request.chain, plan_before(exchange)
            found, new = list[Regret](), range(chain.sent_before + 1, len(chain))
            for node in turn.nodes:
                if node.answer:
                    found += called_again(chain.dialect.read(node.raw), chain, plan, len(chain))
            places = [node.sequence for node in turn.nodes if not node.answer and node.sequence in new]
            users = [place for place in places if chain.messages[place].role == "user"]
            found += said_again(users, chain, before)
            if isinstance(exchange.recaller, Recaller):
                recalled = sorted(exchange.recaller.found)
                found += (Regret(Signal.RECALLED, place, is_cut=True) for place in recalled)
            begins = exchange.decision.begins_epoch(request)
            if not (found or begins):
                return Evidence()
            situation = self._situation(exchange)
            cut = newly_cut(situation, before) if begins else Counter[Kind]()
            return Evidence(asked_again=asked_again(situation, found), cut=cut)

        self._add(exchange, await asyncio.to_thread(regret))

    def _situation(self, exchange: Exchange) -> Situation:
        request, plan = exchange.request, exchange.decision.plan
        policy = request.incoming.policy
        return Situation(request.chain, plan, policy, request.budget, self.counter.count)

    # --- proof ---

    async def _compare_again(self, sample: _Sample) -> None:
        """Ask again, and count the outcome."""
        exchange = sample.exchange
        try:
            async with self._lock:
                self._add(exchange, await self._outcome(sample))
        finally:
            self._waiting -= 1

    async def _outcome(self, sample: _Sample) -> Evidence:
        exchange = sample.exchange
        budget = exchange.request.budget
        needed = budget.real(exchange.request.counted_tokens) + budget.real(sample.answer.tokens)
        limit = budget.window.limit
        if limit is not None and needed > limit:
            # Controls are skipped too, so that both arms sample the same requests.
            return _unproven(Unproven.BEYOND)
        try:
            with step(PROOF, is_aside=True):
                ask = partial(self._ask, sample)
                second = await self.foreground.run(ask, self.credentials, asyncio.Event())
        except (Unanswered, TimeoutError, UnabridgedError) as failure:
            log_warning("no second answer to compare", why=str(failure) or type(failure).__name__)
            return _unproven(Unproven.FAILED)
        if second is None:
            return _unproven(Unproven.CEILING)
        cost, usage = sample.expected, second.usage
        if usage is not None:
            cost = _cost(exchange, prompt_of(usage), bounded(usage.completion_tokens))
        spent = Evidence(spent=cost.money, tokens=cost.tokens)
        if second.message is None or not second.complete:
            return spent + _unproven(Unproven.FAILED)
        return spent + await asyncio.to_thread(self._compared, sample, second.message)

    async def _ask(self, sample: _Sample) -> Answer | None:
        """Ask for the second answer; None, before anything is sent, if the day's ceiling may be exceeded."""
        request, body = sample.exchange.request, sample.exchange.body
        if await self._is_past_ceiling(sample):
            return None
        if sample.arm is not Arm.CONTROL:
            # Reasoning made since the first cut was signed behind other bytes, so it is left out (law 9).
            whole = replace(request, tool=b"")
            body = self.decisions.body(whole, replace(Decision.under(whole, EMPTY), is_unsigned=True))
        query = request.incoming.envelope.api_version
        caller = CallOptions(request.model.name, self.credentials, _SECONDS, purpose="proof", query=query)
        ttl = request.incoming.policy.store.ttl
        return await self.asking.again(caller.billed_to(request.session.key, ttl), body)

    async def _is_past_ceiling(self, sample: _Sample) -> bool:
        """Whether this call would exceed what its policy allows all workers together in a day (UTC)."""
        policy, cost = sample.exchange.request.incoming.policy, sample.expected
        hour = int(self.clock.now()) // HOUR
        try:
            if not await self.billing.flush():
                return True
            hours = await self.store.evidence(hour - hour % _HOURS_A_DAY, hour)
        except StoreUnavailable:
            return True
        prefix = f"{policy.name}{LABEL_SEPARATOR}"
        spent = Evidence.of(
            counts for of in hours.values() for name, counts in of.items() if name.startswith(prefix)
        )
        if cost.is_priced:
            return spent.spent + cost.money > policy.proof.daily_dollars * NANO
        return spent.tokens + cost.tokens > policy.proof.daily_tokens

    def _compared(self, sample: _Sample, message: bytes) -> Evidence:
        exchange, dialect = sample.exchange, sample.exchange.request.chain.dialect
        first, second = dialect.read(sample.answer.raw), dialect.read(message)
        evidence = compared(first, second).evidence(sample.arm)
        if sample.arm is Arm.CONTROL:
            return evidence
        situation = self._situation(exchange)
        found = used(second, first, strings_of(exchange.body), cut_texts(situation))
        regrets = (Regret(Signal.USED, place, is_cut=True) for _, place in found)
        return evidence + Evidence(asked_again=asked_again(situation, regrets))


def _unproven(why: Unproven) -> Evidence:
    return Evidence(unproven=Counter([why]))


def _cost(exchange: Exchange, prompt: Prompt, output: int) -> _Cost:
    prices = exchange.request.conditions.prices
    paid = prices if prices is not None and prices.is_known else None
    return _Cost(money(prompt, output, paid), prompt.tokens + output, is_priced=paid is not None)
