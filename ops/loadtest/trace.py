"""What the client saw of one request. All times are seconds of ``time.perf_counter``."""

from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter


@dataclass
class Trace:
    """One request: when it should have started, when its pieces arrived, and what went in and came out."""

    request_id: str
    """Sent as ``X-Request-Id``, which vLLM takes over: a slow request can be found in the engine's log."""
    intended_s: float
    """When it should have started; latency counts from here, so that a late client or a stalled server shows."""
    started_s: float
    ended_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    """When each piece of the answer arrived: text for text APIs, audio for speech."""
    output_audio_s: list[float] = field(default_factory=list)
    """Seconds of audio in each piece; empty for text APIs."""
    output_tokens: int | None = None
    """As the endpoint counts them; None where it does not say."""
    input_chars: int = 0
    input_audio_s: float = 0.0
    input_ended_s: float | None = None
    """When the last audio was sent, for input that is fed in real time."""
    pacing_lag_s: float = 0.0
    """By how much the latest frame of a real-time feed left too late."""
    error: str | None = None

    def text_arrived(self) -> None:
        """Stamp a piece of text."""
        self.arrivals_s.append(perf_counter())

    def audio_arrived(self, seconds: float) -> None:
        """Stamp a piece of audio of this length."""
        self.arrivals_s.append(perf_counter())
        self.output_audio_s.append(seconds)

    def ended(self) -> None:
        """Stamp the end of the answer, where the connection lives on after it."""
        self.ended_s = self.ended_s or perf_counter()

    @property
    def first_s(self) -> float | None:
        """Time from the intended start to the first piece; None where nothing came."""
        return self.arrivals_s[0] - self.intended_s if self.arrivals_s else None

    @property
    def total_s(self) -> float:
        """Time from the intended start to the end of the answer."""
        return self.ended_s - self.intended_s

    @property
    def gaps_s(self) -> list[float]:
        """Times between successive pieces."""
        return [later - earlier for earlier, later in pairwise(self.arrivals_s)]

    @property
    def audio_s(self) -> float:
        """Seconds of audio that this request made, or had transcribed."""
        return sum(self.output_audio_s) or self.input_audio_s

    @property
    def starved_s(self) -> float | None:
        """How long a player that starts with the first piece stands still for want of audio; None without audio."""
        if not self.output_audio_s:
            return None
        starved = 0.0
        played_until = self.arrivals_s[0]
        for arrived, seconds in zip(self.arrivals_s, self.output_audio_s, strict=True):
            starved += max(0.0, arrived - played_until)
            played_until = max(played_until, arrived) + seconds
        return starved
