"""Measures the CPU time of a gateway process per call: `python -m bench.gateway [CALLS]`.

Each call sends 20 ms of audio at a time and reads its event stream, which remains empty. The simulated hosts send
heartbeats, but do not receive packets. On a busy machine, the process wakes up less often, so it uses less CPU time but
causes more delay. The cost of traces is measured separately, since this cost is smaller than the difference between two
runs of a gateway.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import websockets
from websockets import Subprotocol

from bench.goals import Goal, report_goals
from bench.voice.processes import measure_process_cpu_s
from voice_blueprint.capacity.bounds import GATEWAY_CPU_S_PER_MINUTE, RELATIVE_CORE_SPEED
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import EVENTS_PATH, SESSIONS_PATH, TOKEN_HEADER
from voice_blueprint.file.model.edge import CallerSettings
from voice_gateway.audio import SILENT_FRAME
from voice_gateway.pacer import FRAME_S
from voice_gateway.traces import TRACED_STAGES, CallTracer
from voice_ops.demo.services import LOOPBACK, Gateway, VoicePath
from voice_ops.output import out
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.store import connect
from voice_runtime.tasks import cancel_tasks
from voice_runtime.transcripts import EventKind, Transcript

MEASUREMENT_S, SETTLE_S, HEARTBEAT_S = 20.0, 3.0, 0.5
TRACED_CALLS, UTTERANCES = 400, 12
"""Number of traced calls, and number of utterances in each one-minute call."""
COLLECTOR_SCRIPT = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def _send_heartbeats(registry: HostRegistry, host: Host) -> None:
    while True:
        await registry.send_heartbeat(host)
        await asyncio.sleep(HEARTBEAT_S)


async def _send_speech(socket: websockets.ClientConnection) -> None:
    at = time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        at += FRAME_S
        await socket.send(SILENT_FRAME)


async def _receive_events(client: httpx2.AsyncClient, session: dict[str, str]) -> None:
    events, headers = EVENTS_PATH.format(id=session["id"]), {TOKEN_HEADER: session["token"]}
    async with client.stream("GET", events, headers=headers) as response:
        async for _ in response.aiter_bytes():
            pass


async def measure_gateway_cpu_s(path: VoicePath, gateway: Gateway, calls: int) -> float:
    """Run a number of calls, and return the gateway's CPU seconds per call minute."""
    store = connect(path.store_settings)
    running = []
    for tier, kind in ((Tier.ASR, HostKind.GPU), (Tier.VAD, HostKind.VAD)):
        host = Host(tier.value, kind, LOOPBACK, free_slots=2 * calls, draining=False, slots=2 * calls)
        running.append(asyncio.create_task(_send_heartbeats(HostRegistry(store, tier), host)))
    await asyncio.to_thread(path.wait_for_capacity, gateway)
    limits = httpx2.Limits(max_connections=None)
    async with (
        contextlib.AsyncExitStack() as sockets,
        httpx2.AsyncClient(base_url=gateway.url, limits=limits, timeout=60) as client,
    ):
        try:
            for _ in range(calls):
                session = (await client.post(SESSIONS_PATH, json={"transport": "websocket"})).raise_for_status().json()
                offered = websockets.connect(
                    session["media"]["websocket"],
                    subprotocols=[Subprotocol("voice.v1"), session["token"]],
                    compression=None,
                )
                running.append(asyncio.create_task(_send_speech(await sockets.enter_async_context(offered))))
                running.append(asyncio.create_task(_receive_events(client, session)))
            await asyncio.sleep(SETTLE_S)
            process = path.services["gateway"].process
            if process is None:
                raise SystemExit("the gateway does not run")
            before, begin = measure_process_cpu_s(process.pid), time.monotonic()
            await asyncio.sleep(MEASUREMENT_S)
            durations = (measure_process_cpu_s(process.pid) - before) / (time.monotonic() - begin) * 60 / calls
            if closed := sum(task.done() for task in running):
                raise SystemExit(
                    f"{closed} of {len(running)} sockets and streams closed early: too many calls for this machine"
                )
        finally:
            await cancel_tasks(running)
            # Sockets that an overloaded machine has closed are reported once, not with a traceback each.
            await asyncio.gather(*running, return_exceptions=True)
    await store.aclose()
    return durations


def measure_tracing_cpu_s() -> float:
    """Return the CPU seconds for recording and sending the traces of a one-minute call."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR_SCRIPT], stdout=subprocess.PIPE, text=True) as collector:  # noqa: S603
        port = collector.stdout.readline().strip() if collector.stdout else ""
        sent = CallTracer(f"http://{LOOPBACK}:{port}/v1/traces", 1, "bench")
        stages_ms = dict.fromkeys(TRACED_STAGES, 1.0)
        start_cpu_s = time.process_time()
        for number in range(TRACED_CALLS):
            session = Session(
                number, str(number), SessionState.OPEN, SessionKind.GATEWAY, "bench", int(time.time()) + 60
            )
            if not (call := sent.begin(session, time.monotonic())):
                raise SystemExit("every call must be traced")
            for utterance in range(UTTERANCES):
                now = time.monotonic()
                final = Transcript(
                    kind=EventKind.FINAL, utterance=utterance, start_ms=0, end_ms=20, stages_ms=stages_ms
                )
                call.add_utterance(final, now, now, now)
                call.add_span("deliver", now, now, utterance=str(utterance))
            sent.end(session)
        sent.close()
        durations = time.process_time() - start_cpu_s
        collector.kill()
    return durations / TRACED_CALLS


MAX_TRACING_CPU_PERCENT = 2.0
TRACED_SHARE: float = CallerSettings.model_fields["traced_share"].default


def main() -> None:
    """Measure the calls and the traces, and print the goals."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    with TemporaryDirectory() as folder, VoicePath(Path(folder), Path(folder)) as path:
        path.start_store().wait_until_ready()
        gateway = path.start_gateway()
        path.wait_until_ready()
        durations = asyncio.run(measure_gateway_cpu_s(path, gateway, calls))
    out.print(f"{calls} calls: {durations:.2f} s of a core for a minute of a call, {60 / durations:.0f} calls a core")
    traced = measure_tracing_cpu_s()
    out.print(
        f"traces of every call, {UTTERANCES} utterances a minute: {traced:.4f} s, {traced / durations:.1%}; "
        f"{TRACED_SHARE:.0%} of the calls are traced by default"
    )
    report_goals(
        (
            Goal(
                "core for a minute of a call, as planned for",
                durations,
                GATEWAY_CPU_S_PER_MINUTE / RELATIVE_CORE_SPEED,
                " s",
            ),
            Goal("traces, of that", 100 * TRACED_SHARE * traced / durations, MAX_TRACING_CPU_PERCENT, " %"),
        )
    )


if __name__ == "__main__":
    main()
