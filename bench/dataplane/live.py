# mypy: disable-error-code="import-not-found"
"""Measures streams through a veth and AF_XDP. Requires root.

Usage: `python -m bench.dataplane.live AUDIO ROUNDS SECONDS STREAMS...`

The data plane runs in a network namespace with a Redis server, as in its end-to-end tests. PYTHONPATH must contain the
folder of these tests. The program prints a JSON object per round. The kernel's receive processing runs on the sender's
core, since a veth has no interrupts.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from network import Veth
from running import LOOPBACK, DataPlane, Store, wait_for

from bench.dataplane.sender import calculate_ssrc

OPEN_SESSIONS_SCRIPT = """
for i = 0, ARGV[2] - 1 do
  redis.call('HSET', 'session:' .. ARGV[1] + i, 'state', 'open', 'kind', 'gateway', 'expires_at', ARGV[3],
    'gateway', ARGV[4])
end
"""
RX_RING_SIZE = 4096
"""Size of the receive ring. It is larger than in the fleet, since the poller shares its core here."""
URGENT_NICENESS = -20
"""Niceness at which the kernel rarely preempts the program. In the fleet, the program has dedicated cores."""
ADMISSION_SPEED_FACTOR = 0.25
"""Speed, relative to real time, at which sessions are admitted and the VAD adapts to their noise."""


class SilentAsrHost:
    """An ASR host that is registered but does not read its packets, so that the kernel drops them."""

    def __init__(self, store: Store, port: int) -> None:
        with store.network.near():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, port))
        self._store = store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, daemon=True)
        self._thread.start()

    def _send_heartbeats(self) -> None:
        beats = 0
        record = ("kind", "neuron", "address", LOOPBACK, "free_slots", 1_000_000, "draining", 0)
        while not self._stopping.wait(0.3):
            beats += 1
            with contextlib.suppress(OSError):
                self._store.do("SADD", "host:asr", "asr-1")
                self._store.do("HSET", "host:asr:asr-1", *record, "heartbeat", beats)

    def stop(self) -> None:
        """Stop the heartbeats, and close the socket."""
        self._stopping.set()
        self._thread.join()
        self._socket.close()


class SenderProcess:
    """Controls the sending program, which runs on a different core than the poller."""

    def __init__(self, plane: DataPlane, audio: str, streams: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        address = (plane.network.near_address, plane.environment["VOICE_RTP_PORT"])
        command = [sys.executable, "-m", "bench.dataplane.sender", *address, audio, str(streams)]
        with plane.network.far():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        self._process: Any = process  # not None, since the pipes were requested
        os.sched_setaffinity(self._process.pid, set(cores[:-1]) or set(cores))

    def send(self, streams: int, seconds: float, speed: float = 1) -> dict[str, float]:
        """Send the given number of seconds of audio on each stream, and return the statistics."""
        print(streams, seconds, speed, file=self._process.stdin, flush=True)
        sent: dict[str, float] = json.loads(self._process.stdout.readline())
        return sent

    def stop(self) -> None:
        """Close the program's input, and wait until the program has ended."""
        self._process.communicate(timeout=30)


def _wait_for_settled_counters(plane: DataPlane) -> dict[str, Any]:
    """Wait until all packets in flight have been processed, and return the counters."""
    before: dict[str, Any] = plane.ask("counters")
    while True:
        time.sleep(0.3)
        now: dict[str, Any] = plane.ask("counters")
        if now["stages"]["reorder"]["items"] == before["stages"]["reorder"]["items"]:
            return now
        before = now


def measure_streams(plane: DataPlane, sender: SenderProcess, streams: int, seconds: float) -> dict[str, Any]:
    """Send audio on a number of streams, and return the changes in the counters."""
    before = _wait_for_settled_counters(plane)
    sent = sender.send(streams, seconds)
    peak = plane.ask("counters")["rx_ring_percent"]
    after = _wait_for_settled_counters(plane)
    cycles = {name: one["cycles"] - before["stages"][name]["cycles"] for name, one in after["stages"].items()}
    received = after["stages"]["reorder"]["items"] - before["stages"]["reorder"]["items"]
    frames = after["vad"]["frames"] - before["vad"]["frames"]
    silent = after["vad"]["silent_frames"] - before["vad"]["silent_frames"]
    drops = {name: count - before["drops"][name] for name, count in after["drops"].items()}
    return {
        "streams": streams,
        **sent,
        "asked_s": seconds,
        "lost": sent["sent"] - received,
        "speech_share": 1 - silent / frames,
        "rx_ring_percent": peak,
        "chunks": after["events"]["ship"]["sent"] - before["events"]["ship"]["sent"],
        "drops": {name: count for name, count in drops.items() if count},
        "cycles_per_packet": {name: count / received for name, count in cycles.items() if count},
    }


def run_rounds(folder: Path, audio: str, seconds: float, streams: list[int]) -> None:
    """Start the data plane, admit all sessions, and measure one round for each number of streams.

    Rounds with few streams come first, since lost packets have lasting effects.
    """
    max_streams = max(streams)
    with contextlib.ExitStack() as stack:
        network = Veth(queues=1)
        stack.callback(network.close)
        store = Store(folder, network)
        stack.callback(store.stop)
        settings = {
            "VOICE_MAX_SESSIONS": "8192",
            "VOICE_ADMISSIONS_PER_S": "1000000",
            "VOICE_RX_QUEUES": "1",
            "VOICE_RX_RING_SIZE": str(RX_RING_SIZE),
            "RUNTIME_DIRECTORY": str(folder),  # for DPDK, since another instance may be running
        }
        plane = DataPlane(folder, store, "af_xdp", settings)
        host = SilentAsrHost(store, plane.port("VOICE_CHUNK_PORT"))
        stack.callback(host.stop)
        plane.start()
        stack.callback(plane.stop)
        plane.knows_host()
        store.do(
            "EVAL",
            OPEN_SESSIONS_SCRIPT,
            0,
            calculate_ssrc(0),
            max_streams,
            int(time.time()) + 3600,
            network.far_address,
        )
        sender = SenderProcess(plane, audio, max_streams)
        stack.callback(sender.stop)

        def has_admitted_all() -> bool:
            sender.send(max_streams, 1, ADMISSION_SPEED_FACTOR)
            return bool(plane.ask("status")["sessions"] == max_streams)

        wait_for("all sessions are in", has_admitted_all, 60)
        for count in sorted(streams):
            print(json.dumps(measure_streams(plane, sender, count, seconds)), flush=True)


def main() -> None:
    """Measure the rounds that the command line specifies."""
    audio, rounds, seconds, *streams = sys.argv[1:]
    os.setpriority(os.PRIO_PROCESS, 0, URGENT_NICENESS)
    with contextlib.suppress(OSError):  # only on kernels with session-based scheduling (autogroup)
        Path("/proc/self/autogroup").write_text(str(URGENT_NICENESS))
    for _ in range(int(rounds)):
        with TemporaryDirectory() as folder:
            run_rounds(Path(folder), audio, float(seconds), [int(one) for one in streams])


if __name__ == "__main__":
    main()
