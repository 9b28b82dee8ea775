"""A JSON server on a port of this machine, as a stand-in for an identity provider."""

import json
import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JsonServer(ABC):
    """Serves from its construction until ``stop``.

    Attributes:
        url: Base URL, without a trailing slash.
    """

    def __init__(self) -> None:
        respond = self.respond

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                status, value = respond(self.path, sent.decode())
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @abstractmethod
    def respond(self, path: str, body: str) -> tuple[int, object]:
        """Return the status and the value for a request."""

    def stop(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
