"""Traces: number of calls over time, and zone failures."""

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.aws.edge import ALIAS_TTL_S, HEALTH_CHECK_FAILURE_THRESHOLD, HEALTH_CHECK_INTERVAL_S
from voice_blueprint.day import resolve_design_load_curve
from voice_blueprint.file.model.deployment import Deployment

_MINUTE_S, _HOUR_S = 60.0, 3600.0
_CSV_COLUMNS = ["second", "calls"]
MAX_CALLS = 100_000_000
"""Maximum concurrent calls, since numpy's hypergeometric distributions support up to 1,000 million."""
MAX_DURATION_S = 31 * 24 * _HOUR_S
"""A month: 267,840 ticks of 10 s."""


class TraceError(ValueError):
    """A trace that cannot be read. The message contains the file and the line."""


@dataclass(frozen=True)
class Outage:
    """Loss of a whole zone. When the zone returns, it has no hosts.

    Attributes:
        zone: Index among the deployment's availability zones.
    """

    zone: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class SpotWave:
    """Interruption of all spot hosts at once. No spot capacity is available until ``end_s``."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class LoadTrace:
    """Number of concurrent calls over time if none are refused, interpolated linearly between points.

    Attributes:
        seconds: Time of each point, ascending from 0.
        calls: Requested calls at that time.
    """

    name: str
    seconds: tuple[float, ...]
    calls: tuple[float, ...]
    outages: tuple[Outage, ...] = ()
    spot_waves: tuple[SpotWave, ...] = ()

    def __post_init__(self) -> None:
        """Reject traces that cannot be simulated.

        Raises:
            TraceError: There are too many calls, or the trace is too long.
        """
        if not self.peak <= MAX_CALLS:
            raise TraceError(f"{self.name}: at most {self.peak:g} calls; the simulator carries up to {MAX_CALLS:,}")
        if not self.duration_s <= MAX_DURATION_S:
            raise TraceError(
                f"{self.name}: lasts {self.duration_s:g} s; the simulator plays up to {MAX_DURATION_S:,.0f} s, 31 days"
            )

    @property
    def duration_s(self) -> float:
        """Time of the last point."""
        return self.seconds[-1]

    @property
    def peak(self) -> float:
        """Maximum concurrent calls."""
        return max(self.calls)

    def interpolate_calls(self, second: float) -> float:
        """Return the number of requested calls at a time. The first value also applies before the first point."""
        return float(np.interp(second, *self._points))

    @cached_property
    def _points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # Cached as arrays, since ``interp`` would convert the points of a day for each tick.
        return np.array(self.seconds), np.array(self.calls)


REGION_LOST_S, REGION_RESTORED_S = 20 * _MINUTE_S, 80 * _MINUTE_S
FAILURE_DETECTION_S = HEALTH_CHECK_INTERVAL_S * HEALTH_CHECK_FAILURE_THRESHOLD
"""Time from a region's loss until its host name resolves to another region."""


def create_diurnal_trace(peak: float) -> LoadTrace:
    """Return a day of office hours, with a fifth of the peak at 03:00 and the peak at 15:00."""
    seconds = np.arange(0, 24 * _HOUR_S + 1, 5 * _MINUTE_S)
    share = 0.6 - 0.4 * np.cos((seconds / _HOUR_S - 3) * math.pi / 12)
    return LoadTrace("diurnal", tuple(map(float, seconds)), tuple(map(float, peak * share)))


def create_spike_trace(peak: float) -> LoadTrace:
    """Return a trace that rises to ten times the calls within 60 s, for an hour."""
    points = {
        0.0: 0.1,
        10 * _MINUTE_S: 0.1,
        11 * _MINUTE_S: 1.0,
        71 * _MINUTE_S: 1.0,
        81 * _MINUTE_S: 0.1,
        120 * _MINUTE_S: 0.1,
    }
    return LoadTrace("spike", tuple(points), tuple(peak * share for share in points.values()))


def create_az_outage_trace(peak: float) -> LoadTrace:
    """Return a trace at half the peak, with an outage of the first zone from minute 20 to minute 80."""
    end = 120 * _MINUTE_S
    return LoadTrace("az-outage", (0.0, end), (peak / 2, peak / 2), (Outage(0, 20 * _MINUTE_S, 80 * _MINUTE_S),))


