"""The program on each data path, with a state store and an ASR host."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from network import Network, Veth
from running import AsrHost, Caller, DataPlane, Store


@pytest.fixture(scope="session", autouse=True)
def senders_in_time() -> None:
    """Give the sending thread a higher priority: a caller does not share its machine with other tests.

    A sender that is silent for 350 ms ends its utterance, whatever the cause. Programs that the thread starts are not
    affected.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


@pytest.fixture(scope="session", params=["socket", "af_xdp"])
def path(request: pytest.FixtureRequest) -> str:
    """Return the data path; a test can override it by parametrization."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def network(path: str) -> Iterator[Network]:
    found = Network() if path == "socket" else Veth()
    yield found
    found.close()


@pytest.fixture(scope="session")
def store(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server = Store(tmp_path_factory.mktemp("redis"), network)
    yield server
    server.stop()


@pytest.fixture
def plane(store: Store, path: str, tmp_path: Path) -> Iterator[DataPlane]:
    """Create a data plane without starting it."""
    store.do("FLUSHALL")
    data_plane = DataPlane(tmp_path, store, path)
    yield data_plane
    if data_plane.process:
        data_plane.stop()


@pytest.fixture
def host(store: Store, plane: DataPlane) -> Iterator[AsrHost]:
    """Start the ASR host of a running data plane."""
    asr = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    yield asr
    asr.die()


@pytest.fixture
def caller(store: Store, plane: DataPlane, host: AsrHost) -> Caller:  # noqa: ARG001
    """Open a session and wait until it is admitted."""
    who = Caller(plane, 0x1234)
    store.open_session(who.ssrc)
    who.enter()
    return who


@pytest.fixture
def sender(plane: DataPlane) -> Iterator[socket.socket]:
    """Open a socket that many callers share."""
    with Caller.open_socket(plane) as opened:
        yield opened
