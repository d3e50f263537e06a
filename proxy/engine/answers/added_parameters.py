"""Parameters that only we ask for: added to a body that is ready, taken out where the upstream refuses them.

Keeps law 1 (transparent): each is spliced at one fixed place and every other byte stays as it was. What an
upstream refuses is resent once without it, and not asked of that model again.
"""

import re
from dataclasses import dataclass

from proxy.core.budget.budget import Stage
from proxy.core.dialects.wire import WireFormat
from proxy.core.planning.plan import EMPTY
from proxy.engine.flow import Exchange, Sent
from proxy.engine.intake.naming import Naming

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
class AddedParameters:
    """Adds them, and learns from refusals."""

    wire: WireFormat
    naming: Naming

    def add(self, exchange: Exchange) -> None:
        """Put in what this request should ask for.

        A streamed answer is asked for its usage while that teaches something: from *warn* on, while a
        model's ratio is hardly known; and while nobody knows its window.

        From its first epoch on, a session's requests are told to belong together, unless the client did.
        Providers that spread requests over machines then send them to the one that has kept their beginning.
        What goes out whole, such as a session of which all is restored, stays as it is.
        """
        request, body, decision = exchange.request, exchange.history.body, exchange.decision
        model, window = request.model, request.budget.window
        is_early = decision.stage is Stage.CALM and window.limit is not None
        if (
            not is_early
            and body.is_streamed
            and not body.wants_usage
            and model.wants_usage(exchange.sent_tokens, window)
        ):
            exchange.body = self.wire.asking_for_usage(exchange.body)
            exchange.adds_usage = True
        if (
            decision.plan != EMPTY
            and not body.names_cache
            and request.policy.economy.enabled
            and not model.refuses_cache_key
        ):
            cache_key = self.naming.cache_key(request.session.key)
            exchange.body = self.wire.with_cache_key(exchange.body, cache_key)
            exchange.adds_cache_key = True

    def take_out_refused(self, exchange: Exchange, sent: Sent) -> bool:
        """Whether an answer refuses what only we asked for; the request then goes out without all of it.

        What refuses the cache's name is learned only when the request is taken without it (``taken``): the
        client may have made the mistake. For usage any refusal counts, since it is asked for so seldom.
        """
        if sent.response.status not in _REFUSED_PARAMETERS:
            return False
        names_cache = self.wire.cache_key in sent.told
        is_about_one = b"unknown_parameter" in sent.told or _UNKNOWN_PARAMETER.search(sent.told) is not None
        refuses_cache = exchange.adds_cache_key and (names_cache or is_about_one)
        refuses_usage = exchange.adds_usage and not (names_cache and exchange.adds_cache_key)
        if refuses_usage:
            exchange.request.model.refuses_usage = True
        if refuses_cache or refuses_usage:
            exchange.set_body(exchange.plain)
            exchange.is_cache_key_refused = refuses_cache
        return refuses_cache or refuses_usage

    def refuses_tool(self, exchange: Exchange, sent: Sent) -> bool:
        """Whether an answer may refuse the tool that only we have put in.

        The model is known to take none once it takes the request without (``taken``); nothing is known of it
        where the client has tools too: one more may be too many.
        """
        is_refused = sent.response.status in _REFUSED_TOOLS and _NO_TOOLS.search(sent.told) is not None
        is_refused = is_refused and bool(exchange.request.tool) and exchange.request.tool in exchange.body
        exchange.is_tool_refused = is_refused and not exchange.history.body.has_tools
        return is_refused

    def taken(self, exchange: Exchange) -> None:
        """The upstream takes the request as it went out at last."""
        if exchange.is_tool_refused:
            exchange.request.model.refuses_tools = True
        if exchange.is_cache_key_refused:
            exchange.request.model.refuses_cache_key = True
