"""A host is drained during many calls, and no call is affected."""

import asyncio
import os
import signal

import httpx2
import pytest

from tests.voice.callers import Caller
from voice_blueprint.contract.network import Tier
from voice_ops.call.session import REQUEST_TIMEOUT_S
from voice_ops.demo.services import VoicePath
from voice_runtime.hosts import HostRegistry
from voice_runtime.store import connect

CALLERS = 50
SLOTS = 64
"""Slots of each host; one host could serve all calls."""
BEGIN_WITHIN_S = 4.0
"""Callers start within this time, so that their sentences are in different states when the host is drained."""
PAUSE_S = 6.0
"""Pause after each sentence, so that calls last until all have started."""
DRAINED_WITHIN_S = 130
ENDED_WITHIN_S = 150

REPEATS = int(os.environ.get("VOICE_REPEAT", "1"))
"""Number of repetitions; more in the nightly run."""


@pytest.mark.parametrize("repeat", range(REPEATS))
async def test_drained_asr_host_loses_no_final_of_50_live_streams(path: VoicePath, repeat: int) -> None:
    del repeat
    gateway = path.start_gateway()
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    leaving = path.services["asr-1"]
    async with asyncio.timeout(ENDED_WITHIN_S), httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        callers = [
            # Every second caller continues after a pause, when the remaining host has all sessions.
            await Caller.open(client, gateway.url, number, sentences=1 + number % 2, pause_s=PAUSE_S)
            for number in range(CALLERS)
        ]
        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate(callers):
                group.create_task(caller.call(number * BEGIN_WITHIN_S / CALLERS))
            await all_have_a_host(path)
            assert all(caller.is_speaking for caller in callers)
            code = await asyncio.to_thread(leaving.stop, signal.SIGTERM, DRAINED_WITHIN_S)
    assert code == 0, leaving.read_recent_output()
    assert "drained: 0 sessions are left to other hosts" in leaving.read_recent_output()
    for caller in callers:
        caller.check()


async def all_have_a_host(path: VoicePath) -> None:
    """Wait until the ASR hosts have reported every session, and assert that each has a share."""
    async with connect(path.store_settings) as store:
        registry = HostRegistry(store, Tier.ASR)
        while sum(taken := [SLOTS - host.free_slots for host in await registry.read_live_hosts()]) < CALLERS:
            await asyncio.sleep(0.1)
    assert min(taken) >= CALLERS // 5, f"to drain one of the hosts would say little: {taken}"
