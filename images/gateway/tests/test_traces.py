"""Traces that a collector receives for a call: real OTLP over a local port."""

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from redis.asyncio import Redis

from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Opened, VadHost, holds
from voice_gateway.traces import derive_trace_id
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore

pytestmark = pytest.mark.usefixtures("hosts")
FRAMES = 30
CALLS = 4
MAX_OFF_MS = 20
STAGES_MS = {"ingest": 1.0, "queue": 2.0, "encode": 3.0, "decode": 4.0}


class Collector:
    """Receives spans like an OpenTelemetry collector."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, opened: Opened) -> dict[str, Span]:
        whose = derive_trace_id(opened.id).to_bytes(16, "big")
        return {span.name: span for span in self.spans if span.trace_id == whose}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


def milliseconds(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6


def reported_ms(spans: dict[str, Span]) -> float:
    return (spans["deliver"].end_time_unix_nano - spans["utterance"].start_time_unix_nano) / 1e6


async def call(gateway: GatewayProcess, vad: VadHost, store: Redis) -> tuple[Opened, float]:
    """Say an utterance, and return the milliseconds from its last packet to its final event on the event stream."""
    opened = await gateway.open()
    async with opened.stream() as events, opened.socket() as connection:
        await connection.send(bytes(640 * FRAMES))
        packets = await vad.heard(opened.ssrc, FRAMES)
        times = {"utterance": 1, "start_ms": 20, "end_ms": FRAMES * 20}
        for kind in (EventKind.SPEECH_STARTED, EventKind.SPEECH_STOPPED):
            await TranscriptStore(store).publish(opened.ssrc, Transcript(kind=kind, **times))
        said = Transcript(kind=EventKind.FINAL, text="yes", stages_ms=STAGES_MS, **times)
        await TranscriptStore(store).publish(opened.ssrc, said)
        await events.transcripts(1)
        return opened, 1000 * (time.monotonic() - packets[-1].at)


async def test_call_is_one_trace_with_consistent_stages(
    start: Start, vad: VadHost, store: Redis, collector: Collector
) -> None:
    gateway = await (await start(TRACE_COLLECTOR=collector.url, TRACED_SHARE=1).ready()).accepts_callers()
    calls = [await call(gateway, vad, store) for _ in range(CALLS)]
    gateway.terminate()
    assert gateway.wait() == 0
    await holds("spans come", lambda: all("call" in collector.of(opened) for opened, _ in calls))
    spans = collector.of(calls[0][0])
    stages = ["vad end, ship", *STAGES_MS, "commit"]
    assert set(spans) == {"call", "admit", "first packet", "utterance", "deliver", *stages}
    whole = spans["utterance"]
    assert abs(time.time_ns() - whole.start_time_unix_nano) < 3600e9, "nanoseconds since 1970"
    assert sum(milliseconds(spans[stage]) for stage in stages) == pytest.approx(milliseconds(whole), abs=1)
    for stage, took_ms in STAGES_MS.items():
        assert milliseconds(spans[stage]) == pytest.approx(took_ms, abs=0.1)
        assert spans[stage].parent_span_id == whole.span_id
    for name in ("admit", "first packet", "utterance", "deliver"):
        assert spans[name].parent_span_id == spans["call"].span_id
    # Other load on the machine delays either side, so the closest of several calls counts.
    assert min(abs(reported_ms(collector.of(opened)) - saw_ms) for opened, saw_ms in calls) < MAX_OFF_MS


async def test_call_at_another_gateway_continues_its_trace(start: Start, vad: VadHost, collector: Collector) -> None:
    settings = {"TRACE_COLLECTOR": collector.url, "TRACED_SHARE": 1}
    first = await (await start(**settings, DRAIN_TIMEOUT_S=0).ready()).accepts_callers()
    second = await (await start(**settings).ready()).accepts_callers()
    opened = await first.open()
    async with opened.socket() as connection:
        await connection.send(bytes(640 * FRAMES))
        await vad.heard(opened.ssrc, FRAMES)
        first.terminate()
        await connection.wait_closed()
    async with opened.at(second).socket() as connection:
        await connection.send(bytes(640 * FRAMES))
        await vad.heard(opened.ssrc, 2 * FRAMES)
    second.terminate()
    await holds("both gateways tell", lambda: [span.name for span in collector.spans].count("call") == 2)
    assert {span.trace_id for span in collector.spans} == {derive_trace_id(opened.id).to_bytes(16, "big")}


async def test_unsampled_calls_export_no_spans(start: Start, vad: VadHost, store: Redis, collector: Collector) -> None:
    gateway = await (await start(TRACE_COLLECTOR=collector.url, TRACED_SHARE=0).ready()).accepts_callers()
    await call(gateway, vad, store)
    gateway.terminate()
    assert gateway.wait() == 0
    assert collector.spans == []
