"""A report: what was asked, what came out, and where doubt is due."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ops.loadtest.compare import Difference
from ops.loadtest.drivers import Api
from ops.loadtest.load import Load, Run
from ops.loadtest.realtime import FRAME_S
from ops.loadtest.scenarios import Published
from ops.loadtest.summary import Summary

_BUSY_CLIENT = 0.9
_LAG_SHARE = 0.1


@dataclass(frozen=True)
class Result:
    """One endpoint under one load."""

    endpoint: str
    run: Run
    summary: Summary
    published: Published

    @property
    def doubts(self) -> list[str]:
        """What speaks against these figures."""
        who = f"{self.endpoint}, {self.summary.load}"
        found = [
            f"{who}: {count} of {self.summary.requests} failed: {reason}"
            for reason, count in self.summary.failures.items()
        ]
        harness, first = self.summary.harness, self.summary.metrics.get("first")
        if harness.cpu_share > _BUSY_CLIENT:
            found.append(
                f"{who}: the client used {harness.cpu_share:.0%} of a core and may be the limit itself; "
                "spread the load over several machines"
            )
        if first and harness.loop_lag_ms and harness.loop_lag_ms.p99 > _LAG_SHARE * first.p50:
            found.append(
                f"{who}: the client's own lag (p99 {harness.loop_lag_ms.p99:.1f} ms) is more than "
                f"{_LAG_SHARE:.0%} of the median first piece; use an idle machine"
            )
        if harness.pacing_lag_ms and harness.pacing_lag_ms.p99 > 1000 * FRAME_S:
            found.append(
                f"{who}: live feeds fell behind speech by up to {harness.pacing_lag_ms.max:.0f} ms, more than a frame; "
                "use fewer streams or an idle machine"
            )
        return found


@dataclass(frozen=True)
class Comparison:
    """Two endpoints under one load."""

    load: Load
    differences: Sequence[Difference]


@dataclass(frozen=True)
class Report:
    """Everything that a load test found."""

    title: str
    api: Api
    setup: Mapping[str, str]
    """What was asked, for a reader: endpoint, model, input, seed, versions."""
    results: Sequence[Result]
    comparisons: Sequence[Comparison]

    @property
    def doubts(self) -> list[str]:
        """What speaks against the figures of any result."""
        return [doubt for result in self.results for doubt in result.doubts]

    @property
    def failed(self) -> bool:
        """Whether some load got no answer at all."""
        return any(not result.run.answered for result in self.results)

    def as_dict(self) -> dict[str, object]:
        return {
            "title": self.title,
            "api": self.api.value,
            "setup": dict(self.setup),
            "results": [
                {"endpoint": result.endpoint, **asdict(result.summary), "published": dict(result.published)}
                for result in self.results
            ],
            "comparisons": [
                {
                    "load": str(comparison.load),
                    "differences": [
                        asdict(difference) | {"difference": difference.difference, "shown": difference.shown}
                        for difference in comparison.differences
                    ],
                }
                for comparison in self.comparisons
            ],
            "doubts": self.doubts,
        }
