"""Two ways for audio to get there: SRTP over UDP, as telephones do, and a WebSocket, as browsers do."""

import asyncio
import base64
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

CLOSING_SILENCE_S = 1.0
"""Lets the VAD end the last utterance."""
VERSION_2 = 0x80
PAYLOAD_TYPE = 96
"""L16 at 16 kHz has no static number (RFC 3551, section 6): the first of the dynamic ones."""
CLOSED_WELL = 1000

Samples = NDArray[np.int16]


class Sender(Protocol):
    """Sends a recording in real time."""

    async def send(self, samples: Samples) -> None:
        """Send all of it.

        Raises:
            CallError: The other side cannot be reached, or hangs up.
        """


class SrtpSender:
    """Sends encrypted packets of 20 ms, and a second of silence behind them."""

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
        silence = np.zeros(round(CLOSING_SILENCE_S / FRAME_S) * FRAME_SAMPLES, np.int16)
        loop = asyncio.get_running_loop()
        with self._connect() as connection:
            begin = loop.time()
            for number, frame in enumerate(_frames(np.concatenate([samples, silence]))):
                await asyncio.sleep(begin + number * FRAME_S - loop.time())
                try:
                    connection.send(self._packet(frame))
                except OSError as error:
                    raise CallError(f"UDP to {self._place}: {error.strerror}") from None

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
    """Sends PCM16 at 16 kHz; the gateway makes packets of it."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    async def send(self, samples: Samples) -> None:
        loop = asyncio.get_running_loop()
        protocols = [websockets.Subprotocol(SUBPROTOCOL), websockets.Subprotocol(self._token)]
        try:
            async with websockets.connect(self._url, subprotocols=protocols, compression=None) as connection:
                begin = loop.time()
                for number, frame in enumerate(_frames(samples)):
                    await asyncio.sleep(begin + number * FRAME_S - loop.time())
                    await connection.send(frame.astype("<i2").tobytes())
                await connection.send(json.dumps({"type": "end"}))
                await connection.wait_closed()
        except websockets.ConnectionClosed as closed:
            raise CallError(f"{self._url} hangs up: {closed}") from None
        except (websockets.WebSocketException, OSError) as error:
            raise CallError(f"{self._url} lets no audio in: {error}") from None
        if connection.close_code != CLOSED_WELL:
            raise CallError(f"{self._url} hangs up: {connection.close_code} {connection.close_reason}")


def sender_of(session: Session) -> Sender:
    """Return what sends audio into a session, by the transport that it was opened for.

    Raises:
        CallError: It was opened for neither.
    """
    if session.media.websocket:
        return WebSocketSender(session.media.websocket, session.token)
    if session.media.srtp:
        return SrtpSender(session.media.srtp)
    raise CallError("the server offers neither SRTP nor a WebSocket")


def _frames(samples: Samples) -> list[Samples]:
    return np.split(samples, samples.size // FRAME_SAMPLES)
