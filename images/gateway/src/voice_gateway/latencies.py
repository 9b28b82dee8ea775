"""Records how long callers wait for transcripts, as two metrics for all calls and as traces for some calls."""

from collections.abc import Callable

from voice_gateway.rtp import FRAME_MS
from voice_gateway.traces import CallTrace
from voice_runtime.metrics import Metrics
from voice_runtime.transcripts import EventKind, Transcript


class SocketLatencyRecorder:
    """Measures the latencies of a socket, beginning with its first utterance.

    Attributes:
        is_done: Whether all measurements are complete.
    """

    def __init__(self, metrics: Metrics, trace: CallTrace | None, sent_at: Callable[[int], float | None]) -> None:
        """Start to measure, based on the send times of frames.

        Args:
            sent_at: Function that returns the send time of a frame, counted from 0.
        """
        self._metrics = metrics
        self._trace = trace
        self._sent_at = sent_at
        self._has_first_text = self.is_done = False
        self._stopped_at: float | None = None
        self._has_begun = False

    def record(self, transcript: Transcript, now: float) -> None:
        """Record an event that was read at the time ``now`` of the event loop."""
        if self._trace and not self._has_begun and (first := self._sent_at(0)) is not None:
            self._trace.add_span("first packet", self._trace.admitted_at, first)
        self._has_begun = True
        speech_sent_at = self._sent_at(transcript.start_ms // FRAME_MS)
        if transcript.text and not self._has_first_text and speech_sent_at is not None:
            self._has_first_text = True
            self._metrics.observe("TimeToFirstText", 1000 * (now - speech_sent_at))
        if transcript.kind is EventKind.SPEECH_STOPPED:
            self._stopped_at = now
        if transcript.kind is not EventKind.FINAL:
            return
        end_sent_at = self._sent_at(max(0, transcript.end_ms // FRAME_MS - 1))
        if end_sent_at is not None and not self.is_done:
            self._metrics.observe("TimeToFinal", 1000 * (now - end_sent_at))
        if end_sent_at is not None and self._trace and transcript.speech_final:
            self._trace.add_utterance(transcript, end_sent_at, self._stopped_at or now, now)
        self.is_done = self._trace is None
