"""Reference servers and recordings."""

import math
import struct
import subprocess
import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Server:
    """A running reference server."""

    url: str

    def stall(self, after_s: float, for_s: float) -> None:
        self._ask("POST", "/stall", json={"after_s": after_s, "for_s": for_s})

    def take_records(self) -> dict[str, Any]:
        """Return and clear the server's record, which includes warm-up requests."""
        found: dict[str, Any] = self._ask("DELETE", "/records").json()
        return found

    def _ask(self, method: str, path: str, json: Any = None) -> urllib3.BaseHTTPResponse:  # noqa: ANN401  any JSON
        response = urllib3.request(method, self.url + path, json=json)
        assert response.status == 200
        return response


@contextmanager
def running(*arguments: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.ops.loadtest.reference_server", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout
            yield Server(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    shared_server.take_records()
    return shared_server


@pytest.fixture(scope="session")
def shared_slower_server() -> Iterator[Server]:
    with running("--slower", "0.2") as server:
        yield server


@pytest.fixture
def slower_server(shared_slower_server: Server) -> Server:
    shared_slower_server.take_records()
    return shared_slower_server


@pytest.fixture(scope="session")
def locked_server() -> Iterator[Server]:
    with running("--api-key", "open-sesame") as server:
        yield server


@pytest.fixture(scope="session")
def wav(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two seconds of a tone at 16 kHz."""
    file = tmp_path_factory.mktemp("audio") / "tone.wav"
    write_wav(file, 2.0)
    return file


def write_wav(file: Path, seconds: float, *, rate: int = 16_000, channels: int = 1) -> None:
    tone = (round(8000 * math.sin(0.2 * step)) for step in range(round(seconds * rate) * channels))
    with wave.open(str(file), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(b"".join(struct.pack("<h", sample) for sample in tone))
