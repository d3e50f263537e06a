"""Authorisation for the admin API and the page: by the admin token in a header, or by a cookie.

A program sends the token with each request. A browser sends it once and gets a cookie, which scripts cannot
read, and which pages of other sites cannot send (RFC 6265bis, SameSite=Strict). Pages on other ports of the
same host belong to the same site, so a change that is authorised by the cookie also needs a CSRF token, which
only our own pages have. Both are derived from the admin token, so every worker can check them and none stores
any.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from proxy.errors import Forbidden, Unauthorized
from proxy.http.request_head import check_credentials

PATH = "/unabridged"
"""The path below which browsers send the cookie."""
_CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"
_SAFE = frozenset({"GET", "HEAD"})
_LASTS = 30 * 24 * 3600
"""Seconds for which a browser stays logged in."""


@dataclass(frozen=True)
class AdminAuth:
    """Admits requests with the admin ``token``. ``now`` returns seconds since 1970.

    ``is_secure``: browsers come by HTTPS, so the cookie is sent by nothing else.
    """

    token: str
    now: Callable[[], float]
    is_secure: bool

    def check(self, request: Request) -> None:
        """Raise Unauthorized if a request has no credential, and Forbidden if it has a wrong one."""
        check_credentials(request.scope["headers"])
        scheme, token = [*request.headers.get("authorization", "").split(None, 1), "", ""][:2]
        if token:
            if scheme.lower() != "bearer" or not self.is_token(token):
                raise Forbidden("This is not the admin token.")
            return
        if not self.is_logged_in(request):
            raise Unauthorized("The admin API needs the admin token: Authorization: Bearer …")
        if request.method not in _SAFE:
            self.check_csrf(request, request.headers.get(_CSRF_HEADER, ""))

    def is_token(self, given: str) -> bool:
        return _same(given, self.token)

    def is_logged_in(self, request: Request) -> bool:
        expires, _, rest = self._cookie(request).partition(".")
        nonce, _, signature = rest.partition(".")
        is_ours = _same(signature, self._signed("cookie", f"{expires}.{nonce}"))
        return is_ours and int(expires) > self.now()

    def check_csrf(self, request: Request, given: str) -> None:
        """Raise Forbidden if a request was not made by one of our pages."""
        if not _same(given, self.csrf(request)):
            raise Forbidden("This form is out of date: load the page again.")

    def csrf(self, request: Request) -> str:
        """Return the CSRF token that our pages send beside the cookie of this request."""
        return self._signed("csrf", self._cookie(request))

    def log_in(self, answer: Response) -> None:
        """Set the cookie in a response, for a browser that has sent the token."""
        content = f"{int(self.now()) + _LASTS}.{secrets.token_hex(16)}"
        cookie = f"{content}.{self._signed('cookie', content)}"
        self._set(answer, cookie, _LASTS)

    def log_out(self, answer: Response) -> None:
        self._set(answer, "", 0)

    def _set(self, answer: Response, cookie: str, lasts: int) -> None:
        answer.set_cookie(
            self._name, cookie, lasts, path=PATH, secure=self.is_secure, httponly=True, samesite="strict"
        )

    def _cookie(self, request: Request) -> str:
        return request.cookies.get(self._name, "")

    @property
    def _name(self) -> str:
        """The cookie's name, different for each port, because servers on one host share their cookies."""
        return f"unabridged-{self._signed('name', '')[:8]}"

    def _signed(self, use: str, content: str) -> str:
        return hmac.new(self.token.encode(), f"{use} {content}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
