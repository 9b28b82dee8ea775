"""Makes calls through a VAD host's virtual machine. The gateway and the Whisper engine are processes on this machine.

A second virtual machine would be too slow on two cores (docs/guides/hosts.md). The engine process has the same settings
as the container in the launch template of the ASR fleet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np

from voice_blueprint.aws import names
from voice_blueprint.contract import network as contract
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Tier
from voice_ops.call.recording import read_samples
from voice_ops.call.senders import SrtpSender
from voice_ops.call.session import REQUEST_TIMEOUT_S, CallError, Session
from voice_ops.demo.command import SAMPLE_FILE, SAMPLE_TEXT_FILE, calculate_word_error_rate
from voice_ops.demo.command import find_weights as tiny_en
from voice_ops.demo.services import Gateway, VoicePath
from voice_sandbox.hosts.cloud import SimulatedCloud
from voice_sandbox.hosts.weights import WeightsServer

EVENTS_TIMEOUT_S = 120
"""Maximum time from the end of the audio to the end of the session events."""


class PeerServices(VoicePath):
    """Gateway and ASR engine as processes that use the hosts' state store. Each signs in as the user for its tier."""

    def __init__(self, cloud: SimulatedCloud, folder: Path) -> None:
        super().__init__(folder, tiny_en(None))
        self._cloud = cloud
        self.rtp_port = contract.RTP.number
        self._asr_group = names.build_group_name(cloud.deployment, cloud.deployment.aws.asr[0].name)
        self._stack = ExitStack()

    def start(self) -> Gateway:
        """Start the gateway and the engine, wait until they can accept calls, and return the gateway."""
        address = self._cloud.network.services_address
        gateway = self.start_gateway(VOICE_MEDIA_HOST=self._cloud.network.public_address)
        rendered = self._cloud.build_container_environment(self._asr_group, Image.WHISPER_ENGINE, "i-beside", address)
        weights = self._stack.enter_context(closing(WeightsServer(rendered["VOICE_MODEL"], self.model)))
        # Settings that differ from those of a container, such as names, secrets and disks.
        cache_settings = {"VOICE_CACHE_DIR": str(self.folder), "HF_ENDPOINT": f"http://127.0.0.1:{weights.port}"}
        self.start_engine(**rendered | self._build_store_settings(Tier.ASR) | cache_settings)
        self.wait_until_ready()
        self.wait_for_capacity(gateway)
        return gateway

    def stop(self) -> None:
        super().stop()
        self._stack.close()

    def _build_common_settings(self, host: str, fleet: str, address: str = "127.0.0.1") -> dict[str, str]:
        return super()._build_common_settings(host, fleet, address) | self._build_store_settings(fleet)

    def _build_store_settings(self, user: str) -> dict[str, str]:
        _, port = self._cloud.store.endpoint
        password = self.folder / f"{user}-password"
        password.touch(mode=0o600)
        password.write_text(self._cloud.store.get_password(user), encoding="utf-8")
        host = self.folder / "store-host"
        host.write_text(self._cloud.network.services_address, encoding="utf-8")
        return {
            "VOICE_VALKEY_HOST_FILE": str(host),
            "VOICE_VALKEY_PORT": str(port),
            "VOICE_VALKEY_USER": user,
            "VOICE_VALKEY_PASSWORD_FILE": str(password),
            "VOICE_VALKEY_TLS": "on",
            "VOICE_VALKEY_CA_FILE": str(self._cloud.authority.file),
        }


@dataclass(frozen=True)
class CallQuality:
    """Latency and word error rate for one call with the demo recording.

    Attributes:
        first_words_latency_s: Time from the first packet to the first words.
        word_error_rate: Share of words that are wrong, missing or additional.
    """

    first_words_latency_s: float
    word_error_rate: float


def _no_op() -> None:
    pass


async def transcribe_call(
    gateway: Gateway,
    during_stream: Callable[[], None] = _no_op,
    times: int = 1,
    target_address: str | None = None,
    sources: Sequence[str] = ("",),
) -> CallQuality:
    """Stream the demo's recording, wait for all transcripts, and return the measurements.

    Args:
        during_stream: Function that runs in another thread during the stream.
        times: Number of times that the recording is streamed, without pauses in between.
        target_address: Address to send to, bypassing the load balancer.
        sources: Source addresses, which are used one after another.

    Raises:
        CallError: The session is rejected, interrupted, or does not end.
    """
    finals: list[str] = []
    first: list[float] = []

    async def listen(session: Session, begin: float) -> None:
        async for event in session.stream_events():
            if event.text:
                first.append(time.monotonic() - begin)
            if event.kind == "final":
                finals.append(event.text)

    async with httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        session = await Session.open(client, gateway.url, "srtp")
        media = session.media.srtp
        if media is None:
            raise CallError("the gateway does not offer SRTP")
        listening = asyncio.create_task(listen(session, time.monotonic()))
        side_task = asyncio.create_task(asyncio.to_thread(during_stream))
        sender = SrtpSender(media.model_copy(update={"host": target_address or media.host}), sources)
        await sender.send(np.tile(read_samples(SAMPLE_FILE), times))
        await session.close()
        await asyncio.wait_for(listening, EVENTS_TIMEOUT_S)
        await side_task
    if not first:
        raise CallError("the caller received no transcript")
    return CallQuality(
        first[0],
        calculate_word_error_rate(" ".join([SAMPLE_TEXT_FILE.read_text(encoding="utf-8")] * times), " ".join(finals)),
    )
