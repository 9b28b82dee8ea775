"""A call through a VAD host's machine: gateway and Whisper engine beside it are processes of this machine.

The caller sends to the host itself. A Network Load Balancer that keeps its clients' addresses changes the packets'
destination, and nothing else of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from blueprint.contract import network as contract
from ops.call.recording import read
from ops.call.senders import SrtpSender
from ops.call.session import TIMEOUT_S, CallError, Session
from ops.demo.command import SAMPLE, SAMPLE_TEXT, weights, word_error_rate
from ops.demo.services import Gateway, VoicePath
from sandbox.hosts.cloud import Cloud, Host

LAST_WORDS_S = 120
"""Longest from the end of the audio to the end of the session's events."""


class Neighbours(VoicePath):
    """Gateway and ASR host as processes that use the hosts' own store, each as its tier's user."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        super().__init__(folder, weights(None))
        self._cloud = cloud
        self.rtp_port, self.chunk_port = contract.RTP.number, contract.CHUNK.number

    def start(self, host: Host) -> Gateway:
        """Start both, for calls that go to one VAD host, and wait until sessions can be opened."""
        gateway = self.start_gateway(VOICE_MEDIA_HOST=host.address)
        self.start_engine(address=self._cloud.network.services)
        self.wait_ready()
        self.wait_for_capacity(gateway)
        return gateway

    def _shared(self, host: str, fleet: str, address: str = "127.0.0.1") -> dict[str, str]:
        _, port = self._cloud.store.endpoint
        password = self.folder / f"{fleet}-password"
        password.touch(mode=0o600)
        password.write_text(self._cloud.store.password(fleet), encoding="utf-8")
        return super()._shared(host, fleet, address) | {
            "VOICE_VALKEY_HOST": self._cloud.network.services,
            "VOICE_VALKEY_PORT": str(port),
            "VOICE_VALKEY_USER": fleet,
            "VOICE_VALKEY_PASSWORD_FILE": str(password),
            "VOICE_VALKEY_TLS": "on",
            "VOICE_VALKEY_CA_FILE": str(self._cloud.authority.file),
        }


@dataclass(frozen=True)
class Heard:
    """What one caller who spoke the demo's sample heard.

    Attributes:
        first_s: From the first packet to the first words.
        words_wrong: Share of words that are wrong, missing or too many.
    """

    first_s: float
    words_wrong: float


async def speak(gateway: Gateway, meanwhile: Callable[[], None] | None = None) -> Heard:
    """Speak the demo's sample and hear it out.

    Args:
        meanwhile: Done in another thread while the caller speaks.

    Raises:
        CallError: The session is refused, breaks off, or does not end.
    """
    finals: list[str] = []
    first: list[float] = []

    async def listen(session: Session, begin: float) -> None:
        async for event in session.follow():
            first.append(time.monotonic() - begin)
            if event.kind == "final":
                finals.append(event.text)

    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
        session = await Session.open(client, gateway.url, "srtp")
        if session.media.srtp is None:
            raise CallError("the gateway offers no SRTP")
        listening = asyncio.create_task(listen(session, time.monotonic()))
        beside = asyncio.create_task(asyncio.to_thread(meanwhile or (lambda: None)))
        await SrtpSender(session.media.srtp).send(read(SAMPLE))
        await session.close()
        await asyncio.wait_for(listening, LAST_WORDS_S)
        await beside
    if not first:
        raise CallError("the caller heard nothing")
    return Heard(first[0], word_error_rate(SAMPLE_TEXT.read_text(encoding="utf-8"), " ".join(finals)))
