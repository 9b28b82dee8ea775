"""A load test, from the discovery of models to the report."""

import asyncio
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter

from voice_ops.loadtest.compare import compare_rounds, run_interleaved
from voice_ops.loadtest.drivers import Api, Driver
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.failures import REQUEST_ERRORS, describe_failure
from voice_ops.loadtest.load import Load, LoadGenerator, merge_runs
from voice_ops.loadtest.report import Comparison, EndpointResult, LoadTestReport
from voice_ops.loadtest.scenarios import Scenario
from voice_ops.loadtest.summary import Slo, summarize_run
from voice_ops.loadtest.trace import RequestTrace
from voice_ops.progress import Progress

_HINT_BY_RESPONSE = {
    "HTTP 401": "specify the variable that contains the key: --api-key-env NAME",
    "HTTP 403": "the key has no permission; specify another one: --api-key-env NAME",
    "HTTP 404": "check the URL, and specify a model of the endpoint: --model NAME",
    "cannot connect": "check that the endpoint is running and reachable from this machine",
    "timeout": "increase the timeout: --timeout SECONDS",
}


class LoadTestError(Exception):
    """The endpoint cannot be tested. The message contains its response and a remedy."""


@dataclass(frozen=True)
class LoadTest:
    """All options of a load test."""

    api: Api
    endpoints: Sequence[Endpoint]
    """The measured endpoint, and the baseline if there is one. By default, the only model of an endpoint is used."""
    create_driver: Callable[[Endpoint], Driver]
    requests_by_load: Mapping[Load, int]
    """Number of requests to each endpoint, by load."""
    slo: Slo
    gpu_count: int
    usd_per_hour: float | None
    scenario: Scenario | None
    round_count: int
    warmup_requests: int
    timeout_s: float
    seed: int
    setup: Mapping[str, str]

    async def run(self, progress: Progress) -> LoadTestReport:
        """Query the endpoints' models, warm up the endpoints, and run every load level.

        Raises:
            LoadTestError: An endpoint responds to none of the warm-up requests.
        """
        started = datetime.now(UTC)
        results: list[EndpointResult] = []
        comparisons: list[Comparison] = []
        async with AsyncExitStack() as stack:
            endpoints = [await self._select_model(endpoint) for endpoint in self.endpoints]
            drivers = [self.create_driver(await stack.enter_async_context(endpoint)) for endpoint in endpoints]
            for driver in drivers:
                with progress.phase(f"warm up {driver.endpoint.name}"):
                    await self._warm_up(driver)
            for load, requests in self.requests_by_load.items():
                progress_count = _LoadProgress(requests * len(drivers), progress)
                with progress.phase(f"{load}: {requests} requests" + (" to each" if len(drivers) > 1 else "")):
                    generator = LoadGenerator(self.timeout_s, self.seed, progress_count)
                    rounds = await run_interleaved(generator, drivers, load, requests=requests, rounds=self.round_count)
                for driver, runs in zip(drivers, zip(*rounds, strict=True), strict=True):
                    run = merge_runs(list(runs))
                    summary = summarize_run(run, slo=self.slo, gpus=self.gpu_count, usd_per_hour=self.usd_per_hour)
                    name = driver.endpoint.name
                    published = self.scenario.find_published_figures(name, load) if self.scenario else {}
                    results.append(EndpointResult(name, run, summary, published))
                if len(drivers) > 1:
                    comparisons.append(Comparison(load, compare_rounds(rounds, self.seed)))
        setup = {
            **{one.name: f"{one.url}" + (f", model {one.model}" if one.model else "") for one in endpoints},
            **self.setup,
            "started": f"{started:%Y-%m-%d %H:%M} UTC, from {platform.node()}",
        }
        title = self.scenario.title if self.scenario else f"{self.api.value.capitalize()} under load"
        return LoadTestReport(title, self.api, setup, results, comparisons)

    async def _select_model(self, endpoint: Endpoint) -> Endpoint:
        if not self.api.has_model_parameter:
            return endpoint
        try:
            async with endpoint, asyncio.timeout(self.timeout_s):
                served_models = await endpoint.list_models()
        except REQUEST_ERRORS as error:
            raise _create_load_test_error(endpoint, describe_failure(error, self.timeout_s)) from None
        names = ", ".join(served_models or ()) or "none"
        if endpoint.model and served_models is not None and endpoint.model not in served_models:
            raise LoadTestError(f"{endpoint.url} does not serve the model {endpoint.model}; it serves {names}")
        if not endpoint.model and (served_models is None or len(served_models) != 1):
            raise LoadTestError(f"{endpoint.url} does not list exactly one model ({names}); specify --model NAME")
        return replace(endpoint, model=endpoint.model or (served_models or [""])[0])

    async def _warm_up(self, driver: Driver) -> None:
        """Send a few requests one at a time, without counting them. The last one must succeed."""
        for index in range(self.warmup_requests):
            trace = RequestTrace(f"warm-up-{index}", perf_counter(), perf_counter())
            try:
                async with asyncio.timeout(self.timeout_s):
                    await driver.send(index, trace)
            except REQUEST_ERRORS as error:
                if index == self.warmup_requests - 1:
                    raise _create_load_test_error(driver.endpoint, describe_failure(error, self.timeout_s)) from None


def _create_load_test_error(endpoint: Endpoint, reason: str) -> LoadTestError:
    remedy = next((text for start, text in _HINT_BY_RESPONSE.items() if reason.startswith(start)), "")
    return LoadTestError(f"{endpoint.url}: {reason}" + (f"\n{remedy}" if remedy else ""))


class _LoadProgress:
    """Callback that shows the number of completed requests in a load."""

    def __init__(self, requests: int, progress: Progress) -> None:
        self._requests = requests
        self._progress = progress
        self._done = 0
        self._failed = 0

    def __call__(self, trace: RequestTrace) -> None:
        self._done += 1
        self._failed += trace.error is not None
        self._progress.show_detail(
            f"{self._done} of {self._requests}" + (f", {self._failed} failed" if self._failed else "")
        )
