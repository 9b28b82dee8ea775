"""Reservation of ports for local programs that are restarted on the same port."""

import socket
import sys
from pathlib import Path

import pytest

from voice_sandbox.loopback import find_free_port

EPHEMERAL_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's range is read where Linux has it")
def test_a_reserved_port_is_never_assigned_automatically() -> None:
    """Regression: the port of a killed engine was assigned to another program, and the engine could not restart."""
    first_ephemeral = int(EPHEMERAL_PORT_RANGE.read_text().split()[0])
    assert max(find_free_port() for _ in range(50)) < first_ephemeral


def test_a_port_in_use_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as used:
        used.bind(("", 0))
        port = used.getsockname()[1]
        monkeypatch.setattr("voice_sandbox.loopback.random.sample", lambda _ports, _count: [port])
        with pytest.raises(OSError, match="no free port"):
            find_free_port()


def test_a_port_is_offered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a program got one port for two of its sockets, and did not start."""
    candidates = [find_free_port() for _ in range(3)]
    monkeypatch.setattr("voice_sandbox.loopback._offered_ports", set(), raising=False)
    monkeypatch.setattr("voice_sandbox.loopback.random.sample", lambda _ports, _count: candidates)
    assert [find_free_port() for _ in candidates] == candidates
