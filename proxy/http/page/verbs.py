"""What people do to a session on the page: each verb is shown with what it would do before it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from proxy.core.planning.life import line_of
from proxy.core.planning.plan import Verb
from proxy.engine.admin.edits import Edits, Preview, Ranges
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.errors import InvalidType
from proxy.http.admin.schemas import ForkBody, RestoreBody
from proxy.http.admin.sessions import ranges
from proxy.http.page.frame import ROOT, Form, Page, Shown
from proxy.http.page.session import ONE
from proxy.http.page.transcript import Beside

_Body = TypeVar("_Body", RestoreBody, ForkBody)
_SHOWN = 200
"""Messages of a view that a preview shows."""
_VERBS = ("compact", "restore", "pin", "fork", "pause", "resume", "delete")
_TITLES = {
    "compact": "Compact: what it would cut",
    "restore": "Restore: what would come back",
    "pin": "Pin: what would be kept",
    "fork": "Fork: a session of its own",
    "pause": "Pause: let appended turns wait",
    "resume": "Resume: let appended turns go on",
    "delete": "Delete: forget this session",
}


@dataclass(frozen=True)
class VerbPages:
    """The buttons of a session."""

    inspection: Inspection
    edits: Edits
    forks: Forks

    def pages(self) -> list[Page]:
        """For each verb, what it would do, and doing it."""
        shown = [Page("GET", f"{ONE}/{verb}", self._preview) for verb in _VERBS]
        return [*shown, *(Page("POST", f"{ONE}/{verb}", self._do) for verb in _VERBS)]

    # --- before ---

    async def _preview(self, request: Request, form: Form) -> Shown:
        found = await self.inspection.find(request.path_params["id"])
        verb = request.url.path.rpartition("/")[2]
        given = dict(request.query_params)
        content: dict[str, object] = {
            "verb": verb,
            "found": found,
            "session": found.session,
            "given": {name: given[name] for name in ("messages", "epoch", "at", "name") if given.get(name)},
            "preview": None,
            "told": [],
            "count": 0,
        }
        if verb in ("compact", "restore"):
            messages, epoch = _named(given)
            preview = await self.edits.preview(found, Verb(verb), messages, epoch)
            content |= await asyncio.to_thread(self._view, preview)
        elif verb == "pin":
            content |= await self._pinned(found, given)
        else:
            content["count"] = len(await self.inspection.branch(found))
        return Shown("verb.html", _TITLES[verb], content)

    def _view(self, preview: Preview) -> Mapping[str, object]:
        """The view as it would be, and what is in it that was not."""
        situation, epoch = preview.before, preview.epoch
        beside = Beside(preview.found, (), situation, ())
        before = set(self.inspection.view(preview.found, situation, None))
        after = self.inspection.view(preview.found, situation.under(epoch.plan), epoch)
        told = [(beside.read(raw), raw not in before) for raw in after[-_SHOWN:]]
        return {"preview": epoch, "told": told, "left_out": max(len(after) - _SHOWN, 0)}

    async def _pinned(self, found: Inspected, given: Mapping[str, str]) -> Mapping[str, object]:
        messages, branch = _required(given), await self.inspection.branch(found)
        if not branch or any(each.stop > len(branch) for each in messages):
            raise InvalidType(f"The messages are 0 to {len(branch) - 1}.", param="messages")
        situation, current = await asyncio.to_thread(self.inspection.situation, found, branch)
        beside = Beside(found, branch, situation, line_of(found.epochs, current))
        wanted = sorted({place for each in messages for place in each})[:_SHOWN]
        return {"told": [(beside.read(branch[place].raw), True) for place in wanted], "left_out": 0}

    # --- doing it ---

    async def _do(self, request: Request, form: Form) -> Response:
        found = await self.inspection.find(request.path_params["id"])
        after = f"{ROOT}sessions/{found.id}"
        match request.url.path.rpartition("/")[2]:
            case "compact":
                await self.edits.compact(found, _named(form)[0])
            case "restore":
                await self.edits.restore(found, *_named(form))
            case "pin":
                await self.edits.pin(found, _required(form))
            case "fork":
                body = _validated(ForkBody, {"name": form.get("name") or None})
                fork = await self.forks.fork(found, None, _number(form, "at"), body.name)
                after = f"{ROOT}sessions/{fork.id}"
            case "delete":
                await self.edits.delete(found)
                after = ROOT
            case verb:
                await self.edits.pause(found, paused=verb == "pause")
        return RedirectResponse(after, 303)


def _named(given: Mapping[str, str]) -> tuple[Ranges | None, int | None]:
    """Messages or an epoch, as a form names them; neither: all. Raises InvalidType."""
    text = given.get("messages", "").replace(" ", "") or None
    epoch = _number(given, "epoch")
    if text is not None and epoch is not None:
        raise InvalidType("Name messages or an epoch, not both.", param="epoch")
    return ranges(_validated(RestoreBody, {"messages": text}).messages), epoch


def _required(given: Mapping[str, str]) -> Ranges:
    found, _ = _named(given)
    if found is None:
        raise InvalidType("Name the messages, such as 17, 17-20 or 4,17-20.", param="messages")
    return found


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidType(f"`{name}` must be a number.", param=name)
    return int(text[:6])


def _validated(shape: type[_Body], given: Mapping[str, object]) -> _Body:
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidType(f"`{first['loc'][0]}`: {first['msg']}.", param=str(first["loc"][0])) from None
