"""A real server for the tests of the images: Valkey where it is packaged, Redis where it is not."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from voice_runtime.store import StoreSettings, connect

# onnxruntime, which faster-whisper brings along, tells its maker about itself; its own call to stop that does not.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

SERVERS = ("valkey-server", "redis-server")
PATIENCE_S = 60
"""Longest that a test waits for what takes a second on an idle machine: a busy one with one core is no failure."""

_INHERITED = ("PATH", "NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "CT2_FORCE_CPU_ISA")
INHERITED = {name: os.environ[name] for name in _INHERITED if name in os.environ}
"""All that programs under test get of this machine's environment."""


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class StoreServer:
    """A server that can be stopped and started again with what it had."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, SERVERS)), None)
        assert program, "needs Debian's valkey-server or redis-server: `make test` installs it"
        self._program = program
        self._folder = folder
        self.port = free_port()
        self.settings = StoreSettings(host="127.0.0.1", port=self.port, user="default", tls=False)
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--dir", str(self._folder), "--save", "", "--appendonly", "yes"]
        options += ["--appendfsync", "no"]  # a busy disk would hold up every write, and heartbeats with them
        self._process = subprocess.Popen(
            [self._program, *options, "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the store does not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    server = StoreServer(tmp_path_factory.mktemp("store"))
    yield server
    server.stop()


@pytest.fixture
async def store(store_server: StoreServer) -> AsyncIterator[Redis]:
    """An empty store."""
    client = connect(store_server.settings)
    await client.flushall()
    yield client
    await client.aclose()
