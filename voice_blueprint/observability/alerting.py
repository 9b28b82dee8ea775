"""Alerts for both clouds: meanings, thresholds and objectives.

CloudWatch alarms (``aws/alerts``), Prometheus rules (``azure/alerts.py``) and metric alerts of Azure Monitor
(``azure/platform.py``) are rendered from these tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from voice_blueprint.file.model.observability import ObjectiveSettings
from voice_blueprint.file.model.scaling import Comparison

MIN_REFUSALS = 5
"""Minimum number of refusals in a minute that raises an alert. In a quiet minute with three calls, a single refusal is
already a third of the calls."""

MAX_STORE_LOAD_PERCENT = 90
"""Utilization of a state store's engine above which an alert fires. Recommended by AWS:
https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/CacheMetrics.WhichShouldIMonitor.html"""


@dataclass(frozen=True)
class AlertCondition:
    """An alert, independent of the cloud.

    Attributes:
        meaning: Sentence for the operator who is paged.
        threshold: The alert fires above this value.
        affects_callers: Whether callers are affected; such an alert pages an operator.
    """

    meaning: str
    threshold: float
    comparison: Comparison = Comparison.ABOVE
    affects_callers: bool = True


ALERT_CONDITION_BY_ID = {
    # A caller who reaches a full gateway task is refused although other tasks have capacity, and calls again. Refusals
    # of up to 5 % of calls are therefore random. If refusals continue, the error budget alert pages an operator; the
    # same applies to slow transcripts and slow turns.
    "sessions-refused": AlertCondition(
        "The gateway refuses more than one call in twenty because of insufficient capacity.", 5, affects_callers=False
    ),
    # Each gateway sends one request per minute, so a single failed request does not raise an alert.
    "front-door-closed": AlertCondition(
        "Gateways do not reach the public name: its name, its certificate or its load balancer is dead.",
        0.5,
        Comparison.BELOW,
    ),
    # Each gateway makes a call per minute. If many callers are refused for lack of capacity, some of these calls are
    # also refused.
    "synthetic-call-fails": AlertCondition(
        "Most calls of the gateways to themselves are not transcribed: those of callers are not either.",
        0.5,
        Comparison.BELOW,
    ),
    # ACM renews a certificate 60 days before it expires. Two weeks leave time for a manual fix if the renewal fails.
    "certificate-expires": AlertCondition(
        "The certificate of the public name expires within 14 days: it was not renewed.",
        14,
        Comparison.BELOW,
        affects_callers=False,
    ),
    # Users notice a wait of more than 1 s: https://www.nngroup.com/articles/response-times-3-important-limits/
    "first-transcript-slow": AlertCondition(
        "One caller in twenty waits more than a second for the first words of a transcript.",
        1000,
        affects_callers=False,
    ),
    # 50 packets of 20 ms are one second of a caller's audio.
    "vad-packets-dropped": AlertCondition(
        "The data plane drops audio for want of time or room: callers lose words.", 50
    ),
    "vad-stopped": AlertCondition(
        "The VAD module was stopped: silence goes to the ASR tier as if it were speech.", 0, affects_callers=False
    ),
    "asr-slots-exhausted": AlertCondition(
        "No speech recognition host has a free slot: new sessions are refused.", 1, Comparison.BELOW
    ),
    # 10 chunks are one second of a caller's speech.
    "speech-lost": AlertCondition("Speech of callers who were admitted is not transcribed.", 10),
    "conversations-refused": AlertCondition(
        "Agents refuse callers: they are full, or one of their engines, the gateway or the state store is unavailable.",
        0,
    ),
    # People reply to each other after 0.2 s. The pipeline of three engines takes 1.2 s here; after twice that time,
    # people start to speak again. `docs/conversations.md` describes the stages.
    "turn-slow": AlertCondition(
        "One answer in twenty begins more than 2.5 seconds after its question: callers ask again.",
        2500,
        affects_callers=False,
    ),
    # The goal is 300 ms. An interruption is detected after 220 ms of speech; if the agent continues for another half
    # second, both speak at once.
    "barge-in-slow": AlertCondition(
        "One interruption in twenty silences the agent only after more than half a second.", 500
    ),
    "nat-ports-exhausted": AlertCondition(
        "A NAT gateway has no free port for a destination: hosts and agents do not reach services outside.",
        0,
        affects_callers=False,
    ),
    # On Azure, a single maximum above the threshold raises the alert, whereas CloudWatch requires five. The standard
    # deviation of the number of calls is its square root, so at the designed peak of the smallest store, the maximum of
    # a day is 86 %.
    "redis-memory-high": AlertCondition(
        "The state store uses more than 90 % of its memory: at 100 % it refuses writes, and calls fail.",
        90,
        affects_callers=False,
    ),
    "redis-load-high": AlertCondition(
        f"The state store is more than {MAX_STORE_LOAD_PERCENT} % busy: every command waits.",
        MAX_STORE_LOAD_PERCENT,
        affects_callers=False,
    ),
    # Each backend is one load balancer in the cluster. A single failed probe must not page an operator.
    "edge-unhealthy": AlertCondition(
        "The application gateway does not reach a backend: its callers receive errors.", 0.5
    ),
    # Refused calls are failed requests as well, so the limit is that of refused calls, in percent of the calls that
    # begin. If refusals continue, the error budget alert pages an operator.
    "edge-errors": AlertCondition(
        "Requests at the application gateway fail: a backend responds with errors, or not at all.",
        5,
        affects_callers=False,
    ),
    "edge-at-maximum": AlertCondition(
        "The application gateway uses more than 90 % of its maximum capacity: it cannot grow when load does.",
        90,
        affects_callers=False,
    ),
}
"""Alerts by id. Shares are in percent, times in milliseconds."""

ERROR_BUDGET_ALERT_ID = "error-budget-burns"
"""Id for the alerts on objectives. Each objective has one alert per pair of windows."""
OBJECTIVE_WINDOW_DAYS = 30


@dataclass(frozen=True)
class WindowPair:
    """A pair of windows in which an error budget is spent too fast.

    Both windows must breach: the long one shows that the problem matters, and the short one ends the alert soon after
    the problem is solved. Windows and rates are those of https://sre.google/workbook/alerting-on-slos, "multiwindow,
    multi-burn-rate alerts".

    Attributes:
        burn_rate: Burn rate; at 1 the budget lasts exactly ``OBJECTIVE_WINDOW_DAYS``.
        pages_operators: Whether operators are paged; otherwise the alert is handled within a day.
    """

    name: str
    long_s: int
    short_s: int
    burn_rate: float
    pages_operators: bool = True

    @property
    def days_to_exhaustion(self) -> float:
        """Number of days in which this rate spends the whole budget."""
        return OBJECTIVE_WINDOW_DAYS / self.burn_rate


BURN_RATE_WINDOWS = (
    WindowPair("1h", 3_600, 300, 14.4),
    WindowPair("6h", 6 * 3_600, 1_800, 6),
    WindowPair("1d", 24 * 3_600, 2 * 3_600, 3, pages_operators=False),
)


@dataclass(frozen=True)
class Objective:
    """A service level objective: the share of calls or turns that are good.

    Attributes:
        percent: Share over 30 days.
        failure_description: Start of the sentence that describes the calls or turns that are not good.
        within_ms: Maximum latency of a good call or turn; ``None`` if the objective does not concern latency.
    """

    id: Literal["admission", "transcript", "turn"]
    percent: float
    failure_description: str
    within_ms: int | None = None

    def calculate_threshold_percent(self, windows: WindowPair) -> float:
        """Return the share of bad calls or turns, percent, that corresponds to the burn rate of these windows."""
        return round(windows.burn_rate * (100 - self.percent), 6)

    def format_meaning(self, windows: WindowPair) -> str:
        """Return the sentence for the operator who is paged."""
        return (
            f"{self.failure_description} so often that the error budget of {100 - self.percent:g} % in "
            f"{OBJECTIVE_WINDOW_DAYS} days "
            f"would last {windows.days_to_exhaustion:.2g} days."
        )


def build_objectives(settings: ObjectiveSettings, *, agents: bool) -> Iterator[Objective]:
    """Yield the objectives of a deployment; those on turns require agents."""
    yield Objective("admission", settings.admitted_percent, "Calls are refused")
    latencies: list[tuple[Literal["transcript", "turn"], float, str, int]] = [
        ("transcript", settings.final_percent, "Transcripts", settings.final_within_ms)
    ]
    if agents:
        latencies.append(("turn", settings.turn_percent, "Answers", settings.turn_within_ms))
    for id_, percent, subject, within_ms in latencies:
        yield Objective(id_, percent, f"{subject} take more than {within_ms / 1000:g} s", within_ms)
