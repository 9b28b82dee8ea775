"""A program on each data path, with a state store and an ASR host."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from network import Network, Veth
from running import AsrHost, Caller, DataPlane, Store


@pytest.fixture(scope="session", params=["socket", "af_xdp"])
def path(request: pytest.FixtureRequest) -> str:
    """The data path; a test that names others replaces it."""
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
    """A data plane that is not started yet."""
    store.do("FLUSHALL")
    data_plane = DataPlane(tmp_path, store, path)
    yield data_plane
    if data_plane.process:
        data_plane.stop()


@pytest.fixture
def host(store: Store, plane: DataPlane) -> Iterator[AsrHost]:
    """The ASR host of a data plane that runs."""
    asr = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    yield asr
    asr.die()


@pytest.fixture
def caller(store: Store, plane: DataPlane, host: AsrHost) -> Caller:  # noqa: ARG001
    """A session that is in."""
    who = Caller(plane, 0x1234)
    store.open_session(who.ssrc)
    who.enter()
    return who


@pytest.fixture
def sender(plane: DataPlane) -> Iterator[socket.socket]:
    """A socket for many callers."""
    with Caller.open_socket(plane) as opened:
        yield opened
