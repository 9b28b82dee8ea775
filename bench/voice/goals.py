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
from voice_blueprint.contract.session_api import DEFAULT_END_OF_TURN_MS
from voice_ops.demo.command import calculate_word_error_rate
from voice_ops.output import create_table

HAS_PAUSES_BY_KIND = {"sentences": True, "monologue": False}
"""Kinds of audio, and whether the audio has pauses."""


REFERENCE_CPU_S = 2.2
"""CPU time of faster-whisper alone for one minute of sentences on the machine for which the limits are defined, two
virtual CPUs of an Intel Xeon with AMX, seconds (docs/measurements.md)."""


@dataclass(frozen=True)
class Goal:
    """A measured value with its upper limit on the reference machine.

    Attributes:
        waiting_s: Part of the limit that is independent of the machine, if the rest is processing time.
    """

    name: str
    value: Callable[[LoadResult], float]
    limit: float
    waiting_s: float | None = None

    def is_met(self, step: LoadResult, slowness: float) -> bool:
        """Return True if the measured value is within the limit. A missing value is not within the limit."""
        return self.value(step) <= self.get_limit(slowness)

    def get_limit(self, slowness: float) -> float:
        """Return the limit on a machine whose CPU is slower by a factor."""
        return self.limit if self.waiting_s is None else self.waiting_s + (self.limit - self.waiting_s) * slowness


def _select_percentile(percentiles: tuple[float, ...], index: int) -> float:
    return percentiles[index] if percentiles else float("nan")


MAX_CPU_RATIO_BY_KIND = {"sentences": 3.0, "monologue": 1.5}
"""Limits of the ASR tier's CPU time, relative to faster-whisper alone in the same run.

faster-whisper transcribes a call once, when it has ended. The tier also sends partial transcripts, but transcribes no
silence, and limits the window that it transcribes. The ratios are highest with few streams, when the engine skips no
partial transcript: 2.4 and 1.1 with one stream.
"""
END_OF_TURN_S = DEFAULT_END_OF_TURN_MS / 1000
GOALS = (
    Goal("first text, s, median", lambda step: _select_percentile(step.first_text_s, 0), 1.0, waiting_s=0.7),
    Goal(
        "committed words behind speech, s, p95",
        lambda step: _select_percentile(step.committed_s, 1),
        4.0,
        waiting_s=2.0,
    ),
    Goal(
        "final behind the end of speech, s, median",
        lambda step: _select_percentile(step.final_s, 0),
        END_OF_TURN_S + 0.25,
        waiting_s=END_OF_TURN_S,
    ),
    Goal("words withdrawn", lambda step: step.withdrawn, 0.2),
    Goal("committed words withdrawn", lambda step: step.broken, 0),
)
"""Goals of the recommended policy, for each kind of audio.

The engine waits for 0.7 s of speech before it transcribes, and commits a word after two transcripts, one second apart.
"""
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


def calculate_slowness(alone_cpu_s: float) -> float:
    """Return how much slower this machine is than the reference machine; at least 1.

    Args:
        alone_cpu_s: CPU time of faster-whisper alone for one minute of sentences, seconds.
    """
    return max(1.0, alone_cpu_s / REFERENCE_CPU_S)


def list_goals(kind: str, alone_cpu_s: float) -> tuple[Goal, ...]:
    """Return the goals for one kind of audio.

    Args:
        alone_cpu_s: CPU time of faster-whisper alone for one minute of this kind of audio, seconds.
    """
    ratio = Goal(
        "CPU of the ASR tier, x faster-whisper alone",
        lambda step: step.cpu_s["asr"] / alone_cpu_s,
        MAX_CPU_RATIO_BY_KIND[kind],
    )
    return ratio, *GOALS


def describe_missed_goals(kind: str, step: LoadResult, alone_cpu_s: float, slowness: float) -> list[str]:
    """Return descriptions of a checkout's missed goals and failed calls for one kind of audio."""
    missed = [
        f"{kind}: {goal.name} ({goal.value(step):.2f}, goal {goal.get_limit(slowness):.3g})"
        for goal in list_goals(kind, alone_cpu_s)
        if not goal.is_met(step, slowness)
    ]
    if step.failed or step.lost:
        missed.append(f"{kind}: {len(step.failed)} calls failed, {step.lost} sentences without a final")
    return missed


def build_goals_table(kind: str, steps: dict[str, LoadResult], alone: tuple[float, float], slowness: float) -> Table:
    """Return a table of the goals and the measured values for one kind of audio."""
    streams = next(iter(steps.values())).streams
    title = f"{kind}, {streams} streams, a CPU {slowness:.1f} times slower than the reference"
    rendered = create_table(title, [""], ["goal", *steps, "faster-whisper alone"])
    for goal in list_goals(kind, alone[1]):
        rows = [
            f"{goal.value(step):.2f}" if goal.is_met(step, slowness) else f"[red]{goal.value(step):.2f} missed[/]"
            for step in steps.values()
        ]
        rendered.add_row(goal.name, f"{goal.get_limit(slowness):.3g}", *rows, "")
    failed = [str(len(step.failed) + step.lost) for step in steps.values()]
    rendered.add_row("calls that failed, sentences without a final", "0", *failed, "")
    cpu_s = [f"{step.cpu_s['asr']:.2f}" for step in steps.values()]
    rendered.add_row("CPU s of the ASR tier, a minute of a stream", "", *cpu_s, f"{alone[1]:.2f}")
    for name, value in REPORTED_METRICS:
        reference = f"{alone[0]:.1%}" if name == "words wrong" else ""
        rendered.add_row(name, "", *(f"{value(step):.1%}" for step in steps.values()), reference)
    return rendered
