"""Two ways for audio to get there: SRTP over UDP, as telephones do, and a WebSocket, as browsers do."""

import asyncio
import base64
import contextlib
import json
import secrets
import socket
import struct
from typing import Protocol

import numpy as np
import pylibsrtp
import websockets
from numpy.typing import NDArray

from ops.call.recording import FRAME_S, FRAME_SAMPLES
from ops.call.session import SUBPROTOCOL, CallError, Session, Srtp

VERSION_2 = 0x80
PAYLOAD_TYPE = 96
"""L16 at 16 kHz has no static number (RFC 3551, section 6): the first of the dynamic ones."""
CLOSED_WELL = 1000
REFUSALS = {1003, 1007, 1008, 1009}
"""What the same audio would be told again; behind anything else the session waits for its caller."""
SERVER_ERROR = 500
"""From here on another gateway may answer otherwise."""
CONNECTS = 10
PAUSE_S = 0.5
"""Before it connects again: ten times are less than the shortest grace period of a deployment file."""

Samples = NDArray[np.int16]


class Sender(Protocol):
    """Sends a recording in real time."""

    async def send(self, samples: Samples) -> None:
        """Send all of it.

        Raises:
            CallError: The other side cannot be reached, or hangs up.
        """


class SrtpSender:
    """Sends encrypted packets of 20 ms, and a goodbye behind them."""

    def __init__(self, media: Srtp) -> None:
        self._media = media
        policy = pylibsrtp.Policy(
            key=base64.b64decode(media.key),
            ssrc_type=pylibsrtp.Policy.SSRC_SPECIFIC,
            ssrc_value=media.ssrc,
            srtp_profile=pylibsrtp.Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
        )
        self._srtp = pylibsrtp.Session(policy)
        # Below 2^15, so that a lost first packet cannot confuse the rollover counter (RFC 3711, section 3.3.1).
        self._sequence = secrets.randbelow(1 << 15)
        self._timestamp = secrets.randbits(32)

    async def send(self, samples: Samples) -> None:
        loop = asyncio.get_running_loop()
        with self._connect() as connection:
            begin = loop.time()
            for number, frame in enumerate(_frames(samples)):
                await asyncio.sleep(begin + number * FRAME_S - loop.time())
                try:
                    connection.send(self._packet(frame))
                except OSError as error:
                    raise CallError(f"UDP to {self._place}: {error.strerror}") from None
            with contextlib.suppress(OSError):
                connection.send(self._goodbye())

    def _goodbye(self) -> bytes:
        """Return a receiver report without blocks, and BYE (RFC 3550, section 6)."""
        ssrc = self._media.ssrc
        return self._srtp.protect_rtcp(struct.pack(">BBHIBBHI", VERSION_2, 201, 1, ssrc, VERSION_2 | 1, 203, 1, ssrc))

    @property
    def _place(self) -> str:
        return f"{self._media.host}:{self._media.port}"

    def _connect(self) -> socket.socket:
        try:
            [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
                self._media.host, self._media.port, socket.AF_INET, socket.SOCK_DGRAM
            )
        except OSError as error:
            raise CallError(f"{self._media.host} has no address: {error.strerror}") from None
        connection = socket.socket(family, kind, protocol)
        connection.connect(address)
        return connection

    def _packet(self, frame: Samples) -> bytes:
        header = struct.pack(">BBHII", VERSION_2, PAYLOAD_TYPE, self._sequence, self._timestamp, self._media.ssrc)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._timestamp = (self._timestamp + FRAME_SAMPLES) & 0xFFFFFFFF
        return self._srtp.protect(header + frame.astype(">i2").tobytes())


class WebSocketSender:
    """Sends PCM16 at 16 kHz, over as many connections as it takes; the gateway makes packets of it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._url = session.media.websocket or ""
        self._begin = 0.0
        self._sent = 0
        self._was_let_in = False

    async def send(self, samples: Samples) -> None:
        frames, self._begin = _frames(samples), asyncio.get_running_loop().time()
        why = ""
        for _ in range(CONNECTS):
            try:
                connection = await self._connect(frames)
            except (websockets.WebSocketException, OSError) as error:
                # Whoever was let in before meets a restart or a gap in the network: that passes.
                if not self._was_let_in or _is_refusal(error):
                    raise CallError(f"{self._url} lets no audio in: {error}") from None
                why = str(error)
            else:
                if connection.close_code == CLOSED_WELL:
                    return
                why = f"{connection.close_code} {connection.close_reason}"
                if connection.close_code in REFUSALS:
                    break
            await asyncio.sleep(PAUSE_S)
        raise CallError(f"{self._url} hangs up: {why}")

    async def _connect(self, frames: list[Samples]) -> websockets.ClientConnection:
        """Send what has not been sent before, and return the connection once it is closed."""
        protocols = [websockets.Subprotocol(SUBPROTOCOL), websockets.Subprotocol(self._session.token)]
        async with websockets.connect(self._url, subprotocols=protocols, compression=None) as connection:
            self._was_let_in = True
            with contextlib.suppress(websockets.ConnectionClosed):
                for frame in frames[self._sent :]:
                    await asyncio.sleep(self._begin + self._sent * FRAME_S - asyncio.get_running_loop().time())
                    await connection.send(frame.astype("<i2").tobytes())
                    self._sent += 1
                await connection.send(json.dumps({"type": "end"}))
            await connection.wait_closed()
            return connection


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, websockets.InvalidStatus) and error.response.status_code < SERVER_ERROR


def sender_of(session: Session) -> Sender:
    """Return what sends audio into a session, by the transport that it was opened for.

    Raises:
        CallError: It was opened for neither.
    """
    if session.media.websocket:
        return WebSocketSender(session)
    if session.media.srtp:
        return SrtpSender(session.media.srtp)
    raise CallError("the server offers neither SRTP nor a WebSocket")


def _frames(samples: Samples) -> list[Samples]:
    return np.split(samples, samples.size // FRAME_SAMPLES)
