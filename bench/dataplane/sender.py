"""Sends RTP packets for many concurrent streams: `python -m bench.dataplane.sender ADDRESS PORT AUDIO STREAMS`.

Reads lines of the form `STREAMS SECONDS SPEED`, and responds to each line with statistics. SECONDS is the duration of
the audio, and SPEED is relative to real time. The kernel splits one large datagram into packets (UDP segmentation
offload), so that this program does not limit a measurement. If the program is too slow nevertheless, the response
contains the delay.
"""

import json
import socket
import sys
import time

import numpy as np

FRAME_BYTES = 640
TICK_S = 0.02
BATCH_PACKETS = 32
_UDP_SEGMENT = 103  # linux/udp.h
PACKET_DTYPE = np.dtype(
    [("version", "u1"), ("type", "u1"), ("sequence", ">u2"), ("time", ">u4"), ("ssrc", ">u4"), ("audio", "V640")]
)


def calculate_ssrc(stream: int) -> int:
    return 0x10000 + stream


class Sender:
    """Sends the packets of all streams, and keeps the position of each stream."""

    def __init__(self, address: tuple[str, int], audio: bytes, streams: int) -> None:
        self._frames = np.frombuffer(audio, "V640")
        self._stream = np.random.default_rng(1).permutation(streams)
        self._tick = np.zeros(streams, int)
        self._packets = np.zeros(streams, PACKET_DTYPE)
        self._packets["version"], self._packets["type"] = 0x80, 96
        self._packets["ssrc"] = calculate_ssrc(0) + self._stream
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, PACKET_DTYPE.itemsize)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        self._socket.connect(address)

    def _build_next_datagrams(self, streams: int) -> bytes:
        packets, tick = self._packets[:streams], self._tick[:streams]
        packets["sequence"] = tick & 0xFFFF
        packets["time"] = tick * (FRAME_BYTES // 2)
        packets["audio"] = self._frames[(tick + self._stream[:streams] * 37) % len(self._frames)]
        tick += 1
        return packets.tobytes()

    def run(self, streams: int, seconds: float, speed: float) -> dict[str, float]:
        """Send audio for a number of streams at even intervals, and return the statistics."""
        size = BATCH_PACKETS * PACKET_DTYPE.itemsize
        start, ticks, late = time.perf_counter(), round(seconds / TICK_S), 0.0
        for tick in range(ticks):
            packets = self._build_next_datagrams(streams)
            for at in range(0, len(packets), size):
                due = start + (tick + at / len(packets)) * TICK_S / speed
                ahead = due - time.perf_counter()
                if ahead > 0.0002:  # noqa: PLR2004
                    time.sleep(ahead)
                late = max(late, -ahead)
                self._socket.send(packets[at : at + size])
        return {"sent": streams * ticks, "seconds": time.perf_counter() - start, "late_s": late}


def main() -> None:
    """Process each line of standard input, and print the statistics."""
    address, port, audio, streams = sys.argv[1:]
    with open(audio, "rb") as file:  # noqa: PTH123
        sender = Sender((address, int(port)), file.read(), int(streams))
    for line in sys.stdin:
        count, seconds, speed = line.split()
        print(json.dumps(sender.run(int(count), float(seconds), float(speed))), flush=True)


if __name__ == "__main__":
    main()
