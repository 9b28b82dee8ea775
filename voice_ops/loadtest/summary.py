"""Summary of a run: latency, throughput, goodput and cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voice_ops.loadtest.load import LoadRun
from voice_ops.loadtest.metrics import METRICS
from voice_ops.loadtest.trace import RequestTrace

Slo = Mapping[str, float]
"""Limit of each metric by name, in the unit of the metric."""


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
    def from_values(cls, values: Sequence[float]) -> "Distribution | None":
        """Calculate the distribution of values, or return ``None`` if there are no values."""
        if not values:
            return None
        p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
        return cls(len(values), float(np.mean(values)), p50, p95, p99, max(values))


@dataclass(frozen=True)
class ClientOverhead:
    """Distortion of the measurement by the client itself."""

    start_lag_ms: Distribution
    """Delay from the scheduled start of a request to the actual one, which is part of every latency."""
    loop_lag_ms: Distribution | None
    """Delays of the event loop, which limit the accuracy of timestamps."""
    pacing_lag_ms: Distribution | None
    """Maximum delay of a frame in each live stream."""
    cpu_share: float
    """Share of one core that the client uses; near 1, the client is the bottleneck instead of the endpoint."""


@dataclass(frozen=True)
class EndpointSummary:
    """Results of one load against one endpoint. Distributions exclude failed requests, which ``failures`` contains."""

    load: str
    requests: int
    elapsed_s: float
    failures: dict[str, int]
    """Number of failures by reason."""
    metrics: dict[str, Distribution]
    requests_per_s: float
    chars_per_s_per_gpu: float | None
    """Characters in the synthesized texts."""
    tokens_per_s: float | None
    audio_s_per_s: float | None
    """Seconds of audio synthesized or transcribed per second: the number of real-time streams."""
    wait_rate: float | None
    """Share of speech streams that starve at least once."""
    goodput_per_s: float | None
    """Requests per second that meet all limits of the SLO; a failed request meets none."""
    goodput_share: float | None
    usd_per_audio_hour: float | None
    harness: ClientOverhead


def summarize_run(run: LoadRun, *, slo: Slo, gpus: int, usd_per_hour: float | None) -> EndpointSummary:
    """Calculate distributions and rates of a run.

    Args:
        gpus: Number of GPUs of the endpoint.
        usd_per_hour: Price of the endpoint's hardware, or ``None`` if unknown.
    """
    answered = run.successful_traces
    speech = [trace for trace in answered if trace.playback_stall_s is not None]
    good = sum(_meets_slo(trace, slo) for trace in answered)
    audio_rate = sum(trace.audio_s for trace in answered) / run.elapsed_s
    tokens = [trace.output_tokens for trace in answered if trace.output_tokens is not None]
    distributions = {
        metric.name: Distribution.from_values([value for trace in answered for value in metric.extract_values(trace)])
        for metric in METRICS.values()
    }
    return EndpointSummary(
        load=str(run.load),
        requests=len(run.traces),
        elapsed_s=run.elapsed_s,
        failures=dict(Counter(trace.error for trace in run.traces if trace.error is not None).most_common()),
        metrics={name: result for name, result in distributions.items() if result},
        requests_per_s=len(answered) / run.elapsed_s,
        chars_per_s_per_gpu=sum(trace.input_chars for trace in speech) / run.elapsed_s / gpus if speech else None,
        tokens_per_s=sum(tokens) / run.elapsed_s if tokens else None,
        audio_s_per_s=audio_rate or None,
        wait_rate=sum(bool(trace.playback_stall_s) for trace in speech) / len(speech) if speech else None,
        goodput_per_s=good / run.elapsed_s if slo else None,
        goodput_share=good / len(run.traces) if slo else None,
        usd_per_audio_hour=usd_per_hour / audio_rate if usd_per_hour and audio_rate else None,
        harness=_summarize_client_overhead(run),
    )


def _meets_slo(trace: RequestTrace, slo: Slo) -> bool:
    """Return True if every limited metric has values, and all of them are within its limit."""
    values = {name: METRICS[name].extract_values(trace) for name in slo}
    return all(result and max(result) <= slo[name] for name, result in values.items())


def _summarize_client_overhead(run: LoadRun) -> ClientOverhead:
    start_lag = Distribution.from_values([1000 * (trace.started_s - trace.intended_s) for trace in run.traces])
    if start_lag is None:
        raise ValueError("a run without requests has no results")
    pacing_lags_ms = [1000 * trace.pacing_lag_s for trace in run.traces if trace.input_ended_s is not None]
    loop_lag = Distribution.from_values([1000 * lag for lag in run.loop_lags_s])
    return ClientOverhead(start_lag, loop_lag, Distribution.from_values(pacing_lags_ms), run.cpu_s / run.elapsed_s)
