"""One trace a conversation (W3C Trace Context), for the engines and the operator's collector, by OTLP.

Pipecat sends engines no context, and its own spans hold whole prompts: these hold names and times alone.
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

NS = 1_000_000_000


class Traces:
    """The conversations of this process, of which a share is traced."""

    def __init__(self, collector: str, share: float, deployment: str) -> None:
        """Send to a collector; to none, nothing is sampled."""
        about = {"service.name": "voice-agent", "deployment.environment.name": deployment}
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(share if collector else 0.0),
            resource=Resource.create(about),
            shutdown_on_exit=False,
        )
        if collector:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(collector)))

    def begin(self, conversation: str) -> "Trace":
        """Begin the trace of a connection."""
        return Trace(conversation, self._provider.get_tracer("voice_agent"))

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()


class Trace:
    """One connection's trace; every request to an engine names it, and says whether it is sampled.

    Attributes:
        session: The same for all requests of a conversation, also after a reconnect: they find the same replica, and
            its caches. A digest, since a call's name opens its conversation.
    """

    def __init__(self, conversation: str, tracer: Tracer) -> None:
        self.session = hashlib.sha256(conversation.encode()).hexdigest()[:32]
        self._tracer = tracer
        self._whole = tracer.start_span("conversation", attributes={"session": self.session})

    def headers(self) -> dict[str, str]:
        """Return what a request carries."""
        own = self._whole.get_span_context()
        return {"traceparent": f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"}

    def turn(self, breakdown: LatencyBreakdown) -> None:
        """Add a turn whose answer is heard from now on, with what its time went to."""
        ends = time.time_ns()
        at = ends - round(breakdown.total_secs * NS)
        turn = self._tracer.start_span("turn", set_span_in_context(self._whole), start_time=at)
        for part in breakdown.contributions:
            stage = self._tracer.start_span(part.key, set_span_in_context(turn), start_time=at)
            at += round(part.duration_secs * NS)
            stage.end(at)
        turn.end(ends)

    def end(self) -> None:
        """End it with its connection."""
        self._whole.end()
