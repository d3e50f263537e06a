"""The pages of memories: search items, see one with its log, restore or forget it after a preview."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from proxy.core.memory.lifecycle import BORN
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.admin.memories import MemoryAdmin
from proxy.http.admin import memory_schemas as schemas
from proxy.http.admin.api import number
from proxy.http.page.frame import ROOT, Form, Page, page

_SHOWN, _MOST = 50, 10_000
_ITEM = "memory/{id}"


@dataclass(frozen=True)
class MemoryPages:
    """Web pages for :class:`MemoryAdmin` and :class:`Forgetting`."""

    memories: MemoryAdmin
    forgetting: Forgetting

    @page("GET", "memory")
    async def index(self, request: Request, form: Form) -> Page:
        """The items that match the words, or the newest ones; of one memory, or of all."""
        words = request.query_params.get("q", "").strip()[:500]
        most = number(request, "limit", _SHOWN, _MOST)
        scope = request.query_params.get("scope", "")
        every = await self.memories.newest(most)
        found = await self.memories.found(scope, words, most, every)
        content = {
            "words": words,
            "scope": scope,
            "scopes": [schemas.scope(each) for each in every.scopes],
            "left_out": [schemas.unread(each) for each in found.unread],
            "texts": schemas.scope(found.scopes[0]) if scope else None,
            "items": [schemas.item(each) for each in found.items],
            "said": [schemas.UtteranceReport.model_validate(each) for each in found.said],
            "more": min(2 * most, _MOST) if len(found.items) == most < _MOST else None,
        }
        return Page("memories.html", "Memory", content)

    @page("GET", _ITEM)
    async def item(self, request: Request, form: Form) -> Page:
        name = request.path_params["id"]
        item = schemas.item(await self.memories.item(name))
        events = [schemas.EventReport.model_validate(each) for each in await self.memories.log(name)]
        return Page("item.html", "What is remembered", {"item": item, "events": events})

    @page("GET", f"{_ITEM}/restore")
    async def would_restore(self, request: Request, form: Form) -> Page:
        entry = await self.memories.restorable(request.path_params["id"])
        content = {"verb": "restore", "item": schemas.item(entry), "text": entry.item.text, "born": BORN}
        return Page("item_verb.html", "Take it back: what would be remembered", content)

    @page("GET", f"{_ITEM}/forget")
    async def would_forget(self, request: Request, form: Form) -> Page:
        loss = await self.forgetting.preview(request.path_params["id"])
        content = {
            "verb": "forget",
            "item": schemas.item(loss.entry),
            "lines": loss.lines,
            "passages": loss.passages,
        }
        return Page("item_verb.html", "Forget it: what would be gone", content)

    @page("POST", f"{_ITEM}/restore")
    async def restore(self, request: Request, form: Form) -> Response:
        entry = await self.memories.restore(request.path_params["id"])
        return RedirectResponse(f"{ROOT}memory/{entry.id}", 303)

    @page("POST", f"{_ITEM}/forget")
    async def forget(self, request: Request, form: Form) -> Response:
        await self.forgetting.item(request.path_params["id"])
        return RedirectResponse(f"{ROOT}memory", 303)
