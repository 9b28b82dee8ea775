"""Packets to the VAD tier, byte for byte."""

import socket
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from images.gateway.tests.running import FRAME_BYTES
from voice_gateway.rtp import (
    BYE,
    COMMIT,
    RtpSender,
    build_notice_packet,
    calculate_elapsed_ms,
    calculate_first_frame_number,
    calculate_rtp_timestamp,
    find_source_address,
)
from voice_runtime.hosts import Host, HostKind

SSRC = 0x12345678
HOST = Host("vad", HostKind.VAD, "127.0.0.1", 1, draining=False)
TIMEOUT_S = 30

EMPTY_REPORT = "80 c9 0001 12345678"
"""Version 2 without padding and report blocks, type 201, one word after the first (RFC 3550, section 6.4.2)."""
NOTICES = {
    COMMIT: f"{EMPTY_REPORT} 80 cc 0002 12345678 636d6974",  # APP with the name "cmit" (section 6.7)
    BYE: f"{EMPTY_REPORT} 81 cb 0001 12345678",  # BYE of one source (section 6.6)
}


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((HOST.address, 0))
        found.settimeout(TIMEOUT_S)
        yield found


def sender(receiver: socket.socket, frame_number: int = 1, *hosts: Host | None) -> RtpSender:
    fleet = Mock()
    fleet.select_vad_host.side_effect = hosts or None
    fleet.select_vad_host.return_value = HOST
    return RtpSender(SSRC, receiver.getsockname()[1], fleet, frame_number)


@pytest.mark.parametrize(("notice", "packet"), NOTICES.items())
def test_a_notice_is_a_compound_rtcp_packet(notice: bytes, packet: str) -> None:
    assert build_notice_packet(notice, SSRC) == bytes.fromhex(packet)


def test_frames_are_rtp_packets_and_notices_use_no_sequence_number(receiver: socket.socket) -> None:
    """RFC 3550, section 5.1: version 2, payload type 96, and 320 samples from each timestamp to the next."""
    frame = bytes(range(256)) * 2 + bytes(FRAME_BYTES - 512)
    sending = sender(receiver, frame_number=0x1_0000_FFFF)
    for payload in (frame, COMMIT, frame, BYE):
        assert sending.send(payload)
    packets = [receiver.recv(2048) for _ in range(4)]
    sending.close()
    assert packets == [
        bytes.fromhex(f"80 60 ffff {0x1_0000_FFFF * 320 % 2**32:08x} 12345678") + frame,
        bytes.fromhex(NOTICES[COMMIT]),
        bytes.fromhex(f"80 60 0000 {0x1_0001_0000 * 320 % 2**32:08x} 12345678") + frame,
        bytes.fromhex(NOTICES[BYE]),
    ]


def test_a_frame_is_kept_while_there_is_no_host(receiver: socket.socket) -> None:
    sending = sender(receiver, 7, None, HOST, HOST)
    assert not sending.send(b"first")
    assert sending.send(b"first")
    assert sending.send(b"second")
    packets = [receiver.recv(2048) for _ in range(2)]
    sending.close()
    assert [(packet[2:4], packet[12:]) for packet in packets] == [(b"\0\x07", b"first"), (b"\0\x08", b"second")]


def test_a_sender_stays_with_its_host(receiver: socket.socket) -> None:
    """The fleet decides with the current host, whether that may be kept."""
    fleet = Mock()
    fleet.select_vad_host.side_effect = [None, HOST, HOST, None]
    sending = RtpSender(SSRC, receiver.getsockname()[1], fleet, 1)
    assert not sending.has_host
    assert sending.send(b"frame")
    assert sending.has_host
    assert not sending.has_host
    sending.close()
    assert [call.args for call in fleet.select_vad_host.call_args_list] == [(None,), (None,), (HOST,), (HOST,)]


def test_a_packet_that_the_network_rejects_is_lost(receiver: socket.socket) -> None:
    sending = sender(receiver)
    assert sending.send(bytes(70_000)), "longer than a datagram"
    assert sending.send(b"next")
    assert receiver.recv(2048)[2:4] == b"\0\x02", "the lost frame has its sequence number"
    sending.close()


class FullSocket:
    """A socket whose buffer is full: a packet waits for room, or is rejected."""

    is_blocking = True

    def setblocking(self, flag: bool) -> None:
        self.is_blocking = flag

    def sendto(self, _: bytes, __: tuple[str, int]) -> int:
        assert not self.is_blocking, "all callers would wait"
        raise BlockingIOError


def test_a_full_buffer_loses_the_packet_and_does_not_delay_others(
    receiver: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_gateway.rtp.socket.socket", lambda *_: FullSocket())
    assert sender(receiver).send(b"frame")


@pytest.mark.parametrize(
    ("now_ns", "frame"),
    [(0, 1), (19_999_999, 1), (20_000_000, 2), (1_790_000_000_000_000_000, 89_500_000_001)],
)
def test_the_first_frame_is_the_next_of_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch, now_ns: int, frame: int
) -> None:
    """A frame lasts 20 ms, and the first one is complete one duration from now."""
    monkeypatch.setattr("voice_gateway.rtp.time.time_ns", lambda: now_ns)
    assert calculate_first_frame_number() == frame


@pytest.mark.parametrize(("frame", "timestamp"), [(0, 0), (1, 320), (13_421_772, 4_294_967_040), (13_421_773, 64)])
def test_an_rtp_timestamp_counts_samples_modulo_32_bits(frame: int, timestamp: int) -> None:
    assert calculate_rtp_timestamp(frame) == timestamp


@pytest.mark.parametrize(
    ("first", "second", "elapsed_ms"),
    [
        (0, 0, 0),
        (1000, 1319, 0),
        (1000, 1320, 20),
        (1000, 17_000, 1000),
        (2**32 - 320, 320, 40),
        (64, 64 - 320, 268_435_420),
    ],
)
def test_the_time_between_two_timestamps_counts_whole_frames_past_the_wrap(
    first: int, second: int, elapsed_ms: int
) -> None:
    assert calculate_elapsed_ms(first, second % 2**32) == elapsed_ms


def test_the_source_address_of_packets_to_this_machine_is_its_own() -> None:
    assert find_source_address(HOST) == "127.0.0.1"
