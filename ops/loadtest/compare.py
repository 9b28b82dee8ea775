"""Two endpoints against each other: interleaved rounds, and how sure the difference is.

Rounds alternate A B, B A, A B ..., so that a drift of the machine or of its neighbours falls on both. The interval is a
two-level bootstrap: rounds are drawn with replacement, then the requests inside each, because requests of one round
share its conditions and do not count as independent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ops.loadtest.drivers import Driver
from ops.loadtest.load import Generator, Load, Run
from ops.loadtest.metrics import METRICS

RESAMPLES = 2000
CONFIDENCE = 0.95

Values = NDArray[np.float64]
STATISTICS: Mapping[str, Callable[[Values], float]] = {
    "mean": lambda values: float(values.mean()),
    "p50": lambda values: float(np.percentile(values, 50)),
    "p95": lambda values: float(np.percentile(values, 95)),
}


@dataclass(frozen=True)
class Difference:
    """A statistic of two endpoints, and the confidence interval of its difference."""

    metric: str
    statistic: str
    measured: float
    baseline: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """Measured minus baseline."""
        return self.measured - self.baseline

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out zero: the difference is more than chance."""
        return self.low > 0 or self.high < 0


Round = tuple[Run, ...]
"""The same requests to each endpoint: the measured one, and its baseline where there is one."""


async def interleave(
    generator: Generator, drivers: Sequence[Driver], load: Load, *, requests: int, rounds: int
) -> list[Round]:
    """Put the endpoints under the same load in turn; each gets ``requests`` requests in all."""
    sizes = [len(part) for part in np.array_split(np.arange(requests), rounds)]
    found = []
    for number, size in enumerate(sizes):
        turn = 1 if number % 2 == 0 else -1
        runs = [await generator.run(driver, load, size, sum(sizes[:number])) for driver in drivers[::turn]]
        found.append(tuple(runs[::turn]))
    return found


def differences(rounds: Sequence[Round], seed: int) -> list[Difference]:
    """Return the differences of every metric that both endpoints have: its median and its 95th percentile.

    A metric that is missing in some round, because every request of it failed, or zero everywhere, is left out.
    """
    found = []
    for name in METRICS:
        values = [(_values(measured, name), _values(baseline, name)) for measured, baseline in rounds]
        everywhere = all(measured.size and baseline.size for measured, baseline in values)
        if everywhere and any(side.any() for both in values for side in both):
            found += [_difference(name, statistic, values, seed) for statistic in ("p50", "p95")]
    rates = [(_rate(measured), _rate(baseline)) for measured, baseline in rounds]
    return [*found, _difference("requests/s", "mean", rates, seed)]


def _values(run: Run, name: str) -> Values:
    """One value a request: the mean where a request has many, because its gaps are not independent."""
    found = [METRICS[name].of(trace) for trace in run.answered]
    return np.array([fmean(values) for values in found if values])


def _rate(run: Run) -> Values:
    return np.array([len(run.answered) / run.elapsed_s])


def _difference(metric: str, statistic: str, rounds: Sequence[tuple[Values, Values]], seed: int) -> Difference:
    of = STATISTICS[statistic]
    random = np.random.default_rng(seed)
    resampled = []
    for _ in range(RESAMPLES):
        drawn = [rounds[number] for number in random.integers(len(rounds), size=len(rounds))]
        resampled.append(of(_redrawn(drawn, 0, random)) - of(_redrawn(drawn, 1, random)))
    outside = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(resampled, [outside, 100 - outside])
    measured, baseline = (of(np.concatenate(side)) for side in zip(*rounds, strict=True))
    return Difference(metric, statistic, measured, baseline, float(low), float(high))


def _redrawn(rounds: Sequence[tuple[Values, Values]], side: int, random: np.random.Generator) -> Values:
    return np.concatenate(
        [values[side][random.integers(values[side].size, size=values[side].size)] for values in rounds]
    )
