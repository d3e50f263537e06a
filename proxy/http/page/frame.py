"""What every page has around it: the way in, the headers that keep others out, and errors for people.

A page is an endpoint that answers a template with what stands in it. Everything in it is escaped by the
templates; and should anything slip through, the policy below lets a browser run and load nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from proxy.errors import Forbidden, StoreUnavailable, UnabridgedError, Unauthorized
from proxy.http.admin.api import raw_body
from proxy.http.admin.door import CSRF_FIELD, Door
from proxy.http.page.render import Renderer
from proxy.http.request_head import request_id

ROOT = "/unabridged/"
_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Shown:
    """A template, and what stands in it."""

    template: str
    title: str
    content: Mapping[str, object] = field(default_factory=dict[str, object])
    status: int = 200


Form = Mapping[str, str]
"""What a form was filled with; empty for a page that is only looked at."""
Endpoint = Callable[[Request, Form], Awaitable[Shown | Response]]


@dataclass(frozen=True)
class Page:
    """One address below the root."""

    method: Literal["GET", "POST"]
    path: str
    endpoint: Endpoint


class Frame:
    """All ``pages``, for whoever the ``door`` lets in; anybody else gets the form to log in with."""

    def __init__(self, door: Door, render: Renderer, pages: Sequence[Page]) -> None:
        own = (Page("POST", "login", self._login), Page("POST", "logout", self._logout))
        self._door = door
        self._render = render
        self._pages = (*own, *pages)

    def routes(self) -> list[BaseRoute]:
        """The routes: what is static, and the pages."""
        by_path: dict[str, dict[str, Endpoint]] = {}
        for each in self._pages:
            by_path.setdefault(each.path, {})[each.method] = each.endpoint
        return [
            Route(ROOT.rstrip("/"), _to_root),
            Mount(f"{ROOT}static", StaticFiles(directory=_HERE / "static")),
            *(self._route(path, by_method) for path, by_method in by_path.items()),
        ]

    def _route(self, path: str, by_method: Mapping[str, Endpoint]) -> Route:
        async def guarded(request: Request) -> Response:
            endpoint = by_method["GET" if request.method == "HEAD" else request.method]
            try:
                if token := request.query_params.get("token", ""):
                    return self._enter(request, token)
                shown = await endpoint(request, await self._form(request, path))
            except Unauthorized:
                shown = Shown("login.html", "Log in", {"wrong": False}, 401)
            except UnabridgedError as error:
                shown = _told(error)
            if isinstance(shown, Response):
                shown.headers.update(_HEADERS)
                return shown
            return await self._answer(request, shown)

        return Route(ROOT + path, guarded, methods=[*by_method])

    async def _form(self, request: Request, path: str) -> Form:
        """What a form was filled with, of somebody who may. Raises Unauthorized and Forbidden."""
        if request.method in ("GET", "HEAD"):
            self._door.check(request)
            return {}
        text = (await raw_body(request)).decode(errors="replace")
        form = dict(parse_qsl(text, keep_blank_values=True))
        if path == "login":
            return form
        if not self._door.knows(request):
            raise Unauthorized
        self._door.check_csrf(request, form.get(CSRF_FIELD, ""))
        return form

    async def _answer(self, request: Request, shown: Shown) -> Response:
        is_in = self._door.knows(request)
        around = {
            "title": shown.title,
            "csrf": self._door.csrf(request) if is_in else "",
            "is_in": is_in,
            "path": request.url.path.removeprefix(ROOT),
        }
        text = await asyncio.to_thread(self._render, shown.template, {**around, **shown.content})
        headers = {**_HEADERS, "X-Request-Id": request_id(request.scope)}
        return HTMLResponse(text, shown.status, headers)

    def _enter(self, request: Request, token: str) -> Response:
        """Take the token out of the address, for a cookie. Raises Forbidden."""
        if not self._door.is_token(token):
            raise Forbidden("This is not the admin token.")
        others = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        address = f"{request.url.path}?{others}" if others else request.url.path
        answer = RedirectResponse(address, 303, _HEADERS)
        self._door.let_in(answer)
        return answer

    async def _login(self, request: Request, form: Form) -> Shown | Response:
        if not self._door.is_token(form.get("key", "").strip()):
            return Shown("login.html", "Log in", {"wrong": True}, 403)
        answer = RedirectResponse(ROOT, 303)
        self._door.let_in(answer)
        return answer

    async def _logout(self, request: Request, form: Form) -> Response:
        answer = RedirectResponse(ROOT, 303)
        self._door.let_out(answer)
        return answer


async def _to_root(_: Request) -> Response:
    return RedirectResponse(ROOT, 308, _HEADERS)


def _told(error: UnabridgedError) -> Shown:
    """An error in plain words, with what to do where that is known."""
    advice = ""
    if isinstance(error, StoreUnavailable):
        advice = (
            "Chats go on without what is stored, unless the policy says otherwise. See that the store runs"
            " and is reached from here, then load this page again."
        )
    content = {"message": error.message, "code": error.code, "advice": advice}
    return Shown("error.html", error.code.replace("_", " ").capitalize(), content, error.status)
