"""Measures streams per core, from memory and without loss through a veth and AF_XDP."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.dataplane import native
from bench.dataplane.native import Measurement
from bench.product import PRODUCT_BUILD_FOLDER, PROJECT, ROOT
from voice_ops.output import create_table

CEILING_STREAM_COUNTS = (2000, 4000, 8000)
BATCH_STREAMS, BATCH_SIZES = 4000, (1, 4, 8, 16, 32)
CEILING_TARGET, LOSS_FREE_TARGET = 8000, 4000
BASELINE_COMMIT = "6b9bf0b0714d591d1104c0eba7cd472a50919095"
"""Baseline commit for streams per core. It is the last commit before the VAD processed eight values at a time."""
BASELINE_PATCH = Path(__file__).with_name("baseline.patch")
"""Patch that makes the baseline write packets on another CPU, as this commit does, so that the packets are not in the
measured CPU's caches."""
LIVE_STREAM_COUNTS = (1000, 2000, 3000, 4000, 4500, 5000, 5500, 6000, 7000)
LIVE_SECONDS = 4
MAX_LOSS_RATIO = 1e-5
"""Maximum loss that counts as no loss. A loss of one packet in 100,000 is attributed to the network, not to the
host."""
E2E_TESTS_FOLDER = PROJECT / "tests/e2e"


@dataclass(frozen=True)
class LiveRoundsSummary:
    """Results of several rounds with the same number of streams through the running data plane."""

    streams: int
    lost: tuple[float, ...]
    """Share of lost packets in each round."""
    late: float
    """Delay of the sender in its best round, relative to the duration."""
    cycles_per_packet: dict[str, float]
    ring_percent: int
    """Maximum occupancy of the receive ring in the worst round."""
    speech: float
    drops: dict[str, int]

    @property
    def sender_keeps_up(self) -> bool:
        """Whether the sender sent all streams in real time in its best round."""
        return self.late < 0.01  # noqa: PLR2004


def measure_ceiling(rounds: int, audio: Path) -> list[Measurement]:
    """Measure the cost per packet from memory, with plain RTP and with each SRTP suite."""
    streams = [*map(str, CEILING_STREAM_COUNTS), *(f"{BATCH_STREAMS}/{suite}" for suite in ("srtp", "gcm"))]
    return native.run_benchmark("time_streams", str(rounds), str(native.VAD_MODULE), str(audio), *streams)


def compare_with_baseline(rounds: int, audio: Path) -> list[tuple[Measurement, Measurement]]:
    """Measure the baseline commit and this commit in turn, each with its own VAD.

    Returns:
        Pairs of measurements of the baseline and of this commit.


    Raises:
        subprocess.CalledProcessError: The commit is not in the history, or it does not compile.
    """
    before = check_out_baseline()
    programs = [(before / native.BUILD_FOLDER.relative_to(ROOT), before / native.VAD_MODULE.relative_to(ROOT))]
    programs.append((native.BUILD_FOLDER, native.VAD_MODULE))
    runs: dict[tuple[int, str], list[Measurement]] = {}
    for _ in range(rounds):
        for index, (build, module) in enumerate(programs):
            for one in native.run_benchmark(
                "time_streams", "3", str(module), str(audio), str(BATCH_STREAMS), build=build
            ):
                runs.setdefault((index, one.name), []).append(one)
    return [
        (native.combine_rounds(runs[0, name]), native.combine_rounds(runs[1, name]))
        for name in ("poller alone", "with shipping")
    ]


def measure_batches(rounds: int, audio: Path) -> list[Measurement]:
    """Measure streams per core for several batch sizes of the poller."""
    sizes = [f"{BATCH_STREAMS}/{size}" for size in BATCH_SIZES]
    results = native.run_benchmark("time_streams", str(rounds), str(native.VAD_MODULE), str(audio), *sizes)
    return [one for one in results if one.name == "poller alone"]


def check_out_baseline() -> Path:
    """Return the folder that contains a checkout of the baseline commit with its benchmarks.

    The first call builds them, which takes some minutes.

    Raises:
        subprocess.CalledProcessError: The commit is not in the history, or it does not compile.
    """
    return native.check_out_commit(BASELINE_COMMIT, BASELINE_PATCH)


