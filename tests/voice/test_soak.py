"""Memory is constant during calls and invalid traffic for the duration of VOICE_SOAK_S."""

import asyncio
import os
import random
import socket
import time
from pathlib import Path

import httpx2
import pytest

from tests.nonempty import nonempty
from tests.voice.callers import Caller
from voice_blueprint.contract.chunk import CHUNK_HEADER, CHUNK_PAYLOAD_BYTES
from voice_blueprint.contract.session_api import SESSIONS_PATH
from voice_ops.call.session import REQUEST_TIMEOUT_S
from voice_ops.demo.services import LOOPBACK, Gateway, VoicePath

SOAK_S = float(os.environ.get("VOICE_SOAK_S", "300"))
CALLERS = 6
ENDED_WITHIN_S = 120
MIN_ROUNDS = 9
REFUSED_PER_ROUND = 500
MAX_GROWTH = 0.03
"""Permitted growth of a program's memory, from the maximum in the middle third of the soak to the minimum in the last
third: an allocator varies in steps of 5 %, and a leak per call only grows."""


@pytest.mark.nightly
@pytest.mark.timeout(SOAK_S + 900)
async def test_memory_of_every_program_is_flat(path: VoicePath) -> None:
    gateway = path.start_gateway()
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    samples: list[dict[str, float]] = []
    begin = time.monotonic()
    while len(samples) < MIN_ROUNDS or time.monotonic() - begin < SOAK_S:
        await _round(path, gateway)
        samples.append(
            {name: _resident_mib(service.process.pid) for name, service in path.services.items() if service.process}
        )
    middle, end = samples[len(samples) // 3 : -(len(samples) // 3)], samples[-(len(samples) // 3) :]
    for name in nonempty(path.services):
        before, after = max(sample[name] for sample in middle), min(sample[name] for sample in end)
        assert after < before * (1 + MAX_GROWTH), f"{name}: {[round(sample[name], 1) for sample in samples]} MiB"


async def _round(path: VoicePath, gateway: Gateway) -> None:
    async with asyncio.timeout(ENDED_WITHIN_S), httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        callers = [
            await Caller.open(client, gateway.url, number, sentences=1, pause_s=1.0) for number in range(CALLERS)
        ]
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(caller.call())
            group.create_task(_disturb(path, client, gateway))
    for caller in callers:
        caller.check()


async def _disturb(path: VoicePath, client: httpx2.AsyncClient, gateway: Gateway) -> None:
    """Send invalid input to every tier."""
    noise = random.Random(1)  # noqa: S311 - audio of an unknown sender
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(REFUSED_PER_ROUND):
            unknown = CHUNK_HEADER.pack(noise.getrandbits(32), 0, 0, 1, 0, 10) + bytes(CHUNK_PAYLOAD_BYTES)
            for port, datagram in (
                (path.chunk_port, unknown),
                (path.chunk_port, noise.randbytes(noise.randrange(100))),
                (path.rtp_port, bytes([0x80, 0]) + noise.randbytes(650)),
                (path.rtp_port, noise.randbytes(noise.randrange(100))),
            ):
                sender.sendto(datagram, (LOOPBACK, port))
            await asyncio.sleep(0.004)
    for token in ("", "Bearer nobody's"):
        answer = await client.get(f"{gateway.url}{SESSIONS_PATH}/s1/events", headers={"Authorization": token})
        assert answer.is_client_error
    answer = await client.post(gateway.url + SESSIONS_PATH, content=b"{" * 10_000)
    assert answer.is_client_error


def _resident_mib(pid: int) -> float:
    """Return the memory of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + sum(map(_resident_mib, map(int, children)))
