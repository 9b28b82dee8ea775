"""Measures a caller's wait for transcripts: two metrics of every call, and the trace of some."""

from collections.abc import Callable

from voice_gateway.rtp import FRAME_MS
from voice_gateway.traces import CallTrace
from voice_runtime.metrics import Metrics
from voice_runtime.transcripts import EventKind, Transcript


class Waits:
    """The measurements of a socket, from its first utterance on.

    Attributes:
        is_done: Whether nothing more is measured.
    """

    def __init__(self, metrics: Metrics, trace: CallTrace | None, sent_at: Callable[[int], float | None]) -> None:
        """Measure from the send times of frames.

        Args:
            sent_at: Returns the send time of a frame, counted from the first.
        """
        self._metrics = metrics
        self._trace = trace
        self._sent_at = sent_at
        self._is_told = self.is_done = False
        self._stopped_at: float | None = None
        self._has_begun = False

    def hear(self, said: Transcript, now: float) -> None:
        """Record an event that was read at a time."""
        if self._trace and not self._has_begun and (first := self._sent_at(0)) is not None:
            self._trace.add("first packet", self._trace.admitted_at, first)
        self._has_begun = True
        began = self._sent_at(said.start_ms // FRAME_MS)
        if said.text and not self._is_told and began is not None:
            self._is_told = True
            self._metrics.observe("TimeToFirstText", 1000 * (now - began))
        if said.kind is EventKind.SPEECH_STOPPED:
            self._stopped_at = now
        if said.kind is not EventKind.FINAL:
            return
        ended = self._sent_at(max(0, said.end_ms // FRAME_MS - 1))
        if ended is not None and not self.is_done:
            self._metrics.observe("TimeToFinal", 1000 * (now - ended))
        if ended is not None and self._trace and said.speech_final:
            self._trace.add_final(said, ended, self._stopped_at or now, now)
        self.is_done = self._trace is None
