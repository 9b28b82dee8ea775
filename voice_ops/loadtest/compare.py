"""Comparison of two endpoints: interleaved rounds, and confidence intervals for differences.

Rounds alternate A B, B A, A B ..., so that a drift of the machine or its neighbours affects both. The interval is a
two-level bootstrap: rounds are drawn with replacement, then the requests inside each round, because requests of one
round share its conditions and are not independent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from voice_ops.loadtest.drivers import Driver
from voice_ops.loadtest.load import Load, LoadGenerator, LoadRun
from voice_ops.loadtest.metrics import METRICS

RESAMPLE_COUNT = 2000
CONFIDENCE_LEVEL = 0.95

FloatArray = NDArray[np.float64]
STATISTIC_FUNCTIONS: Mapping[str, Callable[[FloatArray], float]] = {
    "mean": lambda values: float(values.mean()),
    "p50": lambda values: float(np.percentile(values, 50)),
    "p95": lambda values: float(np.percentile(values, 95)),
}


@dataclass(frozen=True)
class Difference:
    """A statistic for two endpoints, and the confidence interval for the difference."""

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
    def is_significant(self) -> bool:
        """Whether the interval excludes zero, so that the difference is significant."""
        return self.low > 0 or self.high < 0


Round = tuple[LoadRun, ...]
"""Runs with the same requests, one for the measured endpoint and one for the baseline if there is one."""


async def run_interleaved(
    generator: LoadGenerator, drivers: Sequence[Driver], load: Load, *, requests: int, rounds: int
) -> list[Round]:
    """Apply the same load to the endpoints in turn. Each endpoint receives ``requests`` requests in total."""
    sizes = [len(part) for part in np.array_split(np.arange(requests), rounds)]
    results = []
    for number, size in enumerate(sizes):
        turn = 1 if number % 2 == 0 else -1
        runs = [await generator.run(driver, load, size, sum(sizes[:number])) for driver in drivers[::turn]]
        results.append(tuple(runs[::turn]))
    return results


def compare_rounds(rounds: Sequence[Round], seed: int) -> list[Difference]:
    """Return the differences in the median and the 95th percentile of every common metric, and in the request rate.

    A metric is omitted if it is always zero, or is missing in a round because every request failed.
    """
    results = []
    for name in METRICS:
        values = [
            (_collect_metric_values(measured, name), _collect_metric_values(baseline, name))
            for measured, baseline in rounds
        ]
        has_all_values = all(measured.size and baseline.size for measured, baseline in values)
        if has_all_values and any(side.any() for both in values for side in both):
            results += [_compare_statistic(name, statistic, values, seed) for statistic in ("p50", "p95")]
    rates = [(_calculate_request_rate(measured), _calculate_request_rate(baseline)) for measured, baseline in rounds]
    return [*results, _compare_statistic("requests/s", "mean", rates, seed)]


def _collect_metric_values(run: LoadRun, name: str) -> FloatArray:
    """Return one value per request. Several values from one request are not independent, so their mean is used."""
    results = [METRICS[name].extract_values(trace) for trace in run.successful_traces]
    return np.array([fmean(values) for values in results if values])


def _calculate_request_rate(run: LoadRun) -> FloatArray:
    return np.array([len(run.successful_traces) / run.elapsed_s])


def _compare_statistic(
    metric: str, statistic: str, rounds: Sequence[tuple[FloatArray, FloatArray]], seed: int
) -> Difference:
    statistic_function = STATISTIC_FUNCTIONS[statistic]
    random = np.random.default_rng(seed)
    differences = []
    for _ in range(RESAMPLE_COUNT):
        sampled_rounds = [rounds[number] for number in random.integers(len(rounds), size=len(rounds))]
        differences.append(
            statistic_function(_resample(sampled_rounds, 0, random))
            - statistic_function(_resample(sampled_rounds, 1, random))
        )
    tail_percent = 50 * (1 - CONFIDENCE_LEVEL)
    low, high = np.percentile(differences, [tail_percent, 100 - tail_percent])
    measured, baseline = (statistic_function(np.concatenate(side)) for side in zip(*rounds, strict=True))
    return Difference(metric, statistic, measured, baseline, float(low), float(high))


def _resample(rounds: Sequence[tuple[FloatArray, FloatArray]], side: int, random: np.random.Generator) -> FloatArray:
    return np.concatenate(
        [values[side][random.integers(values[side].size, size=values[side].size)] for values in rounds]
    )
