"""Traces calls over OTLP: each trace contains the delays of a caller's transcripts by stage.

The gateway knows when a frame was sent and when its transcript was delivered, and a final transcript contains the
durations of its stages in the engine. Therefore, only the gateway sends spans, and a change of the VAD or ASR host
during a call has no effect. A trace's id is derived from the session's id, so another gateway continues the same trace.
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

NS_PER_S = 1_000_000_000
TRACED_STAGES = ("ingest", "queue", "encode", "decode", "turn")
"""Stages of an engine, in order. In the last stage, a transcript waits for the end of the turn. Other durations in a
final transcript are not sequential."""


class _TraceIdGenerator(RandomIdGenerator):
    """Generates random span ids, but uses a trace id that is derived from the session."""

    def __init__(self) -> None:
        self.trace_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id


class CallTracer:
    """The traced calls of this gateway."""

    def __init__(self, endpoint: str, share: float, deployment: str) -> None:
        """Send traces to an endpoint. If the endpoint is empty, nothing is traced."""
        self._calls: dict[int, CallTrace] = {}
        self._ids = _TraceIdGenerator()
        self._provider: TracerProvider | None = None
        if endpoint:
            resource_attributes = {"service.name": "voice-gateway", "deployment.environment.name": deployment}
            self._provider = TracerProvider(
                sampler=TraceIdRatioBased(share),
                resource=Resource.create(resource_attributes),
                id_generator=self._ids,
                shutdown_on_exit=False,
            )
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))

    def begin(self, session: Session, requested_at: float) -> "CallTrace | None":
        """Start the trace of a socket, and return it, or ``None`` if the call is not sampled.

        Args:
            requested_at: Time at which the socket was requested, by the event loop's clock.
        """
        if self._provider is None:
            return None
        self._ids.trace_id = derive_trace_id(session.id)
        clock = EpochClock()
        tracer = self._provider.get_tracer("voice_gateway")
        span = tracer.start_span("call", start_time=clock.to_epoch_ns(requested_at), attributes={"session": session.id})
        if not span.is_recording():
            return None
        call = self._calls[session.ssrc] = CallTrace(span, time.monotonic(), self._provider, clock)
        call.add_span("admit", requested_at, call.admitted_at)
        return call

    def get(self, ssrc: int) -> "CallTrace | None":
        """Return the trace of a session whose socket is open here."""
        return self._calls.get(ssrc)

    def end(self, session: Session) -> None:
        """End the trace of a closed socket."""
        call = self._calls.pop(session.ssrc, None)
        if call:
            call.span.end()

    def close(self) -> None:
        """Send pending spans."""
        if self._provider:
            self._provider.shutdown()


class EpochClock:
    """Converts times of the event loop, whose clock is ``time.monotonic``, to nanoseconds since 1970."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def to_epoch_ns(self, monotonic_s: float) -> int:
        return self._offset_ns + round(monotonic_s * NS_PER_S)


@dataclass
class CallTrace:
    """The trace of a call, whose times come from ``time.monotonic``.

    Attributes:
        span: Span of the whole socket.
        admitted_at: Time of admission.
    """

    span: Span
    admitted_at: float
    _provider: TracerProvider
    _clock: EpochClock

    def add_span(
        self, name: str, started_at: float, ended_at: float, parent: Span | None = None, **attributes: str
    ) -> Span:
        """Add a completed span."""
        span = self._provider.get_tracer("voice_gateway").start_span(
            name,
            set_span_in_context(parent or self.span),
            start_time=self._clock.to_epoch_ns(started_at),
            attributes={name.replace("_", "."): value for name, value in attributes.items()},
        )
        span.end(self._clock.to_epoch_ns(max(started_at, ended_at)))
        return span

    def add_utterance(
        self, transcript: Transcript, sent_at: float, last_chunk_received_at: float, read_at: float
    ) -> None:
        """Add the span of an utterance, from its last frame to its final transcript, and a span for each stage.

        Args:
            transcript: Final transcript of the utterance.
            sent_at: Time at which the last frame was sent.
            last_chunk_received_at: Time at which the engine received the last chunk.
            read_at: Time at which the final transcript was read.
        """
        utterance_span = self.add_span("utterance", sent_at, read_at, utterance=str(transcript.utterance))
        durations_s = {
            stage: transcript.stages_ms[stage] / 1000 for stage in TRACED_STAGES if stage in transcript.stages_ms
        }
        # The final transcript was written shortly before it was read.
        at = max(sent_at, min(last_chunk_received_at, read_at - sum(durations_s.values())))
        self.add_span("vad end, ship", sent_at, at, utterance_span)
        for stage, duration_s in durations_s.items():
            ended_at = min(read_at, at + duration_s)
            self.add_span(stage, at, ended_at, utterance_span)
            at = ended_at
        self.add_span("commit", at, read_at, utterance_span)


def derive_trace_id(session_id: str) -> int:
    """Return the id of a session's trace."""
    return int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:16], "big")
