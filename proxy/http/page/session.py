"""One session: the picture, the transcript beside the view, and what is kept with it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import Node
from proxy.core.planning.explain import sent_turns
from proxy.core.planning.life import line_of
from proxy.core.planning.plan import EMPTY
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.memories import Memories
from proxy.engine.admin.stats import Stats
from proxy.errors import InvalidType, NotFound
from proxy.http.admin import views
from proxy.http.page.chart import chart
from proxy.http.page.frame import Form, Page, Shown
from proxy.http.page.transcript import Beside, Message

ONE = "sessions/{id}"
_PAGE = 100
"""Messages that one page shows."""
_SCOPES = 1_000
"""Memories in which items of the session are looked for."""
_BROAD, _NARROW = 1_080, 420
"""Widths of the picture, for a desk and for a phone."""


@dataclass(frozen=True)
class SessionPages:
    """What there is to look at of a session."""

    inspection: Inspection
    memories: Memories
    stats: Stats

    def pages(self) -> list[Page]:
        """All pages of a session on which nothing is changed."""
        return [
            Page("GET", ONE, self._session),
            Page("GET", f"{ONE}/kept", self._kept),
            Page("GET", f"{ONE}/epochs", self._epochs),
        ]

    async def _session(self, request: Request, form: Form) -> Shown:
        found = await self.inspection.find(request.path_params["id"])
        branch = await self.inspection.branch(found)
        injection = await self.inspection.injection(found)
        at = _whole(request, "at", max(len(branch) - 1, 0))
        bill = await self.stats.of_session(found.key)
        shown = await asyncio.to_thread(self._told, found, branch, injection, at)
        return replace(shown, content={**shown.content, "bill": bill})

    def _told(self, found: Inspected, branch: Sequence[Node], injection: Injection | None, at: int) -> Shown:
        situation, current = self.inspection.situation(found, branch)
        line = line_of(found.epochs, current)
        first = min(at, max(len(branch) - 1, 0)) // _PAGE * _PAGE
        beside = Beside(found, branch, situation, line)
        budget, stages = situation.budget, situation.policy.stages
        turns = sent_turns(situation.chain, line, budget)
        before = [*found.session.head, *(injection.messages(situation.chain.dialect) if injection else ())]
        content = {
            "found": found,
            "session": found.session,
            "stages": stages,
            "usage": budget.usage(situation.view) if budget.tokens else None,
            "budget": budget.tokens,
            "full": budget.real(budget.head + situation.chain.tokens.total),
            "sent": budget.real(budget.head + situation.view),
            "cut": situation.plan.cut,
            "charts": [
                (name, chart(turns, budget.tokens, stages, width))
                for name, width in (("broad", _BROAD), ("narrow", _NARROW))
            ],
            "line": line,
            "before": [beside.read(raw) for raw in before],
            "parts": beside.parts(first, first + _PAGE),
            "first": first,
            "page": _PAGE,
            "count": len(branch),
            "missing": [
                (situation.plan.gaps[each.gap], each.why)
                for each in self.inspection.missing(found, situation, current)
            ],
        }
        return Shown("session.html", found.session.began_with or found.session.name, content)

    async def _kept(self, request: Request, form: Form) -> Shown:
        """What is kept with a session beside its messages."""
        found = await self.inspection.find(request.path_params["id"])
        branch = await self.inspection.branch(found)
        injection = await self.inspection.injection(found)
        kept = await self.memories.newest(_SCOPES)
        items = [entry for each in kept for entry in each.entries if entry.item.source.session == found.id]
        tools = await asyncio.to_thread(views.tools, self.inspection, found, branch, injection)
        situation, _ = await asyncio.to_thread(self.inspection.situation, found, branch)
        ledgers = [gap.ledger for gap in situation.plan.gaps if gap.ledger]
        content: dict[str, object] = {
            "found": found,
            "session": found.session,
            "tools": tools.tools,
            "items": items,
            "ledger": "\n".join(ledgers),
        }
        return Shown("kept.html", "Kept with the session", content)

    async def _epochs(self, request: Request, form: Form) -> Shown:
        """What changed in the view between two epochs."""
        found = await self.inspection.find(request.path_params["id"])
        branch = await self.inspection.branch(found)
        return await asyncio.to_thread(self._difference, request, found, branch)

    def _difference(self, request: Request, found: Inspected, branch: Sequence[Node]) -> Shown:
        """The view of the messages that there are now, under either epoch. Raises NotFound, InvalidType."""
        situation, current = self.inspection.situation(found, branch)
        line = line_of(found.epochs, current)
        newest = len(line)
        old = _whole(request, "from", max(newest - 1, 0))
        new = _whole(request, "to", newest)
        if max(old, new) > newest:
            raise NotFound("No epoch of that number is in force.")
        sides: list[list[bytes]] = []
        for number in (old, new):
            epoch = line[number - 1] if number else None
            plan = epoch.plan if epoch else EMPTY
            sides.append(self.inspection.view(found, situation.under(plan), epoch))
        beside = Beside(found, branch, situation, line)
        content = {
            "found": found,
            "session": found.session,
            "line": line,
            "old": old,
            "new": new,
            "steps": _steps(sides[0], sides[1], beside),
        }
        return Shown("epochs.html", f"Epoch {old} to {new}", content)


def _steps(old: Sequence[bytes], new: Sequence[bytes], beside: Beside) -> list[Mapping[str, object]]:
    """Runs of messages that stay, go and come."""
    steps: list[Mapping[str, object]] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, from_old, to_old, from_new, to_new in matcher.get_opcodes():
        if kind == "equal":
            steps.append({"same": to_old - from_old})
        else:
            gone: list[Message] = [beside.read(raw) for raw in old[from_old:to_old]]
            come: list[Message] = [beside.read(raw) for raw in new[from_new:to_new]]
            steps.append({"same": 0, "gone": gone, "come": come})
    return steps


def _whole(request: Request, name: str, usual: int) -> int:
    """A number of the query, from 0 on. Raises InvalidType."""
    text = request.query_params.get(name, "") or str(usual)
    if not (text.isascii() and text.isdigit()):
        raise InvalidType(f"`{name}` must be a number.", param=name)
    return int(text[:9])
