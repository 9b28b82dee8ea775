"""Faults during speech: no final is lost or repeated, and no call hangs."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tests.voice.callers import Caller, Transport, check_together
from tests.voice.relay import LOSS_SHARE, load_balancer, lossy_network
from voice_ops.call.session import REQUEST_TIMEOUT_S
from voice_ops.demo.services import VoicePath
from voice_sandbox.loopback import find_free_port

CALLERS = 4
ENDED_WITHIN_S = 120
LOSSY_ERROR_RATE = 0.3
"""Maximum word error rate of all callers, if 5 % of the audio or the audio in transit at a reset is lost."""


@asynccontextmanager
async def calls(
    server: str, transport: Transport = "websocket", *, through: int | None = None
) -> AsyncIterator[list[Caller]]:
    """Run a few calls during the scope, and wait until they have read all of their transcripts.

    Args:
        through: Port that forwards audio to the gateway.
    """
    async with asyncio.timeout(ENDED_WITHIN_S), httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        callers = [await Caller.open(client, server, number, transport=transport) for number in range(CALLERS)]
        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate(callers):
                if through:
                    caller.send_through(through)
                group.create_task(caller.call(after_s=number * 0.5))
            yield callers


async def first_final(callers: list[Caller]) -> None:
    """Wait until a caller has received a transcript."""
    while not any(caller.finals for caller in callers):
        await asyncio.sleep(0.05)


async def test_killed_asr_host_loses_no_final(path: VoicePath) -> None:
    gateway = path.start_gateway()
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    async with calls(gateway.url) as callers:
        await asyncio.sleep(3)
        await asyncio.to_thread(path.services["asr-1"].stop, signal.SIGKILL)
    for caller in callers:
        caller.check()


async def test_restarted_store_loses_no_final(path: VoicePath) -> None:
    gateway = path.start_gateway()
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    async with calls(gateway.url) as callers:
        await first_final(callers)
        await asyncio.to_thread(path.services["store"].stop)
        await asyncio.sleep(2)
        path.services["store"].start()
    for caller in callers:
        caller.check()


async def test_killed_gateway_loses_no_final(path: VoicePath) -> None:
    """Audio is sent over SRTP; the event stream is resumed at another gateway with `Last-Event-ID`."""
    ports = {name: find_free_port() for name in ("gateway-1", "gateway-2")}
    for name, port in ports.items():
        gateway = path.start_gateway(name, port)
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    public = find_free_port()
    async with load_balancer(public, list(ports.values())), calls(f"http://127.0.0.1:{public}", "srtp") as callers:
        await first_final(callers)
        await asyncio.to_thread(path.services["gateway-1"].stop, signal.SIGKILL)
    for caller in callers:
        caller.check()


async def test_reset_connection_in_the_middle_of_a_word_loses_no_final(whole_path: VoicePath) -> None:
    """All connections are reset repeatedly, like by a network change or a restarting load balancer."""
    public, behind = find_free_port(), find_free_port()
    gateway = whole_path.start_gateway(VOICE_MEDIA_PORT=str(behind))
    whole_path.wait_until_ready()
    whole_path.wait_for_capacity(gateway)
    async with load_balancer(public, [behind]) as passing, calls(gateway.url, through=public) as callers:
        for _ in range(3):
            await asyncio.sleep(1.7)
            passing.reset()
    assert passing.was_reset >= CALLERS
    check_together(callers, LOSSY_ERROR_RATE)


async def test_lossy_network_loses_no_final(whole_path: VoicePath) -> None:
    """5 % of the RTP packets to the VAD stage are lost, and others are reordered."""
    sent_to = find_free_port()
    gateway = whole_path.start_gateway(VOICE_RTP_PORT=str(sent_to))
    whole_path.wait_until_ready()
    whole_path.wait_for_capacity(gateway)
    async with lossy_network(sent_to, whole_path.rtp_port) as network, calls(gateway.url) as callers:
        pass
    assert LOSS_SHARE / 2 < network.lost / (network.passed + network.lost + network.late) < 2 * LOSS_SHARE
    assert network.late > 0
    check_together(callers, LOSSY_ERROR_RATE)
