"""The day for which a deployment is designed: the number of calls at each time.

`voice cost` prices this day, `voice simulate` simulates it, and the alerts of both clouds are replayed over it.
"""

import csv
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from voice_blueprint.capacity.conversations import iter_conversation_chains
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import (
    TARGET_UTILIZATION,
    build_caller_tier_capacities,
    calculate_max_mean_calls,
    sum_calls_by_tier,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.service import iter_transcription_capacities
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad

SECONDS_PER_DAY = 24 * 3600
CURVE_STEP_S = 60
"""Time between two points of a curve."""
PEAK_TIME_OF_DAY_S = 15 * 3600
"""Time of the peak: 15:00."""
MAX_SPIKE_S, RAMP_S = 3600, 60
"""Maximum duration of a spike, and duration of its ramp."""
NIGHT_CALL_FRACTION = 0.2
"""Calls at 03:00 on a business day with a high peak, as a share of the mean. ASSUMED."""
RANDOMLY_ASSIGNED_TIERS = (Tier.GATEWAY, Tier.VAD)
"""Tiers whose load balancer distributes calls without regard to the load of hosts."""
DEFAULT_PEAK_FACTOR: float = CallLoad.model_fields["peak_factor"].default
CURVE_MEAN_TOLERANCE = 0.01
"""Permitted deviation of a CSV file's mean and peak from those of the load."""


class LoadCurveError(ValueError):
    """A load curve that cannot be read, or that does not match the load. The message contains the path of the file."""


@dataclass(frozen=True)
class LoadCurve:
    """Number of calls over a day, interpolated linearly between points.

    Attributes:
        seconds: Time of each point, from 0 to 86,400.
        calls: Calls at that time.
    """

    name: str
    seconds: tuple[float, ...]
    calls: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over 24 hours."""
        pairs = list(zip(self.seconds, self.calls, strict=True))
        areas = ((end - begin) * (low + high) / 2 for (begin, low), (end, high) in pairwise(pairs))
        return sum(areas) / self.seconds[-1]

    @property
    def peak(self) -> float:
        """Maximum number of calls."""
        return max(self.calls)


def resolve_design_load(deployment: Deployment) -> CallLoad:
    """Return the load of the file or, if the file has none, the load that the tiers can serve at the peak.

    The peak fills the smallest tier to ``TARGET_UTILIZATION``. Gateways and VAD hosts, to which calls are distributed
    randomly, are filled less, so that hosts are hardly ever full while others have capacity.

    Raises:
        ValueError: The deployment serves no calls.
    """
    if deployment.load:
        return deployment.load
    tiers = build_caller_tier_capacities(deployment)
    tier_calls = [TARGET_UTILIZATION * max_calls for _, max_calls in sum_calls_by_tier(tiers).values()]
    if not deployment.aws_section:
        tier_calls.append(
            TARGET_UTILIZATION
            * sum(
                pool_capacity.max_replicas * pool_capacity.sessions
                for pool_capacity in iter_transcription_capacities(deployment.azure)
            )
        )
    if min(tier_calls) < TARGET_UTILIZATION:
        raise ValueError(f"{deployment.name} supports no calls, and has no `load`")
    tier_calls += [
        each.units.max * calculate_max_mean_calls(each.calls) for each in tiers if each.tier in RANDOMLY_ASSIGNED_TIERS
    ]
    peak = max(1.0, min(tier_calls))
    conversation_limits = [min(link.most for link in chain) for chain in iter_conversation_chains(deployment)]
    share = min(1.0, TARGET_UTILIZATION * min(conversation_limits) / peak) if conversation_limits else 1.0
    mean = max(1, math.floor(peak / DEFAULT_PEAK_FACTOR))
    return CallLoad(calls=mean, peak_factor=min(DEFAULT_PEAK_FACTOR, peak / mean), conversation_share=share)


def resolve_design_load_curve(deployment: Deployment) -> LoadCurve:
    """Return the number of calls over the day for which the deployment is designed.

    Raises:
        LoadCurveError: The CSV file cannot be read, or its mean or peak differs from the load's.
        ValueError: The deployment serves no calls.
    """
    load = resolve_design_load(deployment)
    if load.curve.endswith(".csv"):
        return _read_load_curve(deployment.source.file.parent / load.curve, load)
    return {"flat": _create_flat_curve, "business-day": _create_business_hours_curve, "spike": _create_spike_curve}[
        load.curve
    ](load)


def _create_flat_curve(load: CallLoad) -> LoadCurve:
    return LoadCurve("flat", (0.0, float(SECONDS_PER_DAY)), (float(load.calls),) * 2)


def _create_business_hours_curve(load: CallLoad) -> LoadCurve:
    """Return a day with one peak: a raised cosine, or a power of a raised cosine for a high and narrow peak."""
    peak, mean = float(calculate_peak_calls(load)), float(load.calls)
    low = max(NIGHT_CALL_FRACTION * mean, 2 * mean - peak)
    power = _solve_cosine_exponent((peak - low) / (mean - low)) if peak > mean else 1.0
    seconds = range(0, SECONDS_PER_DAY + 1, CURVE_STEP_S)
    waves = ((1 + math.cos(2 * math.pi * (second - PEAK_TIME_OF_DAY_S) / SECONDS_PER_DAY)) / 2 for second in seconds)
    return LoadCurve(
        "business-day", tuple(map(float, seconds)), tuple(low + (peak - low) * wave**power for wave in waves)
    )


def _solve_cosine_exponent(factor: float) -> float:
    """Return the exponent of a raised cosine whose peak is ``factor`` times its mean.

    Up to a factor of two, the exponent is 1.
    """

    def mean(power: float) -> float:
        return math.exp(math.lgamma(power + 0.5) - math.lgamma(power + 1)) / math.sqrt(math.pi)

    low, high = 1.0, 1.0
    while mean(high) * factor > 1 + 1e-9:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) * factor > 1 else (low, middle)
    return high


def _create_spike_curve(load: CallLoad) -> LoadCurve:
    """Return a day with one plateau that lasts an hour.

    The plateau is shorter if an hour would leave no calls for the rest of the day.
    """
    peak, mean = float(calculate_peak_calls(load)), float(load.calls)
    length = min(float(MAX_SPIKE_S), 0.5 * SECONDS_PER_DAY * mean / peak)
    # Half of each ramp counts as plateau.
    base = max(0.0, (mean * SECONDS_PER_DAY - peak * length) / (SECONDS_PER_DAY - length))
    begin = PEAK_TIME_OF_DAY_S - length / 2
    points = {
        0.0: base,
        begin - RAMP_S / 2: base,
        begin + RAMP_S / 2: peak,
        begin + length - RAMP_S / 2: peak,
        begin + length + RAMP_S / 2: base,
        float(SECONDS_PER_DAY): base,
    }
    return LoadCurve("spike", tuple(points), tuple(points.values()))


def _read_load_curve(file: Path, load: CallLoad) -> LoadCurve:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            header, *rows = csv.reader(lines)
            points = [(float(second), float(calls)) for second, calls in rows]
    except OSError as error:
        raise LoadCurveError(f"{load.curve}: {error.strerror}") from None
    except (ValueError, csv.Error) as error:
        raise LoadCurveError(f"{load.curve}: not a day with the header second,calls: {error}") from None
    seconds, calls = (tuple(column) for column in zip(*points, strict=True)) if points else ((), ())
    if header != ["second", "calls"] or len(points) < 2 or (seconds[0], seconds[-1]) != (0, SECONDS_PER_DAY):  # noqa: PLR2004
        raise LoadCurveError(
            f"{load.curve}: a day has the header second,calls and rows from second 0 to {SECONDS_PER_DAY}"
        )
    is_ascending = all(before < after for before, after in pairwise(seconds))
    if not is_ascending or not all(math.isfinite(each) and each >= 0 for each in calls):
        raise LoadCurveError(f"{load.curve}: seconds rise, and calls are finite and not negative")
    result = LoadCurve(file.stem, seconds, calls)
    for statistic, actual, expected in (
        ("mean", result.mean, load.calls),
        ("peak", result.peak, calculate_peak_calls(load)),
    ):
        if abs(actual - expected) > CURVE_MEAN_TOLERANCE * expected:
            raise LoadCurveError(
                f"{load.curve}: its {statistic} is {actual:,.0f} calls, that of `load` is {expected:,}; "
                f"set calls to {max(1, round(result.mean))} and peak_factor to {result.peak / result.mean:.3g}"
            )
    return result
