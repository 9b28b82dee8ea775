"""Defines the goals of the data plane, as ratios to the baseline commit or to plain RTP in the same run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.dataplane import streams
from bench.dataplane.native import Measurement
from bench.dataplane.streams import BASELINE_COMMIT, BATCH_STREAMS, LiveRoundsSummary
from voice_ops.output import create_table

MIN_PLAIN_RATIO, ASPIRED_RATIO = 1.6, 2.0
"""Required and desired ratios of this commit's streams per core, including shipping, to those of the baseline
commit."""
MIN_SUITE_RATIOS = {"SRTP": 0.75, "SRTP with AES-GCM": 0.8}
"""Minimum ratio of each SRTP suite's streams per core to those of plain RTP in the same run."""
MIN_AF_XDP_RATIO = 1.3
"""Minimum ratio of this commit's loss-free streams, through a veth and AF_XDP, to those of the baseline commit."""


@dataclass(frozen=True)
class Goal:
    """A measured ratio and its minimum.

    Attributes:
        ratio: Measured value; NaN if it was not measured.
    """

    name: str
    minimum: float
    ratio: float

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.minimum

    @property
    def was_measured(self) -> bool:
        return not math.isnan(self.ratio)


def create_stream_goals(
    ceiling: Sequence[Measurement], baseline: Sequence[tuple[Measurement, Measurement]]
) -> list[Goal]:
    """Return the goals for streams whose packets are read from memory instead of a network interface."""
    (before, now), *_ = [pair for pair in baseline if pair[0].name == "with shipping"]
    measured_goals = [
        Goal(
            f"plain RTP, with shipping, times {BASELINE_COMMIT[:7]} (wish: {ASPIRED_RATIO:g})",
            MIN_PLAIN_RATIO,
            now.median / before.median,
        )
    ]
    alone = [one for one in ceiling if one.name == "poller alone" and one.group.startswith(f"{BATCH_STREAMS} ")]
    groups = {one.group.split(", ")[-1]: one.median for one in alone}
    (plain,) = [median for name, median in groups.items() if name not in MIN_SUITE_RATIOS]
    measured_goals += [
        Goal(f"{suite}, times plain RTP", minimum, groups[suite] / plain) for suite, minimum in MIN_SUITE_RATIOS.items()
    ]
    return measured_goals


def create_af_xdp_goal(before: Sequence[LiveRoundsSummary], now: Sequence[LiveRoundsSummary]) -> Goal:
    """Return the goal for packets that pass through the kernel."""
    minimum, after_streams = streams.find_max_loss_free_streams(before), streams.find_max_loss_free_streams(now)
    return Goal(
        f"AF_XDP over a veth, times {BASELINE_COMMIT[:7]}",
        MIN_AF_XDP_RATIO,
        after_streams / minimum if minimum else math.nan,
    )


def build_goals_table(goals: Iterable[Goal]) -> Table:
    """Return a table of the goals and the measured values."""
    rendered = create_table("Goals, ratios of one run", [""], ["goal", "measured", "holds"])
    for goal in goals:
        measured = f"{goal.ratio:.2f}" if goal.was_measured else "-"
        verdict = "yes" if goal.is_met else "no" if goal.was_measured else "not measured"
        rendered.add_row(goal.name, f"≥ {goal.minimum:g}", measured, verdict)
    return rendered
