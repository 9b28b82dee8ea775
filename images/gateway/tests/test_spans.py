"""Spans of traced calls, as an exporter receives them; test_traces.py covers the export over OTLP."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from voice_gateway import traces
from voice_gateway.traces import CallTrace, CallTracer, EpochClock
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.transcripts import EventKind, Transcript

BEGAN_S = 100.0
"""Time of the event loop at which every call is admitted here."""
EPOCH_S = 1_790_000_000
"""Seconds since 1970 at that time."""
SESSION = Session(
    ssrc=7, id="s7", state=SessionState.OPEN, kind=SessionKind.GATEWAY, caller="shop", expires_at=2_000_000_000
)
OTHER = replace(SESSION, ssrc=8, id="s8")

Times = tuple[float, float]


class Collector:
    """Receives the spans of a tracer.

    Attributes:
        tracer: The tracer.
    """

    def __init__(self, share: float) -> None:
        self._exporter = InMemorySpanExporter()
        self.endpoints: list[str] = []
        self._patched = pytest.MonkeyPatch()
        self._patched.setattr(traces, "OTLPSpanExporter", self._export_to)
        self._patched.setattr(
            traces,
            "time",
            SimpleNamespace(
                monotonic=lambda: BEGAN_S,
                monotonic_ns=lambda: int(BEGAN_S * 1e9),
                time_ns=lambda: EPOCH_S * 10**9,
            ),
        )
        self.tracer = CallTracer("http://collector.test", share, "shop-deployment")

    def _export_to(self, endpoint: str) -> InMemorySpanExporter:
        self.endpoints.append(endpoint)
        return self._exporter

    def spans(self) -> list[ReadableSpan]:
        """Return all spans in the order in which they ended, and end the tracer."""
        self.tracer.close()
        self._patched.undo()
        return list(self._exporter.get_finished_spans())

    def times(self) -> dict[str, Times]:
        """Return the seconds from the admission to the begin and the end of each span."""
        return {span.name: (seconds(span.start_time), seconds(span.end_time)) for span in self.spans()}

    def begin(self, session: Session = SESSION) -> CallTrace:
        """Begin a sampled call that was requested half a second before."""
        call = self.tracer.begin(session, BEGAN_S - 0.5)
        assert call is not None
        return call


def seconds(epoch_ns: int | None) -> float:
    assert epoch_ns is not None
    return round((epoch_ns - EPOCH_S * 10**9) / 1e9, 6)


def final(**stages_ms: float) -> Transcript:
    return Transcript(kind=EventKind.FINAL, utterance=5, start_ms=100, end_ms=600, stages_ms=stages_ms)


def test_a_call_begins_with_its_request_and_ends_with_its_socket() -> None:
    """Times are nanoseconds since 1970 (OTLP), and the trace's id begins the hash of the session's (README)."""
    collector = Collector(share=1)
    collector.begin()
    began_ns = time.time_ns()
    collector.tracer.end(SESSION)
    admit, call = collector.spans()
    assert (admit.name, call.name) == ("admit", "call")
    assert [seconds(each) for each in (call.start_time, admit.start_time, admit.end_time)] == [-0.5, -0.5, 0.0]
    assert call.end_time is not None
    assert abs(call.end_time - began_ns) < 3600e9
    assert dict(call.attributes or {}) == {"session": "s7"}
    assert call.context is not None
    assert admit.parent is not None
    assert admit.parent.span_id == call.context.span_id
    assert f"{call.context.trace_id:032x}" == "13d28fed9becbe6637ef6b017fbefef7"
    resource = call.resource.attributes
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("voice-gateway", "shop-deployment")
    assert collector.endpoints == ["http://collector.test"]


def test_times_are_exact_long_after_the_start_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock counts from the machine's start, here for a month."""
    started_s = 30 * 86_400
    clock = SimpleNamespace(monotonic_ns=lambda: started_s * 10**9, time_ns=lambda: EPOCH_S * 10**9)
    monkeypatch.setattr(traces, "time", clock)
    assert EpochClock().to_epoch_ns(started_s + 0.5) == EPOCH_S * 10**9 + 500_000_000


