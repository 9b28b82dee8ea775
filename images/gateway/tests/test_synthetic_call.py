"""A gateway's own call succeeds where its speech is transcribed, and fails otherwise."""

import asyncio
import json

import numpy as np
import pytest
from redis.asyncio import Redis

from images.conftest import StoreServer
from images.gateway.tests.running import BYE, GatewayProcess, Hosts, VadHost, holds
from images.gateway.tests.synthetic import caller
from images.gateway.tests.test_client_sockets import event, notices, only_ssrc, say, spoken
from voice_blueprint.contract.network import Tier
from voice_gateway import synthetic_call
from voice_runtime import state
from voice_runtime.transcripts import EventKind

METRIC = "SyntheticCallSucceeds"

pytestmark = pytest.mark.usefixtures("hosts")


def observed(lines: list[str]) -> list[float]:
    return [value[METRIC] for value in map(json.loads, lines) if METRIC in value]


@pytest.mark.parametrize(("text", "succeeds"), [("Please hold the line.", True), ("", False)])
async def test_a_call_needs_a_transcript(
    gateway: GatewayProcess, store_server: StoreServer, store: Redis, vad: VadHost, text: str, *, succeeds: bool
) -> None:
    lines: list[str] = []
    async with caller(gateway, store_server, lines) as own:
        calling = asyncio.create_task(own.make_call())
        ssrc = await only_ssrc(vad, store)
        await holds("the end of the audio", lambda: notices(vad, ssrc)[-1:] == [BYE])
        assert np.abs(vad.audio(ssrc)).max() > 5_000, "it is speech"
        await say(store, ssrc, *(spoken(1, text) if text else ()), event(EventKind.END, 100))
        assert await calling is succeeds
        assert not await store.zcard(state.build_caller_sessions_key(synthetic_call.CALLER_NAME)), (
            "the session is closed"
        )
    assert observed(lines) == [float(succeeds)]


async def test_a_synthetic_call_without_capacity_fails_but_is_not_counted_as_rejected(
    gateway: GatewayProcess, store_server: StoreServer, hosts: Hosts
) -> None:
    lines: list[str] = []
    hosts.put(Tier.ASR, "asr-1", slots=0)
    await hosts.beat()
    async with caller(gateway, store_server, lines) as own:
        assert not await own.make_call()
    assert observed(lines) == [0]
    assert "SessionsRefused" not in "".join(lines)


async def test_a_synthetic_call_fails_if_the_public_name_fails(
    gateway: GatewayProcess, store_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    async with caller(gateway, store_server, lines) as own:
        monkeypatch.setattr(own, "_url", "ws://127.0.0.1:1")
        assert not await own.make_call()
    assert observed(lines) == [0]
