"""Sends audio over SRTP, as telephones do, or over a WebSocket, as browsers do."""

import asyncio
import base64
import contextlib
import json
import secrets
import socket
import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pylibsrtp
import websockets
from numpy.typing import NDArray

from voice_ops.call.recording import FRAME_S, SAMPLES_PER_FRAME
from voice_ops.call.session import SUBPROTOCOL, CallError, Session, SrtpParameters

RTP_VERSION_2 = 0x80
RTP_PAYLOAD_TYPE = 96
"""L16 at 16 kHz has no static payload type (RFC 3551, section 6), so this is the first dynamic one."""
NORMAL_CLOSURE_CODE = 1000
REJECTION_CLOSE_CODES = {1003, 1007, 1008, 1009}
"""Close codes after which the same audio would be rejected again. After all other codes, the session waits for a
reconnect."""
MIN_SERVER_ERROR_STATUS = 500
"""Minimum HTTP status code after which a retry may succeed, since another gateway may respond."""
MAX_CONNECTION_ATTEMPTS = 10
RECONNECT_PAUSE_S = 0.5
"""Pause before a reconnect. The sum of all pauses is shorter than the minimum grace period in deployment files."""

Samples = NDArray[np.int16]


class Sender(Protocol):
    """Sends a recording in real time."""

    async def send(self, samples: Samples) -> None:
        """Send all samples, and return when the last one has been sent.

        Raises:
            CallError: The server is unreachable, or closes the connection.
        """


class SrtpSender:
    """Sends encrypted packets of 20 ms, followed by BYE.

    Args:
        sources: Source addresses. Each sends an equal part of the audio from its own port, as if a NAT or a mobile
            network had changed the address. For an empty address, the operating system chooses one.
    """

    def __init__(self, media: SrtpParameters, sources: Sequence[str] = ("",)) -> None:
        self._media = media
        self._sources = sources
        policy = pylibsrtp.Policy(
            key=base64.b64decode(media.key),
            ssrc_type=pylibsrtp.Policy.SSRC_SPECIFIC,
            ssrc_value=media.ssrc,
            srtp_profile=pylibsrtp.Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
        )
        self._srtp = pylibsrtp.Session(policy)
        # Below 2^15, so that the loss of the first packet cannot desynchronize the rollover counter (RFC 3711, section
        # 3.3.1).
        self._sequence = secrets.randbelow(1 << 15)
        self._timestamp = secrets.randbits(32)

    async def send(self, samples: Samples) -> None:
        loop = asyncio.get_running_loop()
        frames = _split_into_frames(samples)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self._connect(source)) for source in self._sources]
            begin = loop.time()
            for number, frame in enumerate(frames):
                await asyncio.sleep(begin + number * FRAME_S - loop.time())
                try:
                    connections[number * len(connections) // len(frames)].send(self._build_next_packet(frame))
                except OSError as error:
                    raise CallError(f"UDP to {self._address}: {error.strerror}") from None
            with contextlib.suppress(OSError):
                connections[-1].send(self._build_bye_packet())

    def _build_bye_packet(self) -> bytes:
        """Return a receiver report without blocks, and BYE (RFC 3550, section 6)."""
        ssrc = self._media.ssrc
        return self._srtp.protect_rtcp(
            struct.pack(">BBHIBBHI", RTP_VERSION_2, 201, 1, ssrc, RTP_VERSION_2 | 1, 203, 1, ssrc)
        )

    @property
    def _address(self) -> str:
        return f"{self._media.host}:{self._media.port}"

    def _connect(self, source: str) -> socket.socket:
        try:
            [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
                self._media.host, self._media.port, socket.AF_INET, socket.SOCK_DGRAM
            )
        except OSError as error:
            raise CallError(f"cannot resolve {self._media.host}: {error.strerror}") from None
        connection = socket.socket(family, kind, protocol)
        connection.bind((source, 0))
        connection.connect(address)
        return connection

    def _build_next_packet(self, frame: Samples) -> bytes:
        header = struct.pack(
            ">BBHII", RTP_VERSION_2, RTP_PAYLOAD_TYPE, self._sequence, self._timestamp, self._media.ssrc
        )
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._timestamp = (self._timestamp + SAMPLES_PER_FRAME) & 0xFFFFFFFF
        return self._srtp.protect(header + frame.astype(">i2").tobytes())


class WebSocketSender:
    """Sends PCM16 at 16 kHz over a WebSocket, and reconnects if the connection breaks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._url = session.media.websocket or ""
        self._begin = 0.0
        self._sent = 0
        self._was_admitted = False

    async def send(self, samples: Samples) -> None:
        frames, self._begin = _split_into_frames(samples), asyncio.get_running_loop().time()
        reason = ""
        for _ in range(MAX_CONNECTION_ATTEMPTS):
            try:
                connection = await self._send_remaining_frames(frames)
            except (websockets.WebSocketException, OSError) as error:
                # If a connection was accepted before, the cause is a restart or a network failure, which is temporary.
                if not self._was_admitted or _is_rejected_handshake(error):
                    raise CallError(f"{self._url} refuses the audio connection: {error}") from None
                reason = str(error)
            else:
                if connection.close_code == NORMAL_CLOSURE_CODE:
                    return
                reason = f"{connection.close_code} {connection.close_reason}"
                if connection.close_code in REJECTION_CLOSE_CODES:
                    break
            await asyncio.sleep(RECONNECT_PAUSE_S)
        raise CallError(f"{self._url} closed the connection: {reason}")

    async def _send_remaining_frames(self, frames: list[Samples]) -> websockets.ClientConnection:
        """Send the remaining frames, and return the connection after it has been closed."""
        protocols = [websockets.Subprotocol(SUBPROTOCOL), websockets.Subprotocol(self._session.token)]
        async with websockets.connect(self._url, subprotocols=protocols, compression=None) as connection:
            self._was_admitted = True
            with contextlib.suppress(websockets.ConnectionClosed):
                for frame in frames[self._sent :]:
                    await asyncio.sleep(self._begin + self._sent * FRAME_S - asyncio.get_running_loop().time())
                    await connection.send(frame.astype("<i2").tobytes())
                    self._sent += 1
                await connection.send(json.dumps({"type": "end"}))
            await connection.wait_closed()
            return connection


def _is_rejected_handshake(error: Exception) -> bool:
    return isinstance(error, websockets.InvalidStatus) and error.response.status_code < MIN_SERVER_ERROR_STATUS


def create_sender(session: Session) -> Sender:
    """Return the sender for the transport of a session.

    Raises:
        CallError: The session has neither transport.
    """
    if session.media.websocket:
        return WebSocketSender(session)
    if session.media.srtp:
        return SrtpSender(session.media.srtp)
    raise CallError("the server offers neither SRTP nor a WebSocket")


def _split_into_frames(samples: Samples) -> list[Samples]:
    return np.split(samples, samples.size // SAMPLES_PER_FRAME)
