"""Measures the cost per packet of rtpengine, a user-space relay, for comparison with the data plane.

Each stream is a call of rtpengine's `ng` protocol. The caller sends RTP or SRTP, and the callee receives plain RTP. The
measured value is the CPU time of rtpengine's process. rtpengine receives and sends through kernel sockets,
whereas the data plane's packets come from memory and are classified, processed and sent as chunks.
"""

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pylibsrtp
from rich.table import Table

from bench.dataplane.native import Measurement
from bench.dataplane.streams import BATCH_STREAMS
from voice_ops.output import create_table

NG_PORT = 22_222
LOOPBACK = "127.0.0.1"
STREAMS, TICKS, PACKETS_PER_S = 100, 150, 50
SRTP_PROFILES = {
    "": None,
    "AES_CM_128_HMAC_SHA1_80": pylibsrtp.Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
    "AEAD_AES_128_GCM": pylibsrtp.Policy.SRTP_PROFILE_AEAD_AES_128_GCM,
}
MEASUREMENT_GROUP = f"a packet of {STREAMS} streams through rtpengine in user space"
RELAY_ARGUMENTS = (
    "--foreground",
    "--table=-1",
    f"--interface={LOOPBACK}",
    f"--listen-ng={LOOPBACK}:{NG_PORT}",
    "--log-level=3",
    "--delete-delay=0",  # the ports of ended calls are free for the next round
)
THREAD_ARGUMENTS = ("--num-threads=1", "--port-min=30000", "--port-max=32000", "--log-stderr")


def _bencode(value: dict[str, object] | list[str] | str) -> bytes:
    if isinstance(value, dict):
        return b"d" + b"".join(_bencode(key) + _bencode(value[key]) for key in sorted(value)) + b"e"  # type: ignore[arg-type]
    if isinstance(value, list):
        return b"l" + b"".join(map(_bencode, value)) + b"e"
    return b"%d:%s" % (len(value.encode()), value.encode())


def _send_command(control: socket.socket, command: str, call: int, **more: object) -> str:
    """Send a command about a call, and return the response."""
    message = {"command": command, "call-id": f"bench-{call}", "from-tag": "caller"} | more
    control.send(b"%d-%s " % (call, command.encode()) + _bencode(message))
    return control.recv(65_536).decode()


def _send_description(control: socket.socket, command: str, call: int, sdp: str, **more: object) -> int:
    """Send an offer or an answer, and return the port in the response."""
    response = _send_command(control, command, call, sdp=sdp, ICE="remove", **more)
    _, media_line, media = response.partition("m=audio ")
    if not media_line:
        raise RuntimeError(f"rtpengine responded to a call with {response}")
    return int(media.split()[0])


def _build_sdp(port: int, suite: str, key: bytes) -> str:
    lines = ["v=0", f"o=- 1 1 IN IP4 {LOOPBACK}", "s=-", f"c=IN IP4 {LOOPBACK}", "t=0 0"]
    lines += [f"m=audio {port} RTP/{'SAVP' if suite else 'AVP'} 96", "a=rtpmap:96 L16/16000"]
    lines += [f"a=crypto:1 {suite} inline:{base64.b64encode(key).decode()}"] if suite else []
    return "".join(f"{line}\r\n" for line in lines)


