"""Report of a load test: options, results and caveats."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from voice_ops.loadtest.compare import Difference
from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.load import Load, LoadRun
from voice_ops.loadtest.realtime import FRAME_DURATION_S
from voice_ops.loadtest.scenarios import PublishedFigures
from voice_ops.loadtest.summary import EndpointSummary

_MAX_CLIENT_CPU_FRACTION = 0.9
_MAX_LAG_FRACTION = 0.1


@dataclass(frozen=True)
class EndpointResult:
    """Results of an endpoint with one load."""

    endpoint: str
    run: LoadRun
    summary: EndpointSummary
    published_figures: PublishedFigures

    @property
    def warnings(self) -> list[str]:
        """Caveats about these results."""
        subject = f"{self.endpoint}, {self.summary.load}"
        matches = [
            f"{subject}: {count} of {self.summary.requests} failed: {reason}"
            for reason, count in self.summary.failures.items()
        ]
        harness, first = self.summary.harness, self.summary.metrics.get("first")
        if harness.cpu_share > _MAX_CLIENT_CPU_FRACTION:
            matches.append(
                f"{subject}: the client used {harness.cpu_share:.0%} of a core and may itself be the bottleneck; "
                "distribute the load over several machines"
            )
        if first and harness.loop_lag_ms and harness.loop_lag_ms.p99 > _MAX_LAG_FRACTION * first.p50:
            matches.append(
                f"{subject}: the client's own lag (p99 {harness.loop_lag_ms.p99:.1f} ms) is more than "
                f"{_MAX_LAG_FRACTION:.0%} of the median first piece; use an idle machine"
            )
        if harness.pacing_lag_ms and harness.pacing_lag_ms.p99 > 1000 * FRAME_DURATION_S:
            matches.append(
                f"{subject}: live streams lagged real time by up to {harness.pacing_lag_ms.max:.0f} ms, more than a "
                "frame; use fewer streams or an idle machine"
            )
        return matches


@dataclass(frozen=True)
class Comparison:
    """A comparison of two endpoints with one load."""

    load: Load
    differences: Sequence[Difference]


@dataclass(frozen=True)
class LoadTestReport:
    """All results of a load test."""

    title: str
    api: Api
    setup: Mapping[str, str]
    """Settings in readable form: endpoint, model, input, seed, versions."""
    results: Sequence[EndpointResult]
    comparisons: Sequence[Comparison]

    @property
    def warnings(self) -> list[str]:
        """Caveats about all results."""
        return [doubt for result in self.results for doubt in result.warnings]

    @property
    def has_failed_load(self) -> bool:
        """Whether all requests of a load failed."""
        return any(not result.run.successful_traces for result in self.results)

    def as_dict(self) -> dict[str, object]:
        return {
            "title": self.title,
            "api": self.api.value,
            "setup": dict(self.setup),
            "results": [
                {"endpoint": result.endpoint, **asdict(result.summary), "published": dict(result.published_figures)}
                for result in self.results
            ],
            "comparisons": [
                {
                    "load": str(comparison.load),
                    "differences": [
                        asdict(difference) | {"difference": difference.difference, "shown": difference.is_significant}
                        for difference in comparison.differences
                    ],
                }
                for comparison in self.comparisons
            ],
            "doubts": self.warnings,
        }
