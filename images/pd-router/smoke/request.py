"""Smoke test of the router and its front proxy, which route a chat request and an upload to two fake engines.

``run.sh`` runs this test in the image. ``launch.json`` contains the command lines and ports of a deployment.
"""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LAUNCH_CONFIG = json.loads(Path("/smoke/launch.json").read_text(encoding="utf-8"))
FRONT, PREFILL, DECODE = (int(LAUNCH_CONFIG["ports"][name]) for name in ("front", "prefill", "decode"))
DEADLINE_S = 60
received_requests: list[tuple[int, str]] = []
received_transfer_params: list[dict[str, object] | None] = []


class FakeEngine(BaseHTTPRequestHandler):
    """Fake engine whose responses contain the fields that the router reads."""

    def do_GET(self) -> None:
        """Respond to health checks and requests for the list of models."""
        self._respond({"object": "list", "data": [{"id": "model", "object": "model"}]})

    def do_POST(self) -> None:
        """Record the request, and respond."""
        port = self.connection.getsockname()[1]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        received_requests.append((port, self.path))
        transfer = json.loads(body).get("kv_transfer_params") if body.startswith(b"{") else None
        received_transfer_params.append(transfer)
        choice = {"index": 0, "message": {"role": "assistant", "content": str(port)}, "finish_reason": "stop"}
        self._respond({"id": "x", "object": "chat.completion", "choices": [choice], "kv_transfer_params": transfer})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name that http.server uses
        """Log nothing."""

    def _respond(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def post(path: str, body: bytes, content_type: str) -> bytes:
    """Send a request to the front proxy, and repeat it until the proxy responds."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{FRONT}{path}", data=body, headers={"content-type": content_type}
    )
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  to this machine
                return bytes(response.read())
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def main() -> int:
    """Start all programs, send both requests, and check which engines received them."""
    for port in (PREFILL, DECODE):
        server = ThreadingHTTPServer(("127.0.0.1", port), FakeEngine)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    front, _ = LAUNCH_CONFIG["commands"]
    subprocess.run([*front, "-t"], check=True)  # noqa: S603  a launcher's command
    programs = [subprocess.Popen(command) for command in LAUNCH_CONFIG["commands"]]  # noqa: S603  launchers' commands
    try:
        chat = {"model": "model", "messages": [{"role": "user", "content": "hello"}]}
        answer = json.loads(post("/v1/chat/completions", json.dumps(chat).encode(), "application/json"))
        post("/v1/audio/transcriptions", b"--x\r\n\r\naudio\r\n--x--\r\n", "multipart/form-data; boundary=x")
    finally:
        for program in programs:
            program.terminate()
            program.wait(timeout=20)
    expected = [
        (PREFILL, "/v1/chat/completions"), (DECODE, "/v1/chat/completions"), (DECODE, "/v1/audio/transcriptions"),
    ]  # fmt: skip
    is_remote_prefill = bool(
        received_transfer_params and received_transfer_params[0] and received_transfer_params[0].get("do_remote_decode")
    )
    if (
        received_requests != expected
        or answer["choices"][0]["message"]["content"] != str(DECODE)
        or not is_remote_prefill
    ):
        print(
            f"asked {received_requests} with {received_transfer_params}, expected {expected}; the answer was {answer}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
