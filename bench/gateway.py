"""What one gateway process takes for a call: `python -m bench.gateway [CALLS]`, 120 calls for 20 s.

Each call sends 20 ms of audio at a time and follows its events, of which there are none. Hosts say that they are there,
and nobody takes the packets. On a busy machine the process wakes up less often, and takes less for more lateness.
"""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import websockets
from websockets import Subprotocol

from bench.voice.processes import cpu_s
from blueprint.contract.network import Tier
from blueprint.contract.session_api import EVENTS_PATH, SESSIONS_PATH, TOKEN_HEADER
from ops.demo.services import LOOPBACK, Gateway, VoicePath
from ops.output import out
from voice_gateway.audio import SILENT_FRAME
from voice_gateway.pacer import FRAME_S
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.store import connect

SECONDS, SETTLE_S, HEARTBEAT_S = 20.0, 3.0, 0.5


async def _beat(registry: HostRegistry, host: Host) -> None:
    while True:
        await registry.beat(host)
        await asyncio.sleep(HEARTBEAT_S)


async def _talk(socket: websockets.ClientConnection) -> None:
    at = time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        at += FRAME_S
        await socket.send(SILENT_FRAME)


async def _follow(client: httpx2.AsyncClient, session: dict[str, str]) -> None:
    events, headers = EVENTS_PATH.format(id=session["id"]), {TOKEN_HEADER: session["token"]}
    async with client.stream("GET", events, headers=headers) as response:
        async for _ in response.aiter_bytes():
            pass


async def measure(path: VoicePath, gateway: Gateway, calls: int) -> float:
    """Return the CPU seconds that the gateway takes for a minute of a call."""
    store = connect(path.store_settings)
    running = []
    for tier, kind in ((Tier.ASR, HostKind.GPU), (Tier.VAD, HostKind.VAD)):
        host = Host(tier.value, kind, LOOPBACK, free_slots=2 * calls, draining=False, slots=2 * calls)
        running.append(asyncio.create_task(_beat(HostRegistry(store, tier), host)))
    await asyncio.to_thread(path.wait_for_capacity, gateway)
    limits = httpx2.Limits(max_connections=None)
    async with (
        contextlib.AsyncExitStack() as sockets,
        httpx2.AsyncClient(base_url=gateway.url, limits=limits, timeout=60) as client,
    ):
        for _ in range(calls):
            session = (await client.post(SESSIONS_PATH, json={"transport": "websocket"})).raise_for_status().json()
            offered = websockets.connect(
                session["media"]["websocket"],
                subprotocols=[Subprotocol("voice.v1"), session["token"]],
                compression=None,
            )
            running.append(asyncio.create_task(_talk(await sockets.enter_async_context(offered))))
            running.append(asyncio.create_task(_follow(client, session)))
        await asyncio.sleep(SETTLE_S)
        process = path.services["gateway"].process
        if process is None:
            raise SystemExit("the gateway does not run")
        before, begin = cpu_s(process.pid), time.monotonic()
        await asyncio.sleep(SECONDS)
        took = (cpu_s(process.pid) - before) / (time.monotonic() - begin) * 60 / calls
        if gone := sum(task.done() for task in running):
            raise SystemExit(
                f"{gone} of {len(running)} sockets and streams ended early: too many calls for this machine"
            )
        for task in running:
            task.cancel()
    await store.aclose()
    return took


def main() -> None:
    """Measure and print."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    with TemporaryDirectory() as folder, VoicePath(Path(folder), Path(folder)) as path:
        path.start_store().wait_ready()
        gateway = path.start_gateway()
        path.wait_ready()
        took = asyncio.run(measure(path, gateway, calls))
    out.print(f"{calls} calls: {took:.2f} s of a core for a minute of a call, {60 / took:.0f} calls a core")


if __name__ == "__main__":
    main()
