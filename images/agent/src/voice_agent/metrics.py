"""Serves the agent's metrics to Prometheus on a separate port, and logs the metrics that CloudWatch alarms use."""

import logging
import time
from collections.abc import Callable

from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    Frame,
    InterruptionFrame,
    VADUserStartedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.observers.user_bot_latency_observer import LatencyBreakdown
from pipecat.transports.base_output import BaseOutputTransport
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from voice_blueprint.contract.metrics import LATENCY_BUCKETS_MS
from voice_runtime import metrics

LATENCY_BUCKETS_S = tuple(each / 1000 for each in LATENCY_BUCKETS_MS)

log = logging.getLogger(__name__)


class Metrics:
    """Metrics of an agent process.

    Attributes:
        registry: Prometheus registry of all metrics.
        conversations: Number of active conversations, which determines scaling together with ``slots``.
        cloudwatch: Metrics for CloudWatch, which are written to the log.
    """

    def __init__(self, slots: int, cloudwatch: metrics.Metrics) -> None:
        self.cloudwatch = cloudwatch
        self.registry = CollectorRegistry()
        self.conversations = Gauge("voice_agent_conversations", "Conversations held", registry=self.registry)
        self._refused = Counter("voice_agent_refused", "Callers refused", ["reason"], registry=self.registry)
        self._turns = Histogram(
            "voice_agent_turn_seconds", "End of speech to speech", buckets=LATENCY_BUCKETS_S, registry=self.registry
        )
        self._stages = Histogram(
            "voice_agent_stage_seconds", "Parts of a turn", ["stage"], buckets=LATENCY_BUCKETS_S, registry=self.registry
        )
        self._interruptions = Histogram(
            "voice_agent_barge_in_seconds",
            "Onset of speech to silence",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._prompt_tokens = Counter(
            "voice_agent_prompt_tokens", "Prompt tokens of engines that report cached ones", registry=self.registry
        )
        self._cached_tokens = Counter(
            "voice_agent_cached_prompt_tokens", "Prompt tokens found in an engine's cache", registry=self.registry
        )
        Gauge("voice_agent_slots", "Conversations that fit", registry=self.registry).set(slots)

    def record_turn(self, breakdown: LatencyBreakdown) -> None:
        """Record the total duration of a turn, and the durations of the stages that add up to the total."""
        self._turns.observe(breakdown.total_secs)
        self.cloudwatch.observe("TurnLatency", 1000 * breakdown.total_secs)
        stages: dict[str, float] = {}
        for part in breakdown.contributions:
            stages[part.key] = stages.get(part.key, 0.0) + part.duration_secs
        for stage, duration_s in stages.items():
            self._stages.labels(stage).observe(duration_s)
        durations_ms = {stage: round(took * 1000) for stage, took in stages.items()}
        log.info("turn", extra={"fields": {"total_ms": round(breakdown.total_secs * 1000), "stages_ms": durations_ms}})

    def count_tokens(self, tokens: int, cached: int) -> None:
        """Record the prompt tokens in a request to the language model, and the number of cached tokens among them."""
        self._prompt_tokens.inc(tokens)
        self._cached_tokens.inc(cached)
        log.info("prompt", extra={"fields": {"tokens": tokens, "cached": cached}})

    def count_refusal(self, reason: str) -> None:
        """Count a refused caller."""
        self._refused.labels(reason).inc()
        self.cloudwatch.count("ConversationsRefused")

    def record_interruption(self, duration_s: float) -> None:
        """Record the time for which the agent continued to speak after a caller had started to speak."""
        self._interruptions.observe(duration_s)
        self.cloudwatch.observe("BargeInLatency", 1000 * duration_s)

    def flush(self, conversations: int) -> None:
        """Write the metrics for the last second for CloudWatch."""
        self.cloudwatch.observe("Conversations", conversations)
        self.cloudwatch.flush()

    def create_interruption_observer(self) -> BaseObserver:
        """Return an observer that measures the interruptions in a conversation."""
        return _InterruptionObserver(self.record_interruption)

    def to_text(self) -> bytes:
        """Return the metrics in Prometheus text format."""
        return generate_latest(self.registry)


class _InterruptionObserver(BaseObserver):
    """Measures the time from the onset of speech to the message that silences the agent."""

    def __init__(self, record_latency: Callable[[float], None]) -> None:
        super().__init__()
        self._record_latency = record_latency
        self._is_agent_speaking = False
        self._onset_at = 0.0

    async def on_push_frame(self, data: FramePushed) -> None:
        """Observe a frame between two processors."""
        frame: Frame = data.frame
        if isinstance(frame, (BotStartedSpeakingFrame, BotStoppedSpeakingFrame)):
            self._is_agent_speaking = isinstance(frame, BotStartedSpeakingFrame)
        elif isinstance(frame, VADUserStartedSpeakingFrame):
            # Every turn of a caller starts with an interruption frame, but most of them interrupt no answer.
            self._onset_at = frame.timestamp - frame.start_secs if self._is_agent_speaking else 0.0
        elif isinstance(frame, InterruptionFrame) and isinstance(data.source, BaseOutputTransport) and self._onset_at:
            self._record_latency(time.time() - self._onset_at)
            self._onset_at = 0.0
