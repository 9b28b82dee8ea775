import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.userdata.machine import Machine


class Health(http.server.BaseHTTPRequestHandler):
    """Fake health endpoint of a container."""

    status = HTTPStatus.OK

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Unhealthy(Health):
    """Fake health endpoint of an unhealthy container."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


@contextmanager
def _serve_health(handler: type[Health]) -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def ready_port() -> Iterator[int]:
    """Serve a port with a healthy endpoint."""
    with _serve_health(Health) as port:
        yield port


@pytest.fixture
def unhealthy_port() -> Iterator[int]:
    """Serve a port with an endpoint that returns 503."""
    with _serve_health(Unhealthy) as port:
        yield port


@pytest.fixture
def unresponsive_port() -> Iterator[int]:
    """Serve a port that accepts connections and never responds, like a hanging process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent_port() -> int:
    """Return a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def machine(tmp_path: Path, ready_port: int) -> Machine:
    return Machine(tmp_path, ready_port)
