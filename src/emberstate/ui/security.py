"""`Guard`: who may ask for what. Every request passes here before any page.

A page on loopback is reached by more than its user: by other users of the machine, and by every web site that the user
visits, whose scripts may send requests there. So the guard requires, in this order,

    a `Host` of this machine        against names of a hostile site that are made to point here (DNS rebinding)
    no other `Origin`               against scripts, forms and pictures of other sites
    GET or HEAD                     nothing here changes anything; the form that takes the token is posted
    the user, on loopback           another user's process is turned away (`neighbours`), unless there is a token
    the token, if there is one      in a cookie that scripts cannot read, or as a bearer token

and adds the headers that make a browser load nothing from elsewhere, run no script that is not a file of this server,
and show the page in no frame.

Thread safety: immutable after construction.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
#: A shorter token can be guessed.
LEAST_TOKEN: Final = 16
_LOGIN: Final = "/login"
_LONGEST_FORM: Final = 4096


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("x")
    (True, True, True, False, False)
    """
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class Guard:
    """An ASGI application around another."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        token: str | None,
        login: Callable[[str, bool], str],
        may_connect: Callable[[Scope], bool] | None = None,
    ) -> None:
        """`host` is what the server listens on; `login` makes the form, `may_connect` knows the user's processes."""
        self._app = app
        self._local = is_loopback(host)
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._token = token
        self._login = login
        self._may_connect = may_connect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        answer = self._refused(scope) or await self._authorised(scope, receive)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            text = "This name is not one of the page's. Use localhost, or the address of the machine."
            return PlainTextResponse(text, 421)
        if not _same_origin(headers, hosts[0], scope["method"]):
            return PlainTextResponse("Requests from another origin are refused.", 403)
        if scope["method"] not in ("GET", "HEAD") and (scope["method"], scope["path"]) != ("POST", _LOGIN):
            return PlainTextResponse("The page is read-only.", 405, {"allow": "GET, HEAD"})
        if self._token is None and self._may_connect is not None and not self._may_connect(scope):
            text = "Another user of this machine runs this page. Ask them to start it with a token."
            return PlainTextResponse(text, 403)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a `Host` is a name of this machine. A literal address is nobody's name, so nobody can redirect it."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        address = _address(name)
        if address is not None:
            return address.is_loopback or not self._local
        return name == "localhost" if self._local else name in self._names

    async def _authorised(self, scope: Scope, receive: Receive) -> Response | None:
        if self._token is None:
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["path"] == _LOGIN and scope["method"] == "POST":
            form = parse_qs((await _body(receive)).decode("latin-1"))
            return self._welcome(form.get("token", [""])[-1], "/")
        if "token" in query:
            rest = urlencode([(name, one) for name, some in query.items() if name != "token" for one in some])
            return self._welcome(query["token"][-1], scope["path"] + (f"?{rest}" if rest else ""))
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie(scope), "")
        if scheme.lower() == "bearer" and _equal(bearer, self._token):
            return None
        if _equal(cookie, _fingerprint(self._token)) or scope["path"].startswith("/static/"):
            return None
        return HTMLResponse(self._login(_LOGIN, False), 401)

    def _welcome(self, given: str, to: str) -> Response:
        assert self._token is not None
        if not _equal(given, self._token):
            return HTMLResponse(self._login(_LOGIN, True), 401)
        return _Welcome(to, self._cookie, _fingerprint(self._token))

    @staticmethod
    def _cookie(scope: Scope) -> str:
        """The cookie's name: browsers keep cookies by host, and several pages may run on one."""
        return f"emberstate_ui_{(scope.get('server') or ('', 0))[1]}"


class _Welcome(RedirectResponse):
    """Goes to a page, with the cookie."""

    def __init__(self, to: str, cookie: Callable[[Scope], str], value: str) -> None:
        # A path that begins with two slashes would be another host.
        super().__init__("/" + to.lstrip("/\\"), 303)
        self._name = cookie
        self._value = value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.set_cookie(self._name(scope), self._value, httponly=True, samesite="strict", path="/")
        await super().__call__(scope, receive, send)


def _same_origin(headers: Headers, host: str, method: str) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return False
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return True
    # Somebody follows a link: the browser shows the page, and the other site does not see it.
    return (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("GET", "navigate", "document")


async def _body(receive: Receive) -> bytes:
    data = b""
    while True:
        message: Any = await receive()
        data += bytes(message.get("body", b""))
        if not message.get("more_body") or len(data) > _LONGEST_FORM:
            return data[:_LONGEST_FORM]


def _fingerprint(token: str) -> str:
    """What the cookie holds, so that a cookie does not give the token away."""
    return hmac.new(token.encode(), b"emberstate ui", hashlib.sha256).hexdigest()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
