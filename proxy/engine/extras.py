"""Parameters that only we ask for: added to a body that is ready, taken out where the upstream refuses them.

Keeps law 1 (transparent): each is spliced at one fixed place and every other byte stays as it was; what an
upstream refuses is resent once without it, and not asked of that model again.
"""

from dataclasses import dataclass

from proxy.core.body import asking_for_usage
from proxy.core.budget import Stage
from proxy.core.messages import as_mapping
from proxy.engine.exchange import Prepared, Sent
from proxy.engine.models import Models

_REFUSED_PARAMETERS = (400, 422)


@dataclass(frozen=True)
class Extras:
    """Adds them, and learns from refusals."""

    models: Models

    def add(self, prepared: Prepared) -> None:
        """Put in what this request should ask for."""
        self._ask_for_usage(prepared)

    def take_out_refused(self, prepared: Prepared, sent: Sent) -> bool:
        """Whether an answer refuses what only we asked for; the request then goes out without it."""
        if not prepared.adds_usage or sent.response.status not in _REFUSED_PARAMETERS:
            return False
        self.models.learn_usage_refusal(prepared.case.tenant, prepared.case.model)
        prepared.rewrite(prepared.plain)
        return True

    def _ask_for_usage(self, prepared: Prepared) -> None:
        """From *warn* on, while a model's ratio is hardly known, a streamed answer is asked for its usage."""
        body, case = prepared.history.body, prepared.case
        is_early = prepared.verdict.stage is Stage.CALM or body.get("stream") is not True
        if is_early or as_mapping(body.get("stream_options")).get("include_usage"):
            return
        if self.models.wants_usage(case.tenant, case.model):
            prepared.body = asking_for_usage(prepared.body)
            prepared.adds_usage = True
