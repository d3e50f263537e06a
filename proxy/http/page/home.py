"""Home: what goes on, what is the matter, and the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from starlette.requests import Request

from proxy.core.policy.sections import Stages
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.errors import StoreUnavailable
from proxy.http.admin.openapi import number
from proxy.http.limits import Policies
from proxy.http.page.frame import Form, Page, Shown

_SHOWN, _MOST = 50, 1_000
_LEFT_OUT: Mapping[str, str] = {
    "unknown_secret": (
        "are encrypted with another UNABRIDGED_SECRET: start the server with both, the new one first"
    ),
    "newer_release": "were written by a newer release of the proxy: upgrade this one",
    "damaged": "are damaged: see the log, and restore the store from a backup if they are needed",
}


@dataclass(frozen=True)
class Listing:
    """A session in the list, and the stages of its policy."""

    found: Inspected
    stages: Stages

    @property
    def usage(self) -> float | None:
        """Of its last view, over the budget; None where there is no budget."""
        session = self.found.session
        return session.tokens / session.budget if session.budget else None


@dataclass(frozen=True)
class Notice:
    """Something that is the matter, and what to do about it."""

    what: str
    advice: str


@dataclass(frozen=True)
class Home:
    """The first page."""

    inspection: Inspection
    policies: Policies

    def pages(self) -> list[Page]:
        """The one page."""
        return [Page("GET", "", self._home)]

    async def _home(self, request: Request, form: Form) -> Shown:
        words = request.query_params.get("q", "").strip()[:200]
        limit = number(request, "limit", _SHOWN, _MOST)
        found: list[Inspected] = []
        left_out, fault = Counter[str](), ""
        try:
            found, left_out = await self.inspection.newest(limit, words=words)
        except StoreUnavailable as error:
            fault = error.message
        listed = [Listing(each, self.inspection.policy_of(each.session).stages) for each in found]
        content = {
            "words": words,
            "sessions": listed,
            "has_more": len(found) == limit,
            "limit": limit,
            "notices": [*self._notices(found, left_out, fault)],
            "is_down": bool(fault),
        }
        return Shown("home.html", "Sessions", content)

    def _notices(self, found: list[Inspected], left_out: Counter[str], fault: str) -> Iterator[Notice]:
        """Degraded states in plain words."""
        if fault:
            yield Notice(
                f"The store does not answer. {fault}",
                "Chats go on without memory of their sessions, unless a policy says otherwise. What is new is"
                " written when it is back. See that the store runs and is reached from here.",
            )
        if stale := self.policies.stale():
            yield Notice(
                f"These policy files cannot be used as they are now: {', '.join(stale)}.",
                "What they said before is in force. `unabridged check` names the line that is wrong.",
            )
        for reason, count in left_out.items():
            yield Notice(f"{count} of the newest sessions cannot be read.", f"They {_LEFT_OUT[reason]}.")
        sessions = (each.session for each in found)
        unknown = sorted({each.model for each in sessions if not each.budget and not each.window})
        if unknown:
            yield Notice(
                f"Nobody knows the context window of {', '.join(unknown[:5])}.",
                "Nothing is cut for its length until the upstream refuses a request. To begin earlier, name"
                " it under [budget] windows in the policy.",
            )
