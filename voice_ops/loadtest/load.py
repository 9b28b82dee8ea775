"""Load generator with open and closed loops.

In an open loop, arrivals are a Poisson process that is drawn before the first request, and nothing delays them. In a
closed loop, each of a fixed number of callers starts a request when the previous one ends. In both, latency is measured
from the scheduled start of a request, so that neither a stalled endpoint nor a busy client hides waiting time
(coordinated omission).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter, process_time

import numpy as np

from voice_ops.loadtest.drivers import Driver
from voice_ops.loadtest.failures import REQUEST_ERRORS, describe_failure
from voice_ops.loadtest.trace import RequestTrace

_PROBE_INTERVAL_S = 0.01


@dataclass(frozen=True)
class ClosedLoopLoad:
    """A fixed number of concurrent requests."""

    concurrency: int

    def __str__(self) -> str:
        return f"{self.concurrency} at a time"


@dataclass(frozen=True)
class OpenLoopLoad:
    """Poisson arrivals at a mean rate, independent of the endpoint."""

    requests_per_second: float

    def __str__(self) -> str:
        return f"{self.requests_per_second:g}/s Poisson"


Load = ClosedLoopLoad | OpenLoopLoad


@dataclass
class LoadRun:
    """The requests of one load against one endpoint, and the timing accuracy of the client."""

    load: Load
    traces: list[RequestTrace] = field(default_factory=list)
    elapsed_s: float = 0.0
    """Time from the first scheduled start to the end of the last request; for merged runs, the sum of these times."""
    loop_lags_s: list[float] = field(default_factory=list)
    """Delays of the client's event loop, sampled every 10 ms, which limit the accuracy of timestamps."""
    cpu_s: float = 0.0
    """CPU time of the client process."""

    @property
    def successful_traces(self) -> list[RequestTrace]:
        """The requests that succeeded."""
        return [trace for trace in self.traces if trace.error is None]


def merge_runs(runs: list[LoadRun]) -> LoadRun:
    """Merge several runs of the same load into one."""
    return LoadRun(
        runs[0].load,
        [trace for run in runs for trace in run.traces],
        sum(run.elapsed_s for run in runs),
        [lag for run in runs for lag in run.loop_lags_s],
        sum(run.cpu_s for run in runs),
    )


@dataclass(frozen=True)
class LoadGenerator:
    """Applies load to endpoints."""

    timeout_s: float
    seed: int
    on_done: Callable[[RequestTrace], None] = lambda _trace: None

    async def run(self, driver: Driver, load: Load, requests: int, first_index: int = 0) -> LoadRun:
        """Send the requests of a load, and wait for all responses.

        Args:
            first_index: Number of the first request; the number determines the text or recording, and the arrivals.
        """
        run = LoadRun(load)
        cpu = process_time()
        async with _probe_lag(run.loop_lags_s):
            start = perf_counter()
            if isinstance(load, OpenLoopLoad):
                await self._run_open_loop(
                    driver, run, start, self._draw_arrivals(load, requests, first_index), first_index
                )
            else:
                await self._run_closed_loop(
                    driver, run, start, load.concurrency, iter(range(first_index, first_index + requests))
                )
        run.elapsed_s = max(trace.ended_s for trace in run.traces) - min(trace.intended_s for trace in run.traces)
        run.cpu_s = process_time() - cpu
        return run

    def _draw_arrivals(self, load: OpenLoopLoad, requests: int, first_index: int) -> list[float]:
        random = np.random.default_rng([self.seed, first_index])
        return [float(at) for at in random.exponential(1 / load.requests_per_second, requests).cumsum()]

    async def _run_open_loop(
        self, driver: Driver, run: LoadRun, start: float, arrivals: list[float], first_index: int
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for index, arrival in enumerate(arrivals, start=first_index):
                await asyncio.sleep(max(0.0, start + arrival - perf_counter()))
                group.create_task(self._run_request(driver, run, index, start + arrival))

    async def _run_closed_loop(
        self, driver: Driver, run: LoadRun, start: float, concurrency: int, indices: Iterator[int]
    ) -> None:
        async def caller() -> None:
            free_s = start
            for index in indices:
                free_s = (await self._run_request(driver, run, index, free_s)).ended_s

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(caller())

    async def _run_request(self, driver: Driver, run: LoadRun, index: int, intended_s: float) -> RequestTrace:
        trace = RequestTrace(f"load-{self.seed}-{index}", intended_s, perf_counter())
        try:
            async with asyncio.timeout(self.timeout_s):
                await driver.send(index, trace)
        except REQUEST_ERRORS as error:
            trace.error = describe_failure(error, self.timeout_s)
        trace.record_end()
        run.traces.append(trace)
        self.on_done(trace)
        return trace


@asynccontextmanager
async def _probe_lag(lags_s: list[float]) -> AsyncIterator[None]:
    async def probe() -> None:
        while True:
            expected_at = perf_counter() + _PROBE_INTERVAL_S
            await asyncio.sleep(_PROBE_INTERVAL_S)
            lags_s.append(perf_counter() - expected_at)

    task = asyncio.create_task(probe())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
