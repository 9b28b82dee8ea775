"""Sends plain RTP (RFC 3550) to the VAD tier, from a separate port for each session."""

import contextlib
import socket
import struct
import time

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES
from voice_gateway.fleet import Fleet
from voice_runtime.hosts import Host

RTP_VERSION_BITS = 0x80
PAYLOAD_TYPE = 96
"""First dynamic payload type, since L16 at 16 kHz has no static payload type (RFC 3551, section 6)."""

COMMIT, BYE = b"commit", b"bye"
"""Notices that are sent in place of a frame. ``COMMIT`` requests the transcript so far; ``BYE`` is the last packet."""
FRAME_MS = 20
_RTP_HEADER = struct.Struct(">BBHII")


def find_source_address(host: Host) -> str:
    """Return the source address of packets to a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host.address, 9))  # sends nothing
        address: str = probe.getsockname()[0]
        return address


def build_notice_packet(kind: bytes, ssrc: int) -> bytes:
    """Return the RTCP packet for ``COMMIT`` or ``BYE``: an empty receiver report, and APP or BYE (RFC 3550)."""
    report = struct.pack(">BBHI", RTP_VERSION_BITS, 201, 1, ssrc)
    if kind == COMMIT:
        return report + struct.pack(">BBHI4s", RTP_VERSION_BITS, 204, 2, ssrc, b"cmit")
    return report + struct.pack(">BBHI", RTP_VERSION_BITS | 1, 203, 1, ssrc)


def calculate_first_frame_number() -> int:
    """Return the number of a stream's first frame, which is derived from the time of day.

    The number is never ahead of the clock of the session's next socket.
    """
    # The first frame is sent one frame duration from now.
    return time.time_ns() // (FRAME_MS * 1_000_000) + 1


def calculate_rtp_timestamp(frame_number: int) -> int:
    """Return a frame's RTP timestamp."""
    return frame_number * CHUNK_FRAME_SAMPLES & 0xFFFFFFFF


def calculate_elapsed_ms(first: int, second: int) -> int:
    """Return the milliseconds from an RTP timestamp to a later timestamp, which may have wrapped around."""
    return ((second - first) & 0xFFFFFFFF) // CHUNK_FRAME_SAMPLES * FRAME_MS


class RtpSender:
    """The RTP stream of a session.

    Sequence numbers and timestamps start at the time of day. If a session's socket is reopened at another gateway, its
    numbers therefore continue after those of the frames already sent.
    """

    def __init__(self, ssrc: int, port: int, fleet: Fleet, frame_number: int) -> None:
        self._ssrc = ssrc
        self._port = port
        self._fleet = fleet
        self._host: Host | None = None
        self._frame = frame_number
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    @property
    def has_host(self) -> bool:
        return self._fleet.select_vad_host(self._host) is not None

    def send(self, payload: bytes) -> bool:
        """Send a frame or notice to the session's VAD host. Return False if no host is available."""
        self._host = self._fleet.select_vad_host(self._host)
        if self._host is None:
            return False
        if payload in {COMMIT, BYE}:
            packet = build_notice_packet(payload, self._ssrc)
        else:
            sequence, timestamp = self._frame & 0xFFFF, calculate_rtp_timestamp(self._frame)
            packet = _RTP_HEADER.pack(RTP_VERSION_BITS, PAYLOAD_TYPE, sequence, timestamp, self._ssrc) + payload
            self._frame += 1
        # A packet that the network rejects is lost, as on the rest of its path.
        with contextlib.suppress(OSError):
            self._socket.sendto(packet, (self._host.address, self._port))
        return True

    def close(self) -> None:
        """Close the port."""
        self._socket.close()
