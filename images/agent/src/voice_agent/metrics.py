"""What the agent measures, in Prometheus' format on its own port: a managed Prometheus or an agent of AWS' reads it."""

import logging
import time

from pipecat.frames.frames import Frame, InterruptionFrame, VADUserStartedSpeakingFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.observers.user_bot_latency_observer import LatencyBreakdown, MeasuredFrom
from pipecat.transports.base_output import BaseOutputTransport
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)

log = logging.getLogger(__name__)


class Metrics:
    """Of one process.

    Attributes:
        conversations: Those that are held; the load to scale on, beside ``slots``.
        refused: Callers that were refused, by reason.
    """

    def __init__(self, slots: int) -> None:
        self._registry = CollectorRegistry()
        self.conversations = Gauge("voice_agent_conversations", "Conversations held", registry=self._registry)
        self.refused = Counter("voice_agent_refused", "Callers refused", ["reason"], registry=self._registry)
        self._turns = Histogram(
            "voice_agent_turn_seconds", "End of speech to speech", buckets=SECONDS, registry=self._registry
        )
        self._stages = Histogram(
            "voice_agent_stage_seconds", "Parts of a turn", ["stage"], buckets=SECONDS, registry=self._registry
        )
        self.interruptions = Histogram(
            "voice_agent_barge_in_seconds", "Onset of speech to silence", buckets=SECONDS, registry=self._registry
        )
        Gauge("voice_agent_slots", "Conversations that fit", registry=self._registry).set(slots)

    def turn(self, breakdown: LatencyBreakdown) -> None:
        """Note what a turn took, in parts that add up to it."""
        if breakdown.measured_from is not MeasuredFrom.USER_SILENCE:
            return
        self._turns.observe(breakdown.total_secs)
        stages: dict[str, float] = {}
        for part in breakdown.contributions:
            stages[part.key] = stages.get(part.key, 0.0) + part.duration_secs
        for stage, took in stages.items():
            self._stages.labels(stage).observe(took)
        told = {stage: round(took * 1000) for stage, took in stages.items()}
        log.info("turn", extra={"fields": {"total_ms": round(breakdown.total_secs * 1000), "stages_ms": told}})

    def barge_in(self) -> BaseObserver:
        """Return what watches one conversation for interruptions."""
        return _BargeIn(self.interruptions)

    def text(self) -> bytes:
        """Return what a scraper reads."""
        return generate_latest(self._registry)


class _BargeIn(BaseObserver):
    """Times the onset of speech to the message that silences the agent."""

    def __init__(self, seconds: Histogram) -> None:
        super().__init__()
        self._seconds = seconds
        self._onset = 0.0

    async def on_push_frame(self, data: FramePushed) -> None:
        """Look at a frame that goes from one processor to the next."""
        frame: Frame = data.frame
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._onset = frame.timestamp - frame.start_secs
        elif isinstance(frame, InterruptionFrame) and isinstance(data.source, BaseOutputTransport) and self._onset:
            self._seconds.observe(time.time() - self._onset)
            self._onset = 0.0
