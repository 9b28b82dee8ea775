"""A running engine with a real store and a real model."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.conftest import StoreServer

sys.path.append(str(Path(__file__).parent))

from engine_host import EngineHost

_ssrcs = itertools.count(2_000_000_001, 1000)
Start = Callable[..., EngineHost]


@pytest.fixture(scope="module")
def start(store_server: StoreServer) -> Iterator[Start]:
    """Start engines that stop with the module."""
    started: list[EngineHost] = []

    def begin(host: str = "h1", address: str = "127.0.0.1", **more: str) -> EngineHost:
        started.append(EngineHost(store_server, host, address, **more))
        return started[-1]

    yield begin
    for engine in started:
        if engine.process.poll() is None:
            engine.kill()


@pytest.fixture(scope="module")
def engine(start: Start) -> EngineHost:
    found = start()
    found.wait_until_ready()
    return found


@pytest.fixture
def ssrc() -> int:
    """Return a session number that no other test uses: an engine remembers its sessions."""
    return next(_ssrcs)
