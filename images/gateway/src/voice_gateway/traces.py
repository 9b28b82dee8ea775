"""One trace a call, sent by OTLP to the operator's collector: what a caller waited for, stage by stage.

The gateway knows when a frame left and when its transcript is told, and a final says what its stages took in the
engine: so nothing but the gateway sends spans, and another VAD or ASR host in the middle of a call changes nothing. A
trace's id is made from the session's name, so another gateway goes on in the same one.
"""

import hashlib
import time
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Span, set_span_in_context

from voice_runtime.sessions import Session
from voice_runtime.transcripts import Transcript

NS = 1_000_000_000
STAGES = ("ingest", "queue", "encode", "decode", "turn")
"""Of an engine, in their order; in the last one a transcript waits for the end of the turn. What else a final says is
not in a row with them."""


class _Ids(RandomIdGenerator):
    """Gives a call's first span the trace that its session has."""

    def __init__(self) -> None:
        self.trace = 0

    def generate_trace_id(self) -> int:
        return self.trace


class Traces:
    """The calls of this gateway that are traced."""

    def __init__(self, endpoint: str, share: float, deployment: str) -> None:
        """Send to an endpoint; to none, nothing is traced."""
        self._calls: dict[int, CallTrace] = {}
        self._ids = _Ids()
        self._provider: TracerProvider | None = None
        if endpoint:
            about = {"service.name": "voice-gateway", "deployment.environment.name": deployment}
            self._provider = TracerProvider(
                sampler=TraceIdRatioBased(share),
                resource=Resource.create(about),
                id_generator=self._ids,
                shutdown_on_exit=False,
            )
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))

    def begin(self, session: Session, asked_at: float) -> "CallTrace | None":
        """Begin the trace of a socket that was asked for at a loop's time; ``None`` where it is not sampled."""
        if self._provider is None:
            return None
        self._ids.trace = trace_id(session.id)
        now = Clock()
        tracer = self._provider.get_tracer("voice_gateway")
        span = tracer.start_span("call", start_time=now.at(asked_at), attributes={"session": session.id})
        if not span.is_recording():
            return None
        call = self._calls[session.ssrc] = CallTrace(span, time.monotonic(), self._provider, now)
        call.add("admit", asked_at, call.admitted_at)
        return call

    def of(self, ssrc: int) -> "CallTrace | None":
        """Return the trace of a session whose socket is here."""
        return self._calls.get(ssrc)

    def end(self, session: Session) -> None:
        """End the trace of a socket that is closed."""
        call = self._calls.pop(session.ssrc, None)
        if call:
            call.span.end()

    def close(self) -> None:
        """Send what waits."""
        if self._provider:
            self._provider.shutdown()


class Clock:
    """Turns the event loop's time, which is that of ``time.monotonic``, into nanoseconds since 1970."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def at(self, monotonic_s: float) -> int:
        return self._offset_ns + round(monotonic_s * NS)


@dataclass
class CallTrace:
    """The trace of one call; times are those of ``time.monotonic``.

    Attributes:
        span: Of the whole socket.
        admitted_at: When it was let in.
    """

    span: Span
    admitted_at: float
    _provider: TracerProvider
    _clock: Clock

    def add(self, name: str, begins: float, ends: float, parent: Span | None = None, **attributes: str) -> Span:
        """Add a span that is over."""
        span = self._provider.get_tracer("voice_gateway").start_span(
            name,
            set_span_in_context(parent or self.span),
            start_time=self._clock.at(begins),
            attributes={name.replace("_", "."): value for name, value in attributes.items()},
        )
        span.end(self._clock.at(max(begins, ends)))
        return span

    def add_final(self, said: Transcript, sent_at: float, stopped_at: float, seen_at: float) -> None:
        """Add an utterance: from its last frame to its final, and what that time went to.

        Args:
            said: Its final.
            sent_at: When its last frame left.
            stopped_at: When the engine had its last chunk.
            seen_at: When its final was read.
        """
        whole = self.add("utterance", sent_at, seen_at, utterance=str(said.utterance))
        took = {stage: said.stages_ms[stage] / 1000 for stage in STAGES if stage in said.stages_ms}
        # What is read was written a moment before.
        at = max(sent_at, min(stopped_at, seen_at - sum(took.values())))
        self.add("vad end, ship", sent_at, at, whole)
        for stage, took_s in took.items():
            ends = min(seen_at, at + took_s)
            self.add(stage, at, ends, whole)
            at = ends
        self.add("commit", at, seen_at, whole)


def trace_id(session: str) -> int:
    """Return the id of a session's trace."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:16], "big")
