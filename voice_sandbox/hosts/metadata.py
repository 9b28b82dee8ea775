"""Instance metadata service (version 2 only). Each host has its own tree, which can only be read with a token."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MetadataTree = dict[str, "MetadataTree | str"]
_TOKEN_PATH = "/latest/api/token"  # noqa: S105
_TOKEN_LIFETIME_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105


@dataclass(frozen=True)
class InstanceMetadata:
    """Metadata of a host.

    Attributes:
        user_data: User data of the launch template, unchanged.
        hop_limit: Hop limit of tokens.
        build_tree: Current ``meta-data``.
    """

    user_data: bytes
    hop_limit: int
    build_tree: Callable[[], MetadataTree]


class _MetadataServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore the error if a host times out or is powered off."""


class MetadataService:
    """Serves each host its own metadata. A host is identified by its address."""

    def __init__(self, address: str, port: int = 80) -> None:
        self._facts: dict[str, InstanceMetadata] = {}
        self._tokens: set[str] = set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                service.create_token(self)

            def do_GET(self) -> None:
                service.respond(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _MetadataServer((address, port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add_host(self, address: str, facts: InstanceMetadata) -> None:
        self._facts[address] = facts

    def create_token(self, request: BaseHTTPRequestHandler) -> None:
        """Respond with a token that does not reach programs beyond the hop limit."""
        facts = self._facts.get(str(request.client_address[0]))
        if facts is None or request.path != _TOKEN_PATH:
            _send_response(request, HTTPStatus.NOT_FOUND)
        elif not request.headers.get(_TOKEN_LIFETIME_HEADER, "").isdigit():
            _send_response(request, HTTPStatus.BAD_REQUEST)
        else:
            token = secrets.token_urlsafe(32)
            self._tokens.add(token)
            request.connection.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, facts.hop_limit)
            _send_response(
                request,
                HTTPStatus.OK,
                token.encode(),
                {_TOKEN_LIFETIME_HEADER: request.headers[_TOKEN_LIFETIME_HEADER]},
            )

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        facts = self._facts.get(str(request.client_address[0]))
        if facts is None:
            _send_response(request, HTTPStatus.NOT_FOUND)
        elif request.headers.get(_TOKEN_HEADER) not in self._tokens:
            _send_response(request, HTTPStatus.UNAUTHORIZED)
        elif (text := _read_path(facts, request.path)) is None:
            _send_response(request, HTTPStatus.NOT_FOUND)
        else:
            _send_response(request, HTTPStatus.OK, text)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _read_path(facts: InstanceMetadata, path: str) -> bytes | None:
    """Return the value at a path, or the entries of a folder, with or without a trailing slash."""
    _, _, rest = path.lstrip("/").partition("/")  # drop the API version; every version serves the same content
    kind, _, subpath = rest.partition("/")
    if kind == "user-data":
        return facts.user_data
    if kind not in ("meta-data", "dynamic"):
        return None
    tree = facts.build_tree()
    node: MetadataTree | str | None = (
        tree if kind == "meta-data" else {"instance-identity": {"document": _render_identity_document(tree)}}
    )
    for part in filter(None, subpath.split("/")):
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict):
        return "\n".join(name + "/" * isinstance(value, dict) for name, value in node.items()).encode()
    return None if node is None else node.encode()


def _render_identity_document(tree: MetadataTree) -> str:
    """Return the identity document, from which cloud-init reads the region."""
    placement = tree["placement"]
    assert isinstance(placement, dict)  # noqa: S101  of our own making
    return json.dumps(
        {
            "instanceId": tree["instance-id"],
            "instanceType": tree["instance-type"],
            "privateIp": tree["local-ipv4"],
            "region": placement["region"],
            "availabilityZone": placement["availability-zone"],
        }
    )


def _send_response(
    request: BaseHTTPRequestHandler, status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Type", "text/plain")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
