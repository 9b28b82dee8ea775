"""Metrics for Prometheus scrapes, as on Azure."""

import re
import socket

import httpx2
from redis.asyncio import Redis

from images.conftest import StoreServer
from images.gateway.tests.running import NO_TLS, GatewayProcess, Hosts, VadHost, holds
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.contract.network import Tier
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore
from voice_sandbox.loopback import find_free_port


async def test_every_metric_can_be_requested(store: Redis, store_server: StoreServer) -> None:
    rtp_port, port = find_free_port(socket.SOCK_DGRAM), find_free_port()
    vad, hosts = VadHost(rtp_port), Hosts(store)
    hosts.put(Tier.ASR, "asr-1")
    hosts.put(Tier.VAD, "vad-1")
    gateway = GatewayProcess(store_server, rtp_port, PROMETHEUS_PORT=port).start()

    def shown() -> dict[str, float]:
        text = httpx2.get(f"http://127.0.0.1:{port}/metrics", verify=NO_TLS).text
        found = re.findall(r'^(\w+)\{Deployment="test",Fleet="gateway"\} (\S+)$', text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    try:
        with hosts.beating(store_server.settings):
            await (await gateway.ready()).accepts_callers()
            before = shown()["voice_sessions_created_total"]
            opened = await gateway.open()
            assert shown()["voice_sessions_created_total"] == before + 1
            async with opened.socket() as connection:
                await connection.send(bytes(32_000))
                await holds("audio leaves", lambda: len(vad.packets) > 30)
                said = Transcript(kind=EventKind.FINAL, utterance=0, text="yes", start_ms=0, end_ms=400)
                assert await TranscriptStore(store).publish(opened.ssrc, said, 1)
                await holds("the wait is seen", lambda: shown()["voice_time_to_final_count"] == 1)
                await holds("the socket is seen", lambda: shown()["voice_open_sockets"] >= 1)
            hosts.put(Tier.ASR, "asr-1", slots=0)
            await gateway.answers(503)
        seen = shown()
    finally:
        vad.stop()
        gateway.kill()
    assert seen["voice_sessions_refused_total"] >= 1
    ours = {metric.prometheus_name for metric in METRICS.values() if metric.publisher is Image.GATEWAY}
    assert ours == {name.removesuffix("_count") for name in seen} & ours
    assert not gateway.metric("OpenSockets"), "and the log has none of it"
