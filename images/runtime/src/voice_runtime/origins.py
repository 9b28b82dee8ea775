"""Protects programs that have no authentication against requests from web pages.

A browser sends requests from any page to any address, including the local machine, and opens WebSockets without a
preflight (RFC 6455, section 10.2). If the attacker's own name resolves to 127.0.0.1, the requests are same-origin (DNS
rebinding), but their Host header contains that name.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from voice_blueprint.contract.session_api import HEALTH_PATH, LIVENESS_PATH

UNCHECKED_PATHS = (HEALTH_PATH, LIVENESS_PATH)
"""Paths that are not checked, since their responses contain no secrets, and load balancers send arbitrary host
names."""


class OriginCheckMiddleware:
    """Middleware that rejects requests that a page from another origin sends to a local program.

    Args:
        allowed: Origins of pages that may send requests anyway.
        same_origin: Whether a request to an address other than the local machine's must also come from a page of the
            same host.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = (), *, same_origin: bool = False) -> None:
        self._app = app
        self._allowed = allowed
        self._same_origin = same_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._find_rejection_reason(scope) if scope["type"] in ("http", "websocket") else ""
        if not problem:
            await self._app(scope, receive, send)
            return
        response = JSONResponse({"error": "foreign page", "detail": problem}, 403)
        if scope["type"] == "http":
            await response(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).send_denial_response(response)

    def _find_rejection_reason(self, scope: Scope) -> str:
        if scope["path"] in UNCHECKED_PATHS:
            return ""
        headers = Headers(scope=scope)
        host, origin = _parse_host_name(f"//{headers.get('Host', '')}"), headers.get("Origin")
        server_address = (scope.get("server") or ("",))[0]
        if is_local_host(server_address) and not is_local_host(host):
            return f"Host {host!r} is not this machine; use localhost or {server_address}"
        if origin is None or origin in self._allowed:
            return ""
        page = _parse_host_name(origin)
        if is_local_host(host) and not is_local_host(page):
            return f"pages of {origin!r} may not use this machine's programs; allow the origin, or send none"
        if self._same_origin and not is_local_host(host) and page != host:
            return f"pages of {origin!r} may not use {host!r}; allow the origin, or send none"
        return ""


def _parse_host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def is_local_host(name: str) -> bool:
    """Return True if a name or an address refers to the local machine.

    See RFC 6761, section 6.3, and RFC 1122, section 3.2.1.3.
    """
    if name.rstrip(".").rpartition(".")[2] == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