class RelayedCall:
    """A call through rtpengine, with sockets for the caller and the callee."""

    def __init__(self, control: socket.socket, call: int, suite: str) -> None:
        self._control, self._call = control, call
        self.caller, self.callee = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for one in (self.caller, self.callee):
            one.bind((LOOPBACK, 0))
        profile = SRTP_PROFILES[suite]
        key = bytes(range(28 if suite.startswith("AEAD") else 30))
        offered = _build_sdp(self.caller.getsockname()[1], suite, key)
        _send_description(control, "offer", call, offered, **{"transport-protocol": "RTP/AVP"})
        answered = _build_sdp(self.callee.getsockname()[1], "", b"")
        self.caller.connect((LOOPBACK, _send_description(control, "answer", call, answered, **{"to-tag": "callee"})))
        self.callee.setblocking(False)
        self._srtp = pylibsrtp.Session(
            pylibsrtp.Policy(key, pylibsrtp.Policy.SSRC_SPECIFIC, call + 1, srtp_profile=profile)
        ) if profile else None  # fmt: skip
        self._ssrc = (call + 1).to_bytes(4)

    def send(self, tick: int) -> None:
        packet = bytes((0x80, 96)) + tick.to_bytes(2) + (320 * tick).to_bytes(4) + self._ssrc + bytes(640)
        self.caller.send(self._srtp.protect(packet) if self._srtp else packet)

    def receive_packets(self) -> int:
        count = 0
        with ExitStack() as stack:
            stack.callback(self.callee.setblocking, False)
            try:
                while True:
                    self.callee.recv(2048)
                    count += 1
            except BlockingIOError:
                return count

    def close(self) -> None:
        _send_command(self._control, "delete", self._call)
        self.caller.close()
        self.callee.close()


@contextmanager
def _run_relay() -> Iterator[int]:
    process = subprocess.Popen(["rtpengine", *RELAY_ARGUMENTS, *THREAD_ARGUMENTS])  # noqa: S603, S607
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _read_cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure_packet_ns(process: int, control: socket.socket, suite: str, first: int) -> float:
    streams = [RelayedCall(control, first + n, suite) for n in range(STREAMS)]
    try:
        relayed_packets, before = 0, _read_cpu_s(process)
        for tick in range(TICKS):
            for stream in streams:
                stream.send(tick)
            relayed_packets += sum(stream.receive_packets() for stream in streams)
        time.sleep(0.5)
        relayed_packets += sum(stream.receive_packets() for stream in streams)
        if relayed_packets < 0.99 * STREAMS * TICKS:
            raise RuntimeError(f"rtpengine relayed {relayed_packets} of {STREAMS * TICKS} packets")
        return (_read_cpu_s(process) - before) * 1e9 / relayed_packets
    finally:
        for stream in streams:
            stream.close()


def measure_rtpengine(rounds: int) -> list[Measurement]:
    """Measure rtpengine with plain RTP and with each SRTP suite.

    Raises:
        RuntimeError: rtpengine rejects a call, or loses packets.
    """
    costs: dict[str, list[float]] = {suite: [] for suite in SRTP_PROFILES}
    with _run_relay() as process, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.connect((LOOPBACK, NG_PORT))
        control.settimeout(10)
        time.sleep(1)
        for turn in range(rounds):
            for index, suite in enumerate(SRTP_PROFILES):
                first = (turn * len(SRTP_PROFILES) + index) * STREAMS
                costs[suite].append(_measure_packet_ns(process, control, suite, first))
    return [Measurement(MEASUREMENT_GROUP, suite or "RTP", "ns", tuple(ns)) for suite, ns in costs.items()]


def build_comparison_table(costs: Sequence[Measurement], ceiling: Sequence[Measurement]) -> Table:
    """Return a table of packets per core for rtpengine and the data plane in the same run."""
    rendered = create_table(
        f"{MEASUREMENT_GROUP}, {len(costs[0].rounds)} rounds", [""], ["packets a core", "the data plane's", "times"]
    )
    groups = dict.fromkeys(one.group for one in ceiling if one.group.startswith(f"{BATCH_STREAMS} "))
    for one, group in zip(costs, groups, strict=True):
        (streams,) = (each.median for each in ceiling if (each.group, each.name) == (group, "with shipping"))
        relayed, own_rate = 1e9 / one.median, streams * PACKETS_PER_S
        rendered.add_row(one.name, f"{relayed:,.0f}", f"{own_rate:,.0f}", f"{own_rate / relayed:.2f}")
    return rendered
