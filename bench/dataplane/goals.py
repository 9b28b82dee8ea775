"""Defines the goals of the data plane, as ratios to the baseline commit or to plain RTP in the same run."""

from collections.abc import Sequence

from bench.dataplane import streams
from bench.dataplane.native import Measurement
from bench.dataplane.streams import BASELINE_COMMIT, BATCH_STREAMS, LIVE_STREAM_COUNTS, LiveRoundsSummary
from bench.goals import Goal

# The minimums detect regressions. No processor reached the targets, which docs/measurements.md lists with the reasons.
MIN_PLAIN_RATIO = 1.05
"""Minimum ratio of this commit's streams per core, including shipping, to those of the baseline commit."""
MIN_SUITE_RATIOS = {"SRTP": 0.6, "SRTP with AES-GCM": 0.6}
"""Minimum ratio of each SRTP suite's streams per core to those of plain RTP in the same run."""
MIN_AF_XDP_RATIO = 0.7
"""Minimum ratio of this commit's loss-free streams, through a veth and AF_XDP, to those of the baseline commit. The
next lower number of streams is 10 to 50 % lower."""


def create_stream_goals(
    ceiling: Sequence[Measurement], baseline: Sequence[tuple[Measurement, Measurement]]
) -> list[Goal]:
    """Return the goals for streams whose packets are read from memory instead of a network interface."""
    (before, now), *_ = [pair for pair in baseline if pair[0].name == "with shipping"]
    plain_ratio = now.median / before.median
    alone = [one for one in ceiling if one.name == "poller alone" and one.group.startswith(f"{BATCH_STREAMS} ")]
    groups = {one.group.split(", ")[-1]: one.median for one in alone}
    (plain,) = [median for name, median in groups.items() if name not in MIN_SUITE_RATIOS]
    return [
        Goal(f"plain RTP, with shipping, times {BASELINE_COMMIT[:7]}", plain_ratio, MIN_PLAIN_RATIO, is_minimum=True),
        *(
            Goal(f"{suite}, times plain RTP", groups[suite] / plain, minimum, is_minimum=True)
            for suite, minimum in MIN_SUITE_RATIOS.items()
        ),
    ]


def create_af_xdp_goals(before: Sequence[LiveRoundsSummary], now: Sequence[LiveRoundsSummary]) -> list[Goal]:
    """Return the goal for packets that pass through the kernel, or no goal if they were not measured.

    If each number of streams has loss in both commits, the goal is missed.
    """
    if not now:
        return []
    before_streams, now_streams = streams.find_max_loss_free_streams(before), streams.find_max_loss_free_streams(now)
    ratio = now_streams / (before_streams or LIVE_STREAM_COUNTS[0])
    return [Goal(f"AF_XDP over a veth, times {BASELINE_COMMIT[:7]}", ratio, MIN_AF_XDP_RATIO, is_minimum=True)]
