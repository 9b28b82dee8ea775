"""Fixtures with a state store for the image tests: Valkey if it is installed, and otherwise Redis."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

import tests.hypothesis_profiles  # noqa: F401  Hypothesis reads them
from tests.left_out import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  pytest calls them
from voice_runtime.store import StoreSettings, connect
from voice_sandbox.loopback import bypass_proxy_for_loopback, find_free_port

bypass_proxy_for_loopback(os.environ, [f"127.0.0.{host}" for host in range(2, 10)])

# onnxruntime, a dependency of faster-whisper, sends telemetry; its own function to disable it is not sufficient.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

SERVER_PROGRAMS = ("valkey-server", "redis-server")
BUSY_TIMEOUT_S = 60
"""Timeout for operations that take a second on an idle machine, so that tests do not fail on a busy machine."""

PIECE_BYTES = 65536
"""Maximum size of a request or a reply in these tests."""

_INHERITED_VARIABLE_NAMES = ("PATH", "NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "CT2_FORCE_CPU_ISA")
INHERITED_ENVIRONMENT = {name: os.environ[name] for name in _INHERITED_VARIABLE_NAMES if name in os.environ}
"""The only variables that programs under test inherit from this machine."""


class StoreServer:
    """A server that can be stopped and restarted with its data."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, SERVER_PROGRAMS)), None)
        assert program, "needs Debian's valkey-server or redis-server: `make test` installs it"
        self._program = program
        self._folder = folder
        self.port = find_free_port()
        self.settings = StoreSettings(host="127.0.0.1", port=self.port, user="default", tls=False)
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--dir", str(self._folder), "--save", "", "--appendonly", "yes"]
        options += ["--appendfsync", "no"]  # a busy disk would delay every write, including heartbeats
        self._process = subprocess.Popen(
            [self._program, *options, "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        limit = time.monotonic() + BUSY_TIMEOUT_S
        while time.monotonic() < limit:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the store does not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(BUSY_TIMEOUT_S)


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    server = StoreServer(tmp_path_factory.mktemp("store"))
    yield server
    server.stop()


@pytest.fixture
async def store(store_server: StoreServer) -> AsyncIterator[Redis]:
    """Client for an empty store."""
    client = connect(store_server.settings)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def lossy_store(store: Redis, store_server: StoreServer) -> AsyncIterator[Redis]:  # noqa: ARG001  is emptied
    """Client whose connection breaks before its first reply to a command whose repetition has another result."""
    has_lost_reply = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal has_lost_reply
        store_reader, store_writer = await asyncio.open_connection("127.0.0.1", store_server.port)
        with contextlib.closing(writer), contextlib.closing(store_writer):
            while request := await reader.read(PIECE_BYTES):
                store_writer.write(request)
                reply = await store_reader.read(PIECE_BYTES)
                if not has_lost_reply and re.search(rb"\r\n(HSETNX|NX|RPUSH)\r\n", request):
                    has_lost_reply = True
                    return
                writer.write(reply)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as relay:
        port = relay.sockets[0].getsockname()[1]
        client = connect(store_server.settings.model_copy(update={"port": port}))
        yield client
        await client.aclose()
    assert has_lost_reply


async def until(happened: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.01)