def test_the_stages_of_an_utterance_follow_each_other_until_its_final_is_read() -> None:
    """The engine's stages end with the transcript; the rest before them is the way of the last chunk to the engine."""
    collector = Collector(share=1)
    stages_ms = {"decode": 40.0, "ingest": 10.0, "other": 999.0, "encode": 30.0, "queue": 20.0}
    collector.begin().add_utterance(final(**stages_ms), sent_at=101.0, last_chunk_received_at=101.5, read_at=101.25)
    assert {name: each for name, each in collector.times().items() if name != "admit"} == {
        "vad end, ship": (1.0, 1.15),
        "ingest": (1.15, 1.16),
        "queue": (1.16, 1.18),
        "encode": (1.18, 1.21),
        "decode": (1.21, 1.25),
        "commit": (1.25, 1.25),
        "utterance": (1.0, 1.25),
    }


def test_the_stages_begin_when_the_engine_has_the_last_chunk() -> None:
    collector = Collector(share=1)
    collector.begin().add_utterance(final(queue=100, turn=50), sent_at=101.0, last_chunk_received_at=101.5, read_at=102)
    times = collector.times()
    assert times["vad end, ship"] == (1.0, 1.5)
    assert times["queue"] == (1.5, 1.6)
    assert times["turn"] == (1.6, 1.65)
    assert times["commit"] == (1.65, 2.0)


def test_longer_stages_than_the_utterance_are_cut_at_its_ends() -> None:
    """Clocks of several machines differ."""
    collector = Collector(share=1)
    collector.begin().add_utterance(
        final(ingest=300, queue=900), sent_at=101, last_chunk_received_at=100.5, read_at=102
    )
    times = collector.times()
    assert times["vad end, ship"] == (1.0, 1.0)
    assert times["ingest"] == (1.0, 1.3)
    assert times["queue"] == (1.3, 2.0)
    assert times["commit"] == (2.0, 2.0)


def test_spans_of_an_utterance_belong_to_it_and_others_to_the_call() -> None:
    collector = Collector(share=1)
    call = collector.begin()
    call.add_utterance(final(queue=10), sent_at=101, last_chunk_received_at=101, read_at=102)
    call.add_span("deliver", 102, 102.5, utterance_id="5")
    collector.tracer.end(SESSION)
    spans = {span.name: span for span in collector.spans()}
    names = {span.context.span_id: span.name for span in spans.values() if span.context}
    parents = {name: names.get(span.parent.span_id) if span.parent else None for name, span in spans.items()}
    assert parents == {
        "call": None, "admit": "call", "utterance": "call", "deliver": "call",
        "vad end, ship": "utterance", "queue": "utterance", "commit": "utterance",
    }  # fmt: skip
    assert dict(spans["deliver"].attributes or {}) == {"utterance.id": "5"}
    assert dict(spans["utterance"].attributes or {}) == {"utterance": "5"}


def test_a_span_does_not_end_before_it_begins() -> None:
    collector = Collector(share=1)
    collector.begin().add_span("first packet", 101.5, 101.0)
    assert collector.times()["first packet"] == (1.5, 1.5)


def test_a_trace_is_found_while_its_socket_is_open() -> None:
    collector = Collector(share=1)
    call, other = collector.begin(), collector.begin(OTHER)
    assert collector.tracer.get(7) is call
    assert collector.tracer.get(8) is other
    collector.tracer.end(SESSION)
    assert collector.tracer.get(7) is None
    assert collector.tracer.get(8) is other
    collector.tracer.end(SESSION)
    collector.tracer.end(OTHER)
    spans = collector.spans()
    assert [span.name for span in spans].count("call") == 2
    assert len({span.context.trace_id for span in spans if span.context}) == 2


def test_an_unsampled_call_has_no_trace() -> None:
    collector = Collector(share=0)
    assert collector.tracer.begin(SESSION, BEGAN_S) is None
    assert collector.tracer.get(7) is None
    collector.tracer.end(SESSION)
    assert collector.spans() == []


def test_nothing_is_traced_without_a_collector() -> None:
    tracer = CallTracer("", 1, "shop-deployment")
    assert tracer.begin(SESSION, BEGAN_S) is None
    tracer.end(SESSION)
    tracer.close()
