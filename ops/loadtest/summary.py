"""The figures of one run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ops.loadtest.load import Run
from ops.loadtest.metrics import METRICS
from ops.loadtest.trace import Trace

Slo = Mapping[str, float]
"""Limits by name of metric, in its unit."""


@dataclass(frozen=True)
class Distribution:
    """Percentiles of a sample, interpolated linearly between its values."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution | None":
        """Return the distribution of some values; None of none."""
        if not values:
            return None
        p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
        return cls(len(values), float(np.mean(values)), p50, p95, p99, max(values))


@dataclass(frozen=True)
class Harness:
    """How far the client itself distorts what it measures."""

    start_lag_ms: Distribution
    """From the intended start of a request to its real one; part of every latency."""
    loop_lag_ms: Distribution | None
    """By how much the event loop woke up late; no time stamp is better than this."""
    pacing_lag_ms: Distribution | None
    """Of a live feed: the latest frame of each stream."""
    cpu_share: float
    """Of one core; near 1 the client, not the endpoint, is the limit."""


@dataclass(frozen=True)
class Summary:
    """The figures of one load against one endpoint. Failed requests are in ``failures`` and in no distribution."""

    load: str
    requests: int
    elapsed_s: float
    failures: dict[str, int]
    """How often each reason came up."""
    metrics: dict[str, Distribution]
    requests_per_s: float
    chars_per_s_per_gpu: float | None
    """Characters of the texts that were spoken."""
    tokens_per_s: float | None
    audio_s_per_s: float | None
    """Seconds of audio made or transcribed in a second: streams that are kept up with."""
    wait_rate: float | None
    """Share of the speech streams that starve at least once."""
    goodput_per_s: float | None
    """Requests in a second that meet every limit of the SLO; a failed one meets none."""
    goodput_share: float | None
    usd_per_audio_hour: float | None
    harness: Harness


def summarize(run: Run, *, slo: Slo, gpus: int, usd_per_hour: float | None) -> Summary:
    """Work out the figures of a run.

    Args:
        gpus: Behind the endpoint.
        usd_per_hour: Price of what runs the endpoint; None where it is not known.
    """
    answered = run.answered
    speech = [trace for trace in answered if trace.starved_s is not None]
    good = sum(_meets(trace, slo) for trace in answered)
    audio_rate = sum(trace.audio_s for trace in answered) / run.elapsed_s
    tokens = [trace.output_tokens for trace in answered if trace.output_tokens is not None]
    distributions = {
        metric.name: Distribution.of([value for trace in answered for value in metric.of(trace)])
        for metric in METRICS.values()
    }
    return Summary(
        load=str(run.load),
        requests=len(run.traces),
        elapsed_s=run.elapsed_s,
        failures=dict(Counter(trace.error for trace in run.traces if trace.error is not None).most_common()),
        metrics={name: found for name, found in distributions.items() if found},
        requests_per_s=len(answered) / run.elapsed_s,
        chars_per_s_per_gpu=sum(trace.input_chars for trace in speech) / run.elapsed_s / gpus if speech else None,
        tokens_per_s=sum(tokens) / run.elapsed_s if tokens else None,
        audio_s_per_s=audio_rate or None,
        wait_rate=sum(bool(trace.starved_s) for trace in speech) / len(speech) if speech else None,
        goodput_per_s=good / run.elapsed_s if slo else None,
        goodput_share=good / len(run.traces) if slo else None,
        usd_per_audio_hour=usd_per_hour / audio_rate if usd_per_hour and audio_rate else None,
        harness=_harness(run),
    )


def _meets(trace: Trace, slo: Slo) -> bool:
    """Whether every value of every limited metric is there and within its limit."""
    values = {name: METRICS[name].of(trace) for name in slo}
    return all(found and max(found) <= slo[name] for name, found in values.items())


def _harness(run: Run) -> Harness:
    start_lag = Distribution.of([1000 * (trace.started_s - trace.intended_s) for trace in run.traces])
    if start_lag is None:
        raise ValueError("a run without requests has no figures")
    feeds = [1000 * trace.pacing_lag_s for trace in run.traces if trace.input_ended_s is not None]
    loop_lag = Distribution.of([1000 * lag for lag in run.loop_lags_s])
    return Harness(start_lag, loop_lag, Distribution.of(feeds), run.cpu_s / run.elapsed_s)
