"""Parameters that only we ask for: added to a body that is ready, taken out where the upstream refuses them.

Keeps law 1 (transparent): each is spliced at one fixed place and every other byte stays as it was. What an
upstream refuses is resent once without it, and not asked of that model again.
"""

import re
from dataclasses import dataclass

from proxy.core.body import asking_for_usage, with_cache_key
from proxy.core.budget import Stage
from proxy.core.messages import as_mapping
from proxy.engine.exchange import Prepared, Sent
from proxy.engine.models import Model, Models
from proxy.engine.naming import Naming

_CACHE_KEY = "prompt_cache_key"
_REFUSED_PARAMETERS = (400, 422)
_UNKNOWN_PARAMETER = re.compile(
    rb"(?:unknown|unrecogni[sz]ed|unexpected|unsupported|extra|additional|invalid)[^.]{0,40}"
    rb"(?:parameter|argument|field|propert|name|input|key|param)"
    rb"|(?:parameter|argument|field|propert|input|param)[^.]{0,80}"
    rb"(?:not (?:supported|permitted|allowed|recogni[sz]ed)|unknown|unsupported)",
    re.IGNORECASE,
)
"""What upstreams say of a member of the body that they do not know."""
_REFUSED_TOOLS = (400, 422, 500)
_NO_TOOLS = re.compile(
    rb"(?:\btools?\b|function.call(?:s|ing)?)[^.{}]{0,40}"
    rb"(?:not (?:currently )?(?:supported|permitted|allowed|available|enabled)|requires?\b|too long|too many)"
    rb"|(?:not|n't|cannot)[^.{}]{0,20} (?:support|accept|allow)[^.{}]{0,40}(?:\btools?\b|function.call)"
    rb"|(?:unknown|unrecogni[sz]ed|unexpected|unsupported)[^.{}]{0,40}\btools\b"
    rb'|"body", ?"tools"',
    re.IGNORECASE,
)
"""What upstreams say that take no tools, or not so many."""


@dataclass(frozen=True)
class Extras:
    """Adds them, and learns from refusals."""

    models: Models
    naming: Naming

    def add(self, prepared: Prepared) -> None:
        """Put in what this request should ask for."""
        self._ask_for_usage(prepared)
        self._name_cache(prepared)

    def take_out_refused(self, prepared: Prepared, sent: Sent) -> bool:
        """Whether an answer refuses what only we asked for; the request then goes out without all of it.

        What refuses the cache's name is learned only when the request is taken without it (``taken``): the
        client may have made the mistake. For usage any refusal counts, since it is asked for so seldom.
        """
        if sent.response.status not in _REFUSED_PARAMETERS:
            return False
        names_cache = _CACHE_KEY.encode() in sent.told
        refuses_cache = prepared.adds_cache_key and (names_cache or _is_about_a_parameter(sent.told))
        refuses_usage = prepared.adds_usage and not (names_cache and prepared.adds_cache_key)
        if refuses_usage:
            self._model(prepared).refuses_usage = True
        if refuses_cache or refuses_usage:
            prepared.rewrite(prepared.plain)
            prepared.is_cache_key_refused = refuses_cache
        return refuses_cache or refuses_usage

    def refuses_tool(self, prepared: Prepared, sent: Sent) -> bool:
        """Whether an answer may refuse the tool that only we have put in.

        The model is known to take none once it takes the request without (``taken``); nothing is known of it
        where the client has tools too: one more may be too many.
        """
        is_refused = sent.response.status in _REFUSED_TOOLS and _NO_TOOLS.search(sent.told) is not None
        is_refused = is_refused and bool(prepared.case.tool) and prepared.case.tool in prepared.body
        prepared.is_tool_refused = is_refused and not prepared.history.body.get("tools")
        return is_refused

    def taken(self, prepared: Prepared) -> None:
        """The upstream takes the request as it went out at last."""
        if prepared.is_tool_refused:
            self._model(prepared).refuses_tools = True
        if prepared.is_cache_key_refused:
            self._model(prepared).refuses_cache_key = True

    def _model(self, prepared: Prepared) -> Model:
        return self.models.of(prepared.case.tenant, prepared.case.model)

    def _ask_for_usage(self, prepared: Prepared) -> None:
        """From *warn* on, while a model's ratio is hardly known, a streamed answer is asked for its usage."""
        body = prepared.history.body
        is_early = prepared.verdict.stage is Stage.CALM or body.get("stream") is not True
        if is_early or as_mapping(body.get("stream_options")).get("include_usage"):
            return
        if self._model(prepared).wants_usage:
            prepared.body = asking_for_usage(prepared.body)
            prepared.adds_usage = True

    def _name_cache(self, prepared: Prepared) -> None:
        """From its first epoch on, a session's requests are told to belong together, unless the client did.

        Providers that spread requests over machines then send them to the one that has kept their beginning.
        What goes out whole, such as a session of which all is restored, stays as it is.
        """
        case, body, plan = prepared.case, prepared.history.body, prepared.verdict.plan
        is_whole = not plan.gaps and not plan.replacements
        if is_whole or _CACHE_KEY in body.members or not case.policy.economy.enabled:
            return
        if not self._model(prepared).refuses_cache_key:
            prepared.body = with_cache_key(prepared.body, self.naming.cache_key(case.key))
            prepared.adds_cache_key = True


def _is_about_a_parameter(told: bytes) -> bool:
    return b"unknown_parameter" in told or _UNKNOWN_PARAMETER.search(told) is not None