def measure_live_rounds(rounds: int, audio: Path, root: Path = ROOT) -> list[LiveRoundsSummary]:
    """Run a checkout's data plane with a veth. The result is empty if the user is not root."""
    if os.geteuid() != 0:
        return []
    path = os.pathsep.join(
        [str(root / E2E_TESTS_FOLDER.relative_to(ROOT)), str(root), str(root / "images/runtime/src")]
    )
    build = root / PRODUCT_BUILD_FOLDER.relative_to(ROOT)
    environment = os.environ | {"PYTHONPATH": path, "VOICE_DATAPLANE_BUILD": str(build / "src")}
    # The data plane reads the XDP program from a file, which the benchmarks of some checkouts do not build.
    subprocess.run(["ninja", "--quiet", "-C", str(build), "src/steer.bpf.o"], check=True)  # noqa: S603, S607
    command = [sys.executable, "-m", "bench.dataplane.live", str(audio), str(rounds), str(LIVE_SECONDS)]
    command += map(str, LIVE_STREAM_COUNTS)
    output = subprocess.run(  # noqa: S603
        command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True, start_new_session=True
    ).stdout
    results = sorted(map(json.loads, output.splitlines()), key=lambda one: one["streams"])
    return [
        _summarize_rounds(streams, list(each)) for streams, each in groupby(results, key=lambda one: one["streams"])
    ]


def _summarize_rounds(streams: int, rounds: list[dict[str, Any]]) -> LiveRoundsSummary:
    best = min(rounds, key=lambda one: one["lost"])
    drops: Counter[str] = Counter()
    for one in rounds:
        drops.update(one["drops"])
    return LiveRoundsSummary(
        streams,
        lost=tuple(one["lost"] / one["sent"] for one in rounds),
        late=min(one["seconds"] / one["asked_s"] for one in rounds) - 1,
        cycles_per_packet=best["cycles_per_packet"],
        ring_percent=round(max(one["rx_ring_percent"] for one in rounds)),
        speech=median(one["speech_share"] for one in rounds),
        drops=dict(drops),
    )


def find_max_loss_free_streams(results: Sequence[LiveRoundsSummary], of: str = "best") -> int:
    """Return the maximum number of streams without loss, in the best or the median round; 0 if each number had loss.

    The first number of streams may have loss that later ones do not have: sessions use their buffers for the first
    time, so their pages are not mapped yet.
    """
    lost = {one.streams: min(one.lost) if of == "best" else median(one.lost) for one in results if one.sender_keeps_up}
    return max((streams for streams, share in lost.items() if share <= MAX_LOSS_RATIO), default=0)


def build_ceiling_table(group: list[Measurement]) -> Table:
    """Return a table of the cost per packet for each stage, and the resulting streams per core."""
    times = [one for one in group if one.unit == "ns"]
    total_ns = sum(one.median for one in times)
    rendered = create_table(f"{group[0].group}, {len(group[0].rounds)} rounds", [""], ["median", "best", "share"])
    for one in group:
        share = f"{one.median / total_ns:.0%}" if one in times else ""
        rendered.add_row(one.name, f"{one.median:,.4g} {one.unit}", f"{one.best:,.4g}", share)
    return rendered


def build_batch_table(results: Sequence[Measurement]) -> Table:
    """Return a table of the streams per core by batch size. The product uses the last size."""
    title = f"{BATCH_STREAMS} streams, by batch, {len(results[0].rounds)} rounds in turn"
    rendered = create_table(title, [""], ["streams a core, median", "best", "× one at a time"])
    for one in results:
        rendered.add_row(
            one.group.split(", ")[-1], f"{one.median:,.4g}", f"{one.best:,.4g}", f"{one.median / results[0].median:.2f}"
        )
    return rendered


def build_baseline_table(results: Sequence[tuple[Measurement, Measurement]]) -> Table:
    """Return a table of streams per core for this commit and the baseline commit."""
    title = f"{results[0][0].group}, beside commit {BASELINE_COMMIT[:7]}, {len(results[0][0].rounds)} rounds"
    rendered = create_table(title, [""], ["before, median", "now, median", "× before", "best"])
    for before, now in results:
        ratio = f"{now.median / before.median:.2f}"
        rendered.add_row(now.name, f"{before.median:,.4g}", f"{now.median:,.4g}", ratio, f"{now.best:,.4g}")
    return rendered


def build_live_table(results: Sequence[LiveRoundsSummary]) -> Table:
    """Return a table of the loss by number of streams."""
    title = f"veth + AF_XDP, {LIVE_SECONDS} s a round, {len(results[0].lost)} rounds"
    rendered = create_table(
        title, [], ["streams", "lost, median", "best", "worst", "fullest ring", "sender", "dropped"]
    )
    for one in results:
        lost = [f"{share:.4%}" for share in (median(one.lost), min(one.lost), max(one.lost))]
        sender = "keeps up" if one.sender_keeps_up else f"{one.late:.0%} late"
        drops = ", ".join(f"{name} {count}" for name, count in one.drops.items())
        rendered.add_row(f"{one.streams:,}", *lost, f"{one.ring_percent} %", sender, drops)
    return rendered
