"""What all pages share: logging in, security headers, and error pages.

A page is an endpoint that returns a template with its content. The templates escape all content; if anything
slips through, the Content-Security-Policy below keeps a browser from running or loading it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from proxy.core.economics.bill import NANO
from proxy.errors import Forbidden, StoreUnavailable, UnabridgedError, Unauthorized
from proxy.http.admin.api import raw_body
from proxy.http.admin.auth import CSRF_FIELD, AdminAuth
from proxy.http.request_head import request_id
from proxy.telemetry import log_fault

ROOT = "/unabridged/"
_OVERLAP = 1.0
"""Seconds before its request from which a page asks for changes: they may be stored a little late."""
_STATIC = Path(__file__).parent / "static"
STYLE = _STATIC / "page.css"
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
class Page:
    """A template and its content."""

    template: str
    title: str
    content: Mapping[str, object]
    status: int = 200


Form = Mapping[str, str]
"""The fields of a submitted form; empty for a GET request."""
Endpoint = Callable[[Request, Form], Awaitable[Page | Response]]
_Made = TypeVar("_Made", bound=Callable[..., Any])
_TABLE: list[tuple[Callable[..., Any], Literal["GET", "POST"], str]] = []
"""All pages: a function of a class as the endpoint, the method, and the path below the root."""


def page(method: Literal["GET", "POST"], *paths: str) -> Callable[[_Made], _Made]:
    """Enter a method of a class as the endpoint of these paths below the root."""

    def enter(endpoint: _Made) -> _Made:
        _TABLE.extend((endpoint, method, path) for path in paths)
        return endpoint

    return enter


class Frame:
    """Serves the pages of all ``parts`` to those whom ``auth`` admits; anybody else gets the login form."""

    def __init__(self, auth: AdminAuth, render: Renderer, *parts: object) -> None:
        self._auth = auth
        self._render = render
        self._parts = (self, *parts)

    def routes(self) -> list[BaseRoute]:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for part in self._parts:
            for endpoint, method, path in _TABLE:
                if endpoint in vars(type(part)).values():
                    by_path.setdefault(path, {})[method] = partial(endpoint, part)
        return [
            Route(ROOT.rstrip("/"), RedirectResponse(ROOT, 308, _HEADERS), methods=["GET"]),
            Mount(f"{ROOT}static", StaticFiles(directory=_STATIC)),
            *(self._route(path, by_method) for path, by_method in by_path.items()),
        ]

    def _route(self, path: str, by_method: Mapping[str, Endpoint]) -> Route:
        async def guarded(request: Request) -> Response:
            began = self._render.now()
            endpoint = by_method["GET" if request.method == "HEAD" else request.method]
            try:
                if token := request.query_params.get("token", ""):
                    return self._enter(request, token)
                shown = await endpoint(request, await self._form(request, path))
            except Unauthorized:
                shown = Page("login.html", "Log in", {"wrong": False}, 401)
            except UnabridgedError as error:
                shown = _explained(error)
            except Exception as error:  # noqa: BLE001 - a person reads it: as a page, not as JSON
                log_fault("a page could not be shown", error)
                shown = _explained(UnabridgedError())
            if isinstance(shown, Response):
                shown.headers.update(_HEADERS)
                return shown
            is_in = self._auth.is_logged_in(request)
            around = {
                "title": shown.title,
                "csrf": self._auth.csrf(request) if is_in else "",
                "is_in": is_in,
                "path": request.url.path.removeprefix(ROOT),
                "seen": f"{began - _OVERLAP:.3f}",
            }
            text = await asyncio.to_thread(self._render, shown.template, {**around, **shown.content})
            return HTMLResponse(text, shown.status, {**_HEADERS, "X-Request-Id": request_id(request.scope)})

        return Route(ROOT + path, guarded, methods=[*by_method])

    async def _form(self, request: Request, path: str) -> Form:
        """Check that the request is allowed, and return its form. Raises Unauthorized and Forbidden."""
        if request.method in ("GET", "HEAD"):
            self._auth.check(request)
            return {}
        text = (await raw_body(request)).decode(errors="replace")
        form = dict(parse_qsl(text, keep_blank_values=True))
        if path == "login":
            return form
        if not self._auth.is_logged_in(request):
            raise Unauthorized
        self._auth.check_csrf(request, form.get(CSRF_FIELD, ""))
        return form

    def _enter(self, request: Request, token: str) -> Response:
        """Set a cookie for the token in the address, and redirect without it. Raises Forbidden."""
        if not self._auth.is_token(token):
            raise Forbidden("This is not the admin token.")
        others = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        address = f"{request.url.path}?{others}" if others else request.url.path
        answer = RedirectResponse(address, 303, _HEADERS)
        self._auth.log_in(answer)
        return answer

    @page("POST", "login")
    async def login(self, request: Request, form: Form) -> Page | Response:
        if not self._auth.is_token(form.get("key", "").strip()):
            return Page("login.html", "Log in", {"wrong": True}, 403)
        answer = RedirectResponse(ROOT, 303)
        self._auth.log_in(answer)
        return answer

    @page("POST", "logout")
    async def logout(self, request: Request, form: Form) -> Response:
        answer = RedirectResponse(ROOT, 303)
        self._auth.log_out(answer)
        return answer


def _explained(error: UnabridgedError) -> Page:
    """An error page in plain words, with advice if there is any."""
    advice = ""
    if error.code == UnabridgedError.code:
        advice = "The log has the place. Other pages, and chats, are not affected."
    if isinstance(error, StoreUnavailable):
        advice = (
            "Chats go on without what is stored, unless the policy says otherwise. See that the store runs"
            " and is reached from here, then load this page again."
        )
    content = {"message": error.message, "advice": advice}
    return Page("error.html", error.code.replace("_", " ").capitalize(), content, error.status)


# --- templates, and their filters for numbers and times ---

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


class Renderer:
    """Renders templates, and escapes their content. ``now`` returns seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._templates = Environment(
            loader=PackageLoader("proxy.http.page"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

        def ago(seconds: float) -> str:
            """How long ago a time (seconds since 1970) is, in words."""
            passed = now() - seconds
            for length, word in _UNITS:
                if passed >= length:
                    count = int(passed / length)
                    return f"{count} {word}{'s' if count > 1 else ''} ago"
            return "just now"

        self._templates.filters |= {**_FILTERS, "ago": ago}

    def __call__(self, template: str, content: Mapping[str, object]) -> str:
        return self._templates.get_template(template).render(content)


def dollars(nano: int) -> str:
    """Write nano-dollars as dollars with two decimal places, or four below one dollar."""
    value = nano / NANO
    places = 2 if abs(value) >= 1 else 4
    return f"{'-' if value < 0 else ''}${abs(value):,.{places}f}"


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_FILTERS: Mapping[str, Callable[[Any], str]] = {
    "number": lambda value: "—" if value is None else f"{value:,.0f}",
    "interval": lambda found: (
        "—" if found is None else f"{found.value:.0%} ({found.low:.0%} to {found.high:.0%})"
    ),
    "percent": lambda share: "—" if share is None else f"{share:.0%}",
    "dollars": dollars,
    "day": lambda seconds: _time(seconds).strftime("%Y-%m-%d %H:%M"),
    "iso": lambda seconds: _time(seconds).isoformat(timespec="seconds"),
}
"""Times are in UTC: `day` to the minute for people, `iso` to the second for programs."""
