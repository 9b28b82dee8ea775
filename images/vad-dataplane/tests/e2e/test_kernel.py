"""An interface shared with the kernel: all traffic except audio reaches the kernel."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from audio import silence, speech
from network import QUEUES, Veth, ip
from running import AsrHost, Caller, DataPlane, Store, wait_for

pytestmark = pytest.mark.parametrize("path", ["af_packet", "af_xdp"], indirect=True, scope="session")
BYTES = 4_000_000
MAX_BYTES_PER_S = 2_000_000
"""Rate of the TCP connection. At full speed it fills the 512 frames of an AF_PACKET ring within milliseconds, and on a
busy machine the kernel then drops audio, which is not retransmitted. At this rate, both directions need 0.2 s."""
SO_MAX_PACING_RATE = 47


@pytest.fixture
def echo(network: Veth) -> Iterator[int]:
    """Start an echo server beside the program, which behaves like an SSH session."""
    with network.near():
        listener = socket.create_server((network.near_address, 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while got := connection.recv(65536):
                connection.sendall(got)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.close()


def ping(network: Veth) -> bool:
    """Return whether the program's host answers, including ARP."""
    with network.far():
        ip("neigh", "flush", "dev", "voice1")
        found = subprocess.run(
            ["ping", "-c", "3", "-i", "0.2", "-W", "5", network.near_address], check=False, capture_output=True
        )
    return found.returncode == 0


def test_tcp_arp_and_ping_work_during_audio(
    network: Veth, plane: DataPlane, caller: Caller, host: AsrHost, echo: int
) -> None:
    talking = threading.Thread(target=caller.say, args=(speech() + silence(2) + speech() + silence(3),))
    talking.start()
    sent = bytes(range(256)) * (BYTES // 256)
    with network.far():
        connection = socket.create_connection((network.near_address, echo), 30)
    with connection:
        # A veth's queue holds 256 packets: a longer burst would displace audio, which is not retransmitted.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, MAX_BYTES_PER_S)
        writing = threading.Thread(target=connection.sendall, args=(sent,))
        writing.start()
        received = bytearray()
        while len(received) < len(sent):
            received += connection.recv(65536)
        writing.join()
    assert received == sent
    assert ping(network)
    talking.join()
    caller.is_taken()
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    assert plane.drops()["not-rtp"] == 0, "nothing but audio was taken for audio"


def test_packet_buffers_are_returned(caller: Caller) -> None:
    """DPDK has 8,192 buffers; a driver that leaks them stops once all are lost. A batch fits the receive ring."""
    for _ in range(20):
        caller.say(silence(10), pace_s=0.0002)
        caller.is_taken()


@pytest.mark.usefixtures("host")
def test_a_killed_program_leaves_the_interface_usable(network: Veth, plane: DataPlane, caller: Caller) -> None:
    caller.say(silence(0.2))
    plane.kill()
    assert ping(network)
    plane.start()
    again = Caller(plane, caller.ssrc)
    again.enter()
    again.say(silence(0.2))
    again.is_taken()
    assert ping(network)


def test_a_restarted_program_gets_the_queues_of_its_predecessor(plane: DataPlane, store: Store, tmp_path: Path) -> None:
    predecessor = plane.start().process
    assert predecessor
    (tmp_path / "next").mkdir()
    successor = DataPlane(tmp_path / "next", store, plane.path)
    ending = threading.Timer(1.0, predecessor.kill)
    ending.start()
    successor.start()
    ending.join()
    caller = Caller(successor, 0x1234)
    store.open_session(caller.ssrc)
    caller.enter()
    successor.stop()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="with one CPU there is nothing to share out")
def test_pollers_have_dedicated_cores_and_other_threads_are_unpinned(plane: DataPlane) -> None:
    cores = os.sched_getaffinity(0)
    process = plane.start().process
    assert process
    threads = [
        ((task / "comm").read_text().strip(), os.sched_getaffinity(int(task.name)))
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    ]
    pollers = [core for name, (core, *others) in threads if name == "poller" and not others]
    assert sorted(pollers) == sorted(cores)[-QUEUES:]
    for thread in ("shipper", "registry", "vad-dataplane"):
        assert (thread, cores) in threads
