"""Traces conversations (W3C Trace Context) for the engines and, over OTLP, for the operator's collector.

Pipecat sends no trace context to engines, and its spans contain whole prompts. The spans of this module contain only
names and times.
"""

import hashlib
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Tracer, set_span_in_context
from pipecat.observers.user_bot_latency_observer import LatencyBreakdown

NS_PER_S = 1_000_000_000


class ConversationTracer:
    """The traces of this process's conversations, a share of which is sampled."""

    def __init__(self, collector: str, share: float, deployment: str) -> None:
        """Create a tracer that sends spans to a collector. Without a collector, no conversation is sampled."""
        attributes = {"service.name": "voice-agent", "deployment.environment.name": deployment}
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(share if collector else 0.0),
            resource=Resource.create(attributes),
            shutdown_on_exit=False,
        )
        if collector:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(collector)))

    def begin(self) -> "Trace":
        """Start the trace of a connection. Call ``set_conversation`` on the trace once the conversation is known."""
        return Trace(self._provider.get_tracer("voice_agent"))

    def close(self) -> None:
        """Send pending spans."""
        self._provider.shutdown()


class Trace:
    """A connection's trace. Every request to an engine contains the trace's id and sampling flag.

    Attributes:
        session_digest: Value that is the same for all requests of a conversation, even after a reconnect, so that the
            requests reach the same replica and its caches. A digest is used, since a call's id grants access to the
            call's conversation.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.session_digest = ""
        self._tracer = tracer
        self._root_span = tracer.start_span("conversation")

    def set_conversation(self, conversation: str) -> None:
        """Set the conversation of the trace, which is known once the caller is authenticated."""
        self.session_digest = hashlib.sha256(conversation.encode()).hexdigest()[:32]
        self._root_span.set_attribute("session", self.session_digest)

    def build_headers(self) -> dict[str, str]:
        """Return the headers of a request."""
        span_context = self._root_span.get_span_context()
        return {
            "traceparent": f"00-{span_context.trace_id:032x}-{span_context.span_id:016x}-{span_context.trace_flags:02x}"
        }

    def add_turn(self, breakdown: LatencyBreakdown) -> None:
        """Add the spans of a turn and its parts, when the turn's answer starts to play."""
        ends = time.time_ns()
        at = ends - round(breakdown.total_secs * NS_PER_S)
        turn = self._tracer.start_span("turn", set_span_in_context(self._root_span), start_time=at)
        for part in breakdown.contributions:
            stage = self._tracer.start_span(part.key, set_span_in_context(turn), start_time=at)
            at += round(part.duration_secs * NS_PER_S)
            stage.end(at)
        turn.end(ends)

    def end(self) -> None:
        """End the trace when the connection has ended."""
        self._root_span.end()