def create_region_loss_trace(peak: float) -> LoadTrace:
    """Return the trace of one of two regions, while the other is lost from minute 20 to minute 80.

    Each region serves half the peak, and the remaining region serves the full peak during the loss. The callers of the
    lost region arrive once health checks have detected the loss, as cached DNS records expire.
    """
    detected, restored = REGION_LOST_S + FAILURE_DETECTION_S, REGION_RESTORED_S
    failover_s, failback_s = ALIAS_TTL_S + detected, ALIAS_TTL_S + restored
    points = {0.0: 0.5, detected: 0.5, failover_s: 1.0, restored: 1.0, failback_s: 0.5, 120 * _MINUTE_S: 0.5}
    return LoadTrace("region-loss", tuple(points), tuple(peak * share for share in points.values()))


def create_spot_wave_trace(peak: float) -> LoadTrace:
    """Return a trace at half the peak load, without spot capacity from minute 20 to minute 80."""
    end = 120 * _MINUTE_S
    return LoadTrace(
        "spot-wave", (0.0, end), (peak / 2, peak / 2), spot_waves=(SpotWave(20 * _MINUTE_S, 80 * _MINUTE_S),)
    )


def create_flash_crowd_trace(peak: float) -> LoadTrace:
    """Return a trace that rises to five times the calls within 5 minutes, and decays with a half-life of 20 minutes."""
    start, top = 10 * _MINUTE_S, 15 * _MINUTE_S
    decay = np.arange(top, 180 * _MINUTE_S + 1, _MINUTE_S)
    share = 0.2 + 0.8 * 0.5 ** ((decay - top) / (20 * _MINUTE_S))
    seconds = (0.0, start, *map(float, decay))
    return LoadTrace("flash-crowd", seconds, (peak / 5, peak / 5, *map(float, peak * share)))


DAY_TRACE_NAME = "day"
"""Value of ``--load`` for the day that the file is designed for."""


def create_design_day_trace(deployment: Deployment) -> LoadTrace:
    """Return the trace of the day that a file is designed for.

    Raises:
        LoadCurveError: The CSV file cannot be read, or its mean or peak differs from the load's.
        ValueError: The deployment serves no calls.
    """
    day_trace = resolve_design_load_curve(deployment)
    return LoadTrace(f"{DAY_TRACE_NAME} ({day_trace.name})", day_trace.seconds, day_trace.calls)


BUILT_IN_TRACES: dict[str, Callable[[float], LoadTrace]] = {
    "diurnal": create_diurnal_trace,
    "spike": create_spike_trace,
    "az-outage": create_az_outage_trace,
    "region-loss": create_region_loss_trace,
    "spot-wave": create_spot_wave_trace,
    "flash-crowd": create_flash_crowd_trace,
}
"""Functions that create a trace from its peak, by the value of ``--load``."""


def read_trace(file: Path) -> LoadTrace:
    """Read a trace from a CSV file with the header ``second,calls``.

    ``second`` increases strictly from 0; ``calls`` is the number of requested calls, interpolated linearly between
    rows.

    Raises:
        TraceError: The file cannot be read, or a row is invalid.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            points = list(_parse_points(file, csv.reader(lines)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if len(points) < 2:  # noqa: PLR2004  a trace has a start and an end
        raise TraceError(f"{file}: a trace needs two rows or more below its header, not {len(points)}")
    seconds, calls = zip(*points, strict=True)
    if not max(calls):
        raise TraceError(f"{file}: every row has 0 calls")
    try:
        return LoadTrace(file.stem, seconds, calls)
    except TraceError as error:
        raise TraceError(f"{file}: {str(error).removeprefix(f'{file.stem}: ')}") from None


def _parse_points(file: Path, rows: Iterator[list[str]]) -> Iterator[tuple[float, float]]:
    header = next(rows, [])
    if header != _CSV_COLUMNS:
        raise TraceError(f"{file}:1: the header is {','.join(header)!r}; write {','.join(_CSV_COLUMNS)!r}")
    last = -1.0
    for line, row in enumerate(rows, start=2):
        try:
            second, calls = map(float, row)
        except ValueError:
            raise TraceError(f"{file}:{line}: {','.join(row)!r} is not two numbers: second,calls") from None
        if not (math.isfinite(second) and math.isfinite(calls)) or calls < 0:
            raise TraceError(f"{file}:{line}: calls and seconds are finite and not negative, unlike {','.join(row)!r}")
        if last < 0 and second:
            raise TraceError(f"{file}:{line}: the first second is 0, not {second:g}")
        if second <= last:
            raise TraceError(f"{file}:{line}: second {second:g} does not come after {last:g}")
        last = second
        yield second, calls
