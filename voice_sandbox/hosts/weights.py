"""A server that replaces Hugging Face for ``huggingface_hub``, with a single repository of weights."""

from __future__ import annotations

import json
import shutil
import threading
from hashlib import sha1
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAKE_COMMIT_SHA = "0" * 40


class WeightsServer:
    """Serves the files of a folder as a repository on the loopback interface.

    Args:
        repository: Name, ``owner/name``.
    """

    def __init__(self, repository: str, folder: Path, port: int = 0) -> None:
        files = {file.name: file for file in sorted(folder.iterdir())}
        answers = {
            f"/api/models/{repository}/revision/main": {"id": repository, "sha": FAKE_COMMIT_SHA},
            f"/api/models/{repository}/tree/{FAKE_COMMIT_SHA}": [_describe_file(file) for file in files.values()],
        }
        prefix = f"/{repository}/resolve/{FAKE_COMMIT_SHA}/"

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                path = self.path.partition("?")[0]
                if path in answers:
                    self._send_headers(HTTPStatus.OK, len(json.dumps(answers[path])), "list")
                elif path.startswith(prefix) and path.removeprefix(prefix) in files:
                    file = files[path.removeprefix(prefix)]
                    self._send_headers(HTTPStatus.OK, file.stat().st_size, _build_cache_key(file))
                else:
                    self._send_headers(HTTPStatus.NOT_FOUND, 0, "none")

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                self.do_HEAD()
                if path in answers:
                    self.wfile.write(json.dumps(answers[path]).encode())
                elif path.removeprefix(prefix) in files:
                    with files[path.removeprefix(prefix)].open("rb") as file:
                        shutil.copyfileobj(file, self.wfile)

            def _send_headers(self, status: HTTPStatus, length: int, tag: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.send_header("ETag", f'"{tag}"')
                self.send_header("X-Repo-Commit", FAKE_COMMIT_SHA)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _build_cache_key(file: Path) -> str:
    """Return the cache key of a file. The key depends only on the name, since there is only one commit."""
    return sha1(file.name.encode(), usedforsecurity=False).hexdigest()


def _describe_file(file: Path) -> dict[str, object]:
    return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": _build_cache_key(file)}
