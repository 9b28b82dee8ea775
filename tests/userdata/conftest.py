import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.userdata.machine import Machine


@pytest.fixture
def ready_port() -> Iterator[int]:
    """A port that answers, as a container's health port does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent_port() -> int:
    """A port that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def machine(tmp_path: Path, ready_port: int) -> Machine:
    return Machine(tmp_path, ready_port)
