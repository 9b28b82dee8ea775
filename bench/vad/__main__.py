# mypy: disable-error-code="import-not-found"
"""Measures the VAD's cost and quality: `python -m bench.vad [FOLDER]`. `make bench-vad` creates the environment.

Quality is measured on held-out recordings, which were not used for training or for selecting thresholds. The
alternatives run in the same process on the same tracks, each both unchanged and with the pre-roll that the data plane
would add. The report is also written to FOLDER (by default, build/bench-vad).
"""

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bench import goals
from bench.vad import corpus
from bench.vad.corpus import CONDITIONS, FrameFlags, Track
from bench.vad.learn import add_pre_roll, measure_detection_rates
from bench.vad.native import BuiltModule
from bench.vad.rivals import SileroVad, WebrtcVad

PRODUCT_DETECTOR, WITH_PRE_ROLL = "ours (wasm)", " + pre-roll"
PRE_ROLL_FRAMES = 3
"""Pre-roll of the module in frames, which is also applied to the alternatives."""
MIN_RECALL, MIN_DROPPED, MAX_COST_NS = 0.98, 0.80, 2000
COST_CONDITIONS = (("none", 60), ("white", 10), ("pink", 0), ("babble", 5))

Detector: TypeAlias = Callable[[npt.NDArray[np.int16]], FrameFlags]
DetectionRates: TypeAlias = tuple[float, float, float]
"""Recall, share of silence dropped, and precision."""
RatesByCondition: TypeAlias = dict[str, list[DetectionRates]]
RECORDING_KINDS = (*corpus.SPEAKERS, "espeak")
ADAPTATION_FRAMES = 2 * corpus.SAMPLE_RATE // corpus.SAMPLES_PER_FRAME
"""Number of frames during which a detector may still classify new noise as speech."""


def _create_detectors(build: BuiltModule) -> dict[str, Detector]:
    return {
        PRODUCT_DETECTOR: lambda samples: build.decide_frames(samples)[0],
        "Silero 0.5": SileroVad(),
        "webrtcvad 2": WebrtcVad(2),
        "webrtcvad 3": WebrtcVad(3),
    }


def _measure_rates(sent: FrameFlags, speech: FrameFlags) -> DetectionRates:
    return *measure_detection_rates(sent, speech), float(speech[sent].mean())


def _measure_quality(kind: str, build: BuiltModule, cache: Path) -> tuple[RatesByCondition, list[Track]]:
    """Return the rates of each detector by condition, and the tracks on which the cost is measured."""
    detectors = _create_detectors(build)
    results: RatesByCondition = {}
    shares = []
    for condition, track in zip(CONDITIONS, corpus.generate_tracks(kind, "held-out", cache), strict=True):
        if condition in COST_CONDITIONS:
            shares.append(track)
        for name, detector in detectors.items():
            sent = detector(track.samples)
            results.setdefault(name, []).append(_measure_rates(sent, track.speech))
            if name != PRODUCT_DETECTOR:
                results.setdefault(name + WITH_PRE_ROLL, []).append(
                    _measure_rates(add_pre_roll(sent, PRE_ROLL_FRAMES), track.speech)
                )
    return results, shares


def _format_quality_table(kind: str, results: RatesByCondition) -> str:
    noises = ["none", *corpus.NOISE_KINDS]
    lines = [
        f"### Held-out recordings, {kind}: recall / share of silence dropped",
        "",
        "| | " + " | ".join(noises) + " | all noises | precision |",
        "|---" * (len(noises) + 3) + "|",
    ]
    for name, pairs in results.items():
        cells = []
        for noise in noises:
            mean = np.mean([pair for pair, (other, _) in zip(pairs, CONDITIONS, strict=True) if other == noise], axis=0)
            cells.append(f"{mean[0]:.3f} / {mean[1]:.3f}")
        mean = np.mean(pairs[1:], axis=0)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | **{mean[0]:.3f} / {mean[1]:.3f}** | {mean[2]:.3f} |")
    return "\n".join(lines) + "\n"


def _describe_adaptation(sent: FrameFlags, track: Track) -> str:
    """Return the share of noise that is sent after the first two seconds, and the time of the last frame sent."""
    detected = sent[int(track.speech.sum()) :]
    last = np.flatnonzero(detected)[-1] / 50 if detected.any() else 0.0
    return f"{detected[ADAPTATION_FRAMES:].mean():.1%} / {last:.1f} s"


def _format_no_speech_table(build: BuiltModule) -> str:
    detectors = _create_detectors(build)
    lines = [
        "### A minute without speech: sent after two seconds / last sent",
        "",
        "| | " + " | ".join(detectors) + " |",
        "|---" * (len(detectors) + 1) + "|",
    ]
    for track in corpus.generate_no_speech_tracks():
        cells = [_describe_adaptation(detector(track.samples), track) for detector in detectors.values()]
        lines.append(f"| {track.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _measure_cost(tracks: list[Track], build: BuiltModule, folder: Path) -> tuple[str, float]:
    """Return a table of costs, and the median cost, in nanoseconds, for the most expensive track."""
    lines = [
        "### Cost of a 20 ms frame, 2,000 streams in turn (median; best in brackets)",
        "",
        "| audio | wasm ns | native ns | gated | decisions that differ |",
        "|---|---|---|---|---|",
    ]
    costs = {track.name: build.measure_cost(track.samples, folder) for track in tracks}
    lines += [f"| {name} | {cost} |" for name, cost in costs.items()]
    silero = SileroVad()
    silero(tracks[0].samples)
    lines += ["", f"Silero, one thread, one stream at a time: {silero.microseconds_per_chunk:.0f} us per 32 ms."]
    return "\n".join(lines) + "\n", max(median(cost.wasm_ns) for cost in costs.values())


def main() -> None:
    """Measure quality and cost, and write the report."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/bench-vad")
    folder.mkdir(parents=True, exist_ok=True)
    build = BuiltModule(folder)
    with ProcessPoolExecutor() as pool:
        tasks = {kind: pool.submit(_measure_quality, kind, build, folder) for kind in RECORDING_KINDS}
        without_speech = pool.submit(_format_no_speech_table, build)
        completed = {kind: task.result() for kind, task in tasks.items()}
    results_by_kind = {kind: results for kind, (results, _) in completed.items()}
    costs, most_expensive_ns = _measure_cost(completed["real"][1], build, folder)
    report = [costs]
    for kind, results in results_by_kind.items():
        report.append(_format_quality_table(kind, results))
    report.append(without_speech.result())
    learned = ("real", "espeak")
    own_results = np.mean([pair for kind in learned for pair in results_by_kind[kind][PRODUCT_DETECTOR][1:]], axis=0)
    text = "\n".join(report)
    (folder / "report.md").write_text(text)
    print(text)
    goals.report_goals(
        (
            goals.Goal(
                "recall over all noises, with voices of the training data",
                float(own_results[0]),
                MIN_RECALL,
                is_minimum=True,
            ),
            goals.Goal("silence dropped, of the same", float(own_results[1]), MIN_DROPPED, is_minimum=True),
            goals.Goal("a frame in wasm, for the most expensive audio", most_expensive_ns, MAX_COST_NS, " ns"),
        )
    )


if __name__ == "__main__":
    main()
