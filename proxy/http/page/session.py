"""The pages of a session: its chart, the transcript beside the view, what is stored with it, and its verbs.

Each verb has a preview that shows what it would do.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from proxy.core.economics.bill import Bill
from proxy.core.planning.explain import sent_turns
from proxy.core.planning.plan import Verb
from proxy.engine.admin.edits import Edits, Ranges, numbered
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Branch, Inspected, Inspection
from proxy.engine.admin.memories import MemoryAdmin
from proxy.engine.admin.stats import Stats
from proxy.errors import InvalidType, NotFound
from proxy.http.admin.api import validated
from proxy.http.admin.schemas import ForkBody, RestoreBody
from proxy.http.admin.sessions import ranges, tool_results
from proxy.http.page.chart import chart
from proxy.http.page.frame import ROOT, Form, Page, page
from proxy.http.page.transcript import SideBySide

SESSION_PATH = "sessions/{id}"
_PAGE = 100
"""Messages on one page."""
_PREVIEWED = 200
"""Most messages of a view that a preview shows."""
_SCOPES = 1_000
"""Most memories that are searched for items of the session."""
_WIDTHS = {"broad": 1_080, "narrow": 420}
"""Widths of the chart, for a desktop screen and for a phone."""
_VERBS = {
    "compact": "Compact: what it would cut",
    "restore": "Restore: what would come back",
    "pin": "Pin: what would be kept",
    "fork": "Fork: a session of its own",
    "pause": "Pause: let appended turns wait",
    "resume": "Resume: let appended turns go on",
    "delete": "Delete: forget this session",
}
"""The verbs, with the titles of their previews."""


@dataclass(frozen=True)
class SessionPages:
    """Web pages for a session and its verbs."""

    inspection: Inspection
    memories: MemoryAdmin
    stats: Stats
    edits: Edits
    forks: Forks

    async def _found(self, request: Request) -> Inspected:
        return await self.inspection.find(request.path_params["id"])

    async def _branch(self, request: Request) -> Branch:
        return await self.inspection.branch(await self._found(request))

    # --- reading ---

    @page("GET", SESSION_PATH)
    async def session(self, request: Request, form: Form) -> Page:
        branch = await self._branch(request)
        at = _number(request.query_params, "at")
        bill = await self.stats.of_session(branch.found.key)
        return await asyncio.to_thread(_messages, branch, len(branch.nodes) if at is None else at, bill)

    @page("GET", f"{SESSION_PATH}/kept")
    async def kept(self, request: Request, form: Form) -> Page:
        """What is stored with a session beside its messages: tool results, remembered items, the ledger."""
        branch = await self._branch(request)
        found, kept = branch.found, (await self.memories.newest(_SCOPES)).scopes
        items = [entry for each in kept for entry in each.entries if entry.item.source.session == found.id]
        tools = await asyncio.to_thread(tool_results, branch)
        situation = await asyncio.to_thread(lambda: branch.situation)
        content: dict[str, object] = {
            "found": found,
            "tools": tools,
            "items": items,
            "ledger": situation.plan.ledger,
        }
        return Page("kept.html", "Kept with the session", content)

    @page("GET", f"{SESSION_PATH}/epochs")
    async def epochs(self, request: Request, form: Form) -> Page:
        """The differences between the views of two epochs."""
        branch = await self._branch(request)
        return await asyncio.to_thread(_difference, request, branch)

    # --- verbs: preview and action ---

    @page("GET", *(f"{SESSION_PATH}/{verb}" for verb in _VERBS))
    async def preview(self, request: Request, form: Form) -> Page:
        branch = await self._branch(request)
        verb, given = request.url.path.rpartition("/")[2], request.query_params
        content: dict[str, object] = {
            "verb": verb,
            "found": branch.found,
            "given": {name: given[name] for name in ("messages", "epoch", "at", "name") if given.get(name)},
            "preview": None,
            "messages": [],
            "left_out": 0,
            "count": len(branch.nodes),
        }
        if verb in ("compact", "restore"):
            branch, epoch = await self.edits.preview(branch.found, Verb(verb), *_named(given))
            before = {*await asyncio.to_thread(branch.view, branch.epoch)}
            after = await asyncio.to_thread(branch.view, epoch)
            side_by_side = SideBySide(branch)
            messages = [(side_by_side.read(raw), raw not in before) for raw in after[-_PREVIEWED:]]
            content |= {"preview": epoch, "messages": messages, "left_out": max(len(after) - _PREVIEWED, 0)}
        elif verb == "pin":
            wanted = sorted(numbered(_required(given), len(branch.nodes)))[:_PREVIEWED]
            content["messages"] = [
                (SideBySide(branch).read(branch.nodes[place].raw), True) for place in wanted
            ]
        return Page("verb.html", _VERBS[verb], content)

    @page("POST", *(f"{SESSION_PATH}/{verb}" for verb in _VERBS))
    async def do(self, request: Request, form: Form) -> Response:
        found = await self._found(request)
        after = f"{ROOT}sessions/{found.id}"
        match request.url.path.rpartition("/")[2]:
            case "compact":
                await self.edits.compact(found, _named(form)[0])
            case "restore":
                await self.edits.restore(found, *_named(form))
            case "pin":
                await self.edits.pin(found, _required(form))
            case "fork":
                body = validated(ForkBody, {"at": _number(form, "at"), "name": form.get("name") or None})
                fork = await self.forks.fork(found, None, body.at, body.name)
                after = f"{ROOT}sessions/{fork.id}"
            case "delete":
                await self.edits.delete(found.key, found.session.tenant, found.session.former)
                after = ROOT
            case verb:
                await self.edits.pause(found, paused=verb == "pause")
        return RedirectResponse(after, 303)


def _messages(branch: Branch, at: int, bill: Bill) -> Page:
    """An overview of the session, and the page of its messages that has message number ``at``."""
    found, situation, count = branch.found, branch.situation, len(branch.nodes)
    first = min(at, max(count - 1, 0)) // _PAGE * _PAGE
    budget, stages = situation.budget, situation.policy.stages
    turns = sent_turns(situation.chain, branch.epochs, budget)
    side_by_side = SideBySide(branch)
    content = {
        "found": found,
        "session": found.session,
        "budget": budget.tokens,
        "full": branch.full_tokens,
        "sent": branch.tokens,
        "cut": situation.plan.cut,
        "charts": [(name, chart(turns, budget.tokens, stages, width)) for name, width in _WIDTHS.items()],
        "line": branch.epochs,
        "before": [side_by_side.read(raw) for raw in branch.prelude],
        "parts": side_by_side.parts(first, first + _PAGE),
        "first": first,
        "page": _PAGE,
        "count": count,
        "bill": bill,
        "missing": [(situation.plan.gaps[each.gap], each.why) for each in branch.missing()],
    }
    return Page("session.html", found.session.began_with or found.session.name, content)


def _difference(request: Request, branch: Branch) -> Page:
    """Compare the views of the present messages under two epochs. Raises NotFound and InvalidType."""
    newest = len(branch.epochs)
    old, new = (_number(request.query_params, name) for name in ("from", "to"))
    old, new = max(newest - 1, 0) if old is None else old, newest if new is None else new
    if max(old, new) > newest:
        raise NotFound("No epoch of that number is in force.")
    before, after = (branch.view(branch.epochs[number - 1] if number else None) for number in (old, new))
    side_by_side, steps = SideBySide(branch), list[Mapping[str, object]]()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, from_old, to_old, from_new, to_new in matcher.get_opcodes():
        gone, come = before[from_old:to_old], after[from_new:to_new]
        is_same = kind == "equal"
        steps.append(
            {
                "same": len(gone) if is_same else 0,
                "gone": [] if is_same else [*map(side_by_side.read, gone)],
                "come": [] if is_same else [*map(side_by_side.read, come)],
            }
        )
    content = {"found": branch.found, "line": branch.epochs, "old": old, "new": new, "steps": steps}
    return Page("epochs.html", f"Epoch {old} to {new}", content)


# --- reading parameters of a form or an address ---


def _named(given: Mapping[str, str]) -> tuple[Ranges | None, int | None]:
    """Return the messages or the epoch that are named; neither means all. Raises InvalidType."""
    text = given.get("messages", "").replace(" ", "") or None
    epoch = _number(given, "epoch")
    if text is not None and epoch is not None:
        raise InvalidType("Name messages or an epoch, not both.", param="epoch")
    return ranges(validated(RestoreBody, {"messages": text}).messages), epoch


def _required(given: Mapping[str, str]) -> Ranges:
    found, _ = _named(given)
    if found is None:
        raise InvalidType("Name the messages, such as 17, 17-20 or 4,17-20.", param="messages")
    return found


def _number(given: Mapping[str, str], name: str) -> int | None:
    """Return the number (0 or more) of this name; None if it is missing. Raises InvalidType."""
    text = given.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidType(f"`{name}` must be a number.", param=name)
    return int(text[:6])
