"""Defines the goals of the streaming policy on two cores with tiny.en, and checks them."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faster_whisper import WhisperModel
from rich.table import Table

from bench.product import ROOT
from bench.voice.call import create_call
from bench.voice.step import LoadResult
from voice_ops.demo.command import calculate_word_error_rate
from voice_ops.output import create_table

HAS_PAUSES_BY_KIND = {"sentences": True, "monologue": False}
"""Kinds of audio, and whether the audio has pauses."""


@dataclass(frozen=True)
class Goal:
    """A measured value with its upper limits.

    Attributes:
        limits_by_streams: Limit by number of streams; the limit for the nearest number applies.
    """

    name: str
    value: Callable[[LoadResult], float]
    limits_by_streams: dict[int, float]

    def is_met(self, step: LoadResult) -> bool:
        """Return True if the measured value is within the limit. A missing value is not within the limit."""
        return self.value(step) <= self.get_limit(step.streams)

    def get_limit(self, streams: int) -> float:
        return self.limits_by_streams[min(self.limits_by_streams, key=lambda each: abs(each - streams))]


def _select_percentile(percentiles: tuple[float, ...], index: int) -> float:
    return percentiles[index] if percentiles else float("nan")


GOALS = (
    Goal("CPU s of the ASR tier, a minute of a stream", lambda step: step.cpu_s["asr"], {8: 6.0, 16: 4.0}),
    Goal("first text, s, median", lambda step: _select_percentile(step.first_text_s, 0), {8: 1.0}),
    Goal(
        "committed words behind speech, s, p95", lambda step: _select_percentile(step.committed_s, 1), {8: 4.0, 16: 6.0}
    ),
    Goal("final behind the end of speech, s, median", lambda step: _select_percentile(step.final_s, 0), {8: 0.25}),
    Goal("words withdrawn", lambda step: step.withdrawn, {8: 0.2}),
    Goal("committed words withdrawn", lambda step: step.broken, {8: 0}),
)
"""Goals of the recommended policy. The delay of final transcripts includes the detection of the end of a turn."""
REPORTED_METRICS: tuple[tuple[str, Callable[[LoadResult], float]], ...] = (
    ("words wrong", lambda step: step.word_error_rate),
    ("partials shed", lambda step: step.shed),
    ("CPU share of other processes", lambda step: step.others_share),
)


def check_out_commit(commit: str, folder: Path) -> Path:
    """Check out a commit to a folder.

    Raises:
        subprocess.CalledProcessError: The commit does not exist.
    """
    folder.mkdir()
    git = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603, S607
    subprocess.run(["tar", "-x"], cwd=folder, input=git.stdout, check=True)  # noqa: S607
    return folder


def measure_faster_whisper(model: Path, kind: str, streams: int) -> tuple[float, float]:
    """Return the word error rate and the CPU seconds per minute for faster-whisper alone.

    faster-whisper transcribes whole calls with a beam size of 1.
    """
    whisper, error_rate, minutes = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=1), 0.0, 0.0
    start_cpu_s = time.process_time()
    for number in range(streams):
        one = create_call(number, pauses=HAS_PAUSES_BY_KIND[kind])
        segments, _ = whisper.transcribe(one.samples.astype("float32") / 32768, beam_size=1)
        error_rate += calculate_word_error_rate(one.text, " ".join(segment.text for segment in segments)) / streams
        minutes += one.duration_s / 60
    return error_rate, (time.process_time() - start_cpu_s) / minutes


def describe_missed_goals(steps: dict[str, LoadResult]) -> list[str]:
    """Return descriptions of a checkout's missed goals and failed calls, by kind of audio."""
    missed_goals = [
        f"{kind}: {goal.name} ({goal.value(step):.2f}, goal {goal.get_limit(step.streams):g})"
        for kind, step in steps.items()
        for goal in GOALS
        if not goal.is_met(step)
    ]
    return missed_goals + [
        f"{kind}: {len(step.failed)} calls failed, {step.lost} sentences without a final"
        for kind, step in steps.items()
        if step.failed or step.lost
    ]


def build_goals_table(kind: str, steps: dict[str, LoadResult], alone: tuple[float, float]) -> Table:
    """Return a table of the goals and the measured values for one kind of audio."""
    streams = next(iter(steps.values())).streams
    rendered = create_table(f"{kind}, {streams} streams", [""], ["goal", *steps, "faster-whisper alone"])
    for goal in GOALS:
        limits_by_streams = goal.get_limit(streams)
        rows = [
            f"{goal.value(step):.2f}" if goal.is_met(step) else f"[red]{goal.value(step):.2f} missed[/]"
            for step in steps.values()
        ]
        rendered.add_row(goal.name, f"{limits_by_streams:g}", *rows, f"{alone[1]:.2f}" if goal is GOALS[0] else "")
    for name, value in REPORTED_METRICS:
        reference = f"{alone[0]:.1%}" if name == "words wrong" else ""
        rendered.add_row(name, "", *(f"{value(step):.1%}" for step in steps.values()), reference)
    failed = [str(len(step.failed) + step.lost) for step in steps.values()]
    rendered.add_row("calls that failed, sentences without a final", "0", *failed, "")
    return rendered
