"""What a request may cost, what is cut of it, and the bytes that go out.

The budget comes from the policy and what is known of the model, the verdict from :mod:`proxy.engine.epochs`;
a refusal for length has both asked for once more.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.budget import Budget, budget_tokens
from proxy.core.plan import EMPTY, view_tokens
from proxy.core.policy import Policy
from proxy.core.situation import Chain
from proxy.engine.answerers import Answerer
from proxy.engine.case import Case
from proxy.engine.ceiling import within_bytes
from proxy.engine.epochs import Epochs
from proxy.engine.exchange import Incoming, Prepared, edited_body, is_edited
from proxy.engine.history import History, Reader
from proxy.engine.models import Model, Models
from proxy.engine.recall import Recall
from proxy.engine.recognition import Recognition
from proxy.engine.verdict import Verdict
from proxy.errors import ContextLengthExceeded, PolicyForbidden
from proxy.telemetry import log_fault

_OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True)
class Decisions:
    """Decides what is forwarded."""

    reader: Reader
    models: Models
    recognition: Recognition
    epochs: Epochs
    recall: Recall

    async def budget(
        self, model: Model, history: History, policy: Policy, explicit: int | None, tool: bytes
    ) -> Budget:
        """The request's budget. Raises PolicyForbidden where a client asks for more than the policy gives."""
        window = self.models.window(model, history.model, policy)
        reserve = reserve_of(history, policy)
        limit = policy.budget.tokens if isinstance(policy.budget.tokens, int) else None
        if explicit is not None:
            allowed = budget_tokens(limit, window, reserve)
            if explicit > allowed:
                raise PolicyForbidden(f"The budget can be lowered, not raised (it is {allowed} tokens).")
            limit = explicit
        head = await self.reader.head_tokens(history, tool)
        return Budget(budget_tokens(limit, window, reserve), model.ratio.value, head)

    async def decide(self, case: Case, history: History) -> Verdict:
        """What is cut. Raises ContextLengthExceeded where the policy would rather refuse."""
        try:
            verdict = await self.epochs.decide(case)
            if case.policy.budget.bytes:
                verdict = await self._within_bytes(case, history, verdict)
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs the pruning, not the answer
            log_fault("planning failed", error)
            verdict = self.epochs.untouched(case)
        is_as_found = verdict.epochs is case.epochs and verdict.saved == case.saved
        if verdict.epochs is not None and not is_as_found:
            self.recognition.hold(case.key, case.lane, verdict.epochs, verdict.saved)
        needed = case.budget.head + verdict.view
        if case.policy.budget.overflow == "error" and needed > case.budget.limit:
            raise ContextLengthExceeded(
                needed=case.budget.real(case.counted),
                kept=case.budget.real(needed),
                limit=case.budget.tokens,
            )
        return verdict

    async def _within_bytes(self, case: Case, history: History, verdict: Verdict) -> Verdict:
        """A verdict whose body keeps within the ceiling of the policy, decided again where it does not."""

        async def again(chain: Chain, budget: Budget, before: Verdict) -> Verdict:
            weighed = replace(case, chain=chain, budget=budget, epochs=before.epochs, saved=before.saved)
            verdict = await self.epochs.decide(weighed)
            return replace(verdict, view=view_tokens(verdict.plan, case.chain.tokens))

        def size_of(verdict: Verdict) -> int:
            return len(self.body(case, history, verdict))

        return await within_bytes(case, verdict, size_of, again)

    def body(self, case: Case, history: History, verdict: Verdict) -> bytes:
        """What goes out: the client's own bytes, unless a plan is in force or we have put something in.

        How the notes of an epoch go out stands in it; a refusal overrules that.
        """
        if not is_edited(history, verdict.plan):
            return history.body.raw
        rule, epoch = case.policy.summary.alternate, verdict.epoch
        refused = rule == "auto" and self.models.of(case.tenant, case.model).alternates
        alternates = (epoch.alternates if epoch else case.alternates) or refused
        return edited_body(history, verdict.plan, alternates=alternates, tool=case.tool)

    def answerers(self, case: Case, history: History, verdict: Verdict) -> list[Answerer]:
        """Who answers the calls of what this request, or its history, has beside the client's tools."""
        is_known = verdict.plan != EMPTY or bool(history.hidden)
        return [self.recall.of(case, verdict.plan)] if case.tool and is_known else []

    async def prune_harder(self, prepared: Prepared, incoming: Incoming) -> bool:
        """Decide again under what was just learned; whether there is anything else to send."""
        before, history, policy = prepared.case, prepared.history, prepared.policy
        model = self.models.of(before.tenant, before.model)
        try:
            allowed = incoming.envelope.budget
            budget = await self.budget(model, history, policy, allowed, before.tool)
        except PolicyForbidden:
            budget = await self.budget(model, history, policy, None, before.tool)
        verdict = prepared.verdict
        case = replace(before, budget=budget, epochs=verdict.epochs, saved=verdict.saved)
        verdict = await self.decide(case, history)
        body = self.body(case, history, verdict)
        if body == prepared.body:
            return False
        prepared.budget, prepared.case, prepared.verdict = budget, case, verdict
        prepared.answerers = self.answerers(case, history, verdict)
        prepared.rewrite(body)
        return True


def reserve_of(history: History, policy: Policy) -> int | None:
    """Output tokens to keep free: what the request allows itself, else what the policy says."""
    body = history.body
    for value in [body.get(name) for name in _OUTPUT_LIMITS if name in body.members]:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return policy.budget.reserve if isinstance(policy.budget.reserve, int) else None
