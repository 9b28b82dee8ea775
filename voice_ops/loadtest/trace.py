"""Timestamps for a request, in ``time.perf_counter`` seconds."""

from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter


@dataclass
class RequestTrace:
    """A request: its scheduled start, the arrivals of its pieces, and its input and output."""

    request_id: str
    """Value of ``X-Request-Id``. vLLM also uses this id, so a slow request can be found in the engine's log."""
    intended_s: float
    """Scheduled start, from which latency is measured, so that a late client or a stalled server is visible."""
    started_s: float
    ended_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    """Arrival of each piece of the response: text for text APIs, audio for speech."""
    output_audio_s: list[float] = field(default_factory=list)
    """Seconds of audio in each piece; empty for text APIs."""
    output_tokens: int | None = None
    """Number of tokens that the endpoint reports, or ``None`` if it reports none."""
    input_chars: int = 0
    input_audio_s: float = 0.0
    input_ended_s: float | None = None
    """Time at which the last audio was sent, for input that is streamed in real time."""
    pacing_lag_s: float = 0.0
    """Maximum delay of a frame in a real-time stream."""
    error: str | None = None

    def record_text(self) -> None:
        """Record the arrival of text."""
        self.arrivals_s.append(perf_counter())

    def record_audio(self, seconds: float) -> None:
        """Record the arrival of audio of this duration."""
        self.arrivals_s.append(perf_counter())
        self.output_audio_s.append(seconds)

    def record_end(self) -> None:
        """Record the end of the response, if the connection stays open after it."""
        self.ended_s = self.ended_s or perf_counter()

    @property
    def first_piece_delay_s(self) -> float | None:
        """Time from the scheduled start to the first piece, or ``None`` if no piece arrived."""
        return self.arrivals_s[0] - self.intended_s if self.arrivals_s else None

    @property
    def total_duration_s(self) -> float:
        """Time from the scheduled start to the end of the response."""
        return self.ended_s - self.intended_s

    @property
    def piece_gaps_s(self) -> list[float]:
        """Times between successive pieces."""
        return [later - earlier for earlier, later in pairwise(self.arrivals_s)]

    @property
    def audio_s(self) -> float:
        """Seconds of audio that this request synthesized or transcribed."""
        return sum(self.output_audio_s) or self.input_audio_s

    @property
    def playback_stall_s(self) -> float | None:
        """Total duration of pauses in a player that starts with the first piece, or ``None`` without audio."""
        if not self.output_audio_s:
            return None
        starved_total_s = 0.0
        playback_end_s = self.arrivals_s[0]
        for arrival_s, seconds in zip(self.arrivals_s, self.output_audio_s, strict=True):
            starved_total_s += max(0.0, arrival_s - playback_end_s)
            playback_end_s = max(playback_end_s, arrival_s) + seconds
        return starved_total_s
