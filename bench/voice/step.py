"""Measures a contestant with one load."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench.voice.contestants import RunningContestant
from bench.voice.load import CallResult, run_load
from bench.voice.processes import measure_machine_cpu_s

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class LoadResult:
    """Results for a contestant at one load.

    Attributes:
        real_time_factor: Real-time factor of the slowest stream.
        failed: Reasons for failed streams.
        lost: Number of sentences without a final transcript.
        first_text_s: Percentiles of the time from the start of a sentence to its first text.
        final_s: Percentiles of the time from the end of a sentence to its final transcript.
        cpu_s: CPU time of each program per minute of one stream, seconds.
        word_error_rate: Mean word error rate of the streams.
        committed_s: Percentiles of the time from the end of a word to its commitment.
        withdrawn: Share of all displayed words that were withdrawn.
        broken: Number of committed words that were withdrawn.
        shed: Share of partials that the engine skipped.
        callers_share: Share of the machine's CPU time that the load generator used.
        others_share: Share of the machine's CPU time that other processes used.
    """

    contestant: str
    streams: int
    real_time_factor: float
    failed: tuple[str, ...]
    lost: int
    sentences: int
    first_text_s: tuple[float, ...]
    final_s: tuple[float, ...]
    cpu_s: dict[str, float]
    word_error_rate: float
    committed_s: tuple[float, ...]
    withdrawn: float
    broken: int
    shed: float
    callers_share: float
    others_share: float

    @property
    def is_sustained(self) -> bool:
        """Whether no stream failed or lost a final transcript, and all streams were faster than real time."""
        return not self.failed and not self.lost and self.real_time_factor < 1


def measure_load(running: RunningContestant, streams: int, *, pauses: bool = True) -> LoadResult:
    """Run a contestant with a load, and return the results. Without pauses, each stream is a monologue."""
    partials = [running.read_counter(name) for name in ("partials_shed", "partials")]
    before, machine, own_cpu_s, since = (
        running.measure_cpu_s(),
        measure_machine_cpu_s(),
        time.process_time(),
        time.monotonic(),
    )
    outcomes = asyncio.run(run_load(running.gateway, streams, pauses=pauses))
    durations = {name: cpu - before[name] for name, cpu in running.measure_cpu_s().items()}
    capacity_s = (time.monotonic() - since) * (os.cpu_count() or 1)
    callers = time.process_time() - own_cpu_s
    others = measure_machine_cpu_s() - machine - callers - sum(durations.values())
    running.wait_until_idle()
    minutes = sum(each.call.duration_s for each in outcomes) / 60
    sentences = sum(len(each.call.utterance_times) for each in outcomes)
    shed, total = (
        running.read_counter(name) - previous
        for name, previous in zip(("partials_shed", "partials"), partials, strict=True)
    )
    screens = [each.display_metrics for each in outcomes]
    finals = _collect_delays(outcomes, lambda each: each.final_delays_s)
    return LoadResult(
        contestant=running.contestant.name,
        streams=streams,
        real_time_factor=max(each.real_time_factor for each in outcomes),
        failed=tuple(each.error for each in outcomes if each.error),
        lost=sentences - len(finals),
        sentences=sentences,
        first_text_s=_calculate_percentiles(_collect_delays(outcomes, lambda each: each.first_text_delays_s)),
        final_s=_calculate_percentiles(finals),
        cpu_s={name: cpu / minutes for name, cpu in durations.items()},
        word_error_rate=fmean(each.word_error_rate for each in outcomes),
        committed_s=_calculate_percentiles([lag for screen in screens for lag in screen.commit_delays_s]),
        withdrawn=fmean(screen.withdrawn_ratio for screen in screens),
        broken=sum(screen.withdrawn_committed_word_count for screen in screens),
        shed=shed / max(1, shed + total),
        callers_share=callers / capacity_s,
        others_share=max(0.0, others / capacity_s),
    )


def _collect_delays(outcomes: Iterable[CallResult], of: Callable[[CallResult], list[float]]) -> list[float]:
    return [value for outcome in outcomes for value in of(outcome)]


def _calculate_percentiles(values: list[float]) -> tuple[float, ...]:
    return tuple(map(float, np.percentile(values, PERCENTILES))) if values else ()
