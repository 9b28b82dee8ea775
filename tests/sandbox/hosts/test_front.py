"""One front serves every AWS host name, each with its certificate and server."""

import socket
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from voice_sandbox.hosts import front
from voice_sandbox.hosts.certificates import CertificateAuthority


class Echo(BaseHTTPRequestHandler):
    """Handler that returns the number of its server and the requested host name."""

    def do_GET(self) -> None:
        body = f"{self.connection.getsockname()[1]} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[list[int]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Echo) for _ in range(2)]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_port for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "authority")


def ask(door: front.TlsServer, authority: CertificateAuthority, name: str) -> str:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    with (
        socket.create_connection(("127.0.0.1", door.port)) as raw,
        context.wrap_socket(raw, server_hostname=name) as tls,
    ):
        tls.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := tls.recv(65536):
            answer += data
    return answer.rpartition(b"\r\n\r\n")[2].decode()


def test_a_name_resolves_to_its_server(servers: list[int], authority: CertificateAuthority, tmp_path: Path) -> None:
    aws, registry = servers
    door = front.TlsServer("127.0.0.1", authority, tmp_path, lambda name: registry if ".ecr." in name else aws, port=0)
    # A name with several labels, which no wildcard certificate covers.
    for name, port in [
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com", registry),
        ("logs.us-east-1.amazonaws.com", aws),
    ]:
        assert ask(door, authority, name) == f"{port} {name}"
    door.close()


def test_another_authority_is_not_trusted(servers: list[int], authority: CertificateAuthority, tmp_path: Path) -> None:
    door = front.TlsServer("127.0.0.1", authority, tmp_path, lambda _: servers[0], port=0)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(door, CertificateAuthority(tmp_path / "other"), "logs.us-east-1.amazonaws.com")
    door.close()


def test_an_authority_is_created_once(authority: CertificateAuthority) -> None:
    before = authority.file.read_bytes()
    assert CertificateAuthority(authority.file.parent).file.read_bytes() == before
    assert (authority.file.parent / "authority.key").stat().st_mode & 0o077 == 0
