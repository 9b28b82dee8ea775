"""The health checks of containers, against a local server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from voice_runtime import healthcheck
from voice_sandbox.loopback import find_free_port


class Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name in ("VOICE_HTTP_PORT", "VOICE_MEDIA_PORT"):
        monkeypatch.setenv(name, str(server.server_port))
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (204, 1)])
def test_a_program_is_healthy_if_it_responds_with_200(status: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Health, "status", status)
    assert healthcheck.main() == code
    monkeypatch.delenv("VOICE_MEDIA_PORT")
    assert healthcheck.main() == code, "an agent has one port"


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize("name", ["VOICE_HTTP_PORT", "VOICE_MEDIA_PORT"])
def test_a_gateway_is_healthy_if_both_ports_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, str(find_free_port()))
    assert healthcheck.main() == 1
