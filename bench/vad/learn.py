# mypy: disable-error-code="import-not-found"
"""Trains the VAD's network and generates `learned.h`: `python -m bench.vad.learn CACHE_FOLDER`.

The network is trained on the recordings of one set; hysteresis, hangover and pre-roll are selected on another. The
held-out set is not used here.
"""

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.vad import corpus, module
from bench.vad.corpus import FrameFlags
from bench.vad.network import Float32Array, Network, train_network

HEADER_FILE = module.VAD_SOURCE_FOLDER / "module/learned.h"
LOOKBACK_FRAMES = 1
"""Delay of the network's output in frames. The network runs every second frame, and the pre-roll compensates for the
delay."""
GATED_ODDS = -6.0
LEARNING_LEVEL = 10.0
"""log2 of the minimum energy (-60 dBFS) at which a new stream is classified as speech."""
MIN_RECALL = 0.987
"""Minimum recall on the selection set. The recall on new recordings is slightly lower (documented: 0.98)."""
EPOCH_COUNT = 20


@dataclass(frozen=True)
class DecisionPolicy:
    """Parameters with which the module's decide() function converts odds to decisions."""

    smoothing: float
    start_threshold: float
    continue_threshold: float
    hangover_frames: int
    pre_roll_frames: int


CANDIDATE_POLICIES = tuple(
    DecisionPolicy(smoothing, start, start - lower, hangover, pre_roll)
    for smoothing, start, lower, hangover, pre_roll in itertools.product(
        (0.6, 1.0), (0.0, 0.5, 1.0, 1.5), (0.0, 0.5, 1.0), (0, 1, 2), (3, 4, 6)
    )
)


def apply_policy(probabilities: npt.NDArray[np.float64], policy: DecisionPolicy) -> FrameFlags:
    """Return the frames that the module would send, for many tracks at once. Each column is a track."""
    score = np.zeros(probabilities.shape[1])
    speech = np.zeros(probabilities.shape[1], bool)
    hangover = np.zeros(probabilities.shape[1], int)
    sent = np.zeros(probabilities.shape, bool)
    for frame, row in enumerate(probabilities):
        score += policy.smoothing * (row - score)
        voiced = score > np.where(speech, policy.continue_threshold, policy.start_threshold)
        speech = voiced | (hangover > 0)
        hangover = np.where(voiced, policy.hangover_frames, np.maximum(hangover - 1, 0))
        sent[frame] = speech
    return add_pre_roll(sent, policy.pre_roll_frames)


def add_pre_roll(sent: FrameFlags, frames: int) -> FrameFlags:
    """Return the flags with the frames that precede each sent frame also set."""
    result = sent.copy()
    for offset in range(1, frames + 1):
        result[:-offset] |= sent[offset:]
    return result


def measure_detection_rates(sent: FrameFlags, speech: FrameFlags) -> tuple[float, float]:
    """Return the share of speech that is sent, and the share of silence that is not sent."""
    return float(sent[speech].mean()), float(1 - sent[~speech].mean())


def _collect_track_traces(part: str, cache: Path) -> tuple[list[module.NetworkInputTrace], list[FrameFlags]]:
    library = module.build_trace_library(cache)
    traces, speech = [], []
    for kind in ("real", "espeak"):
        tracks = [corpus.generate_tracks(kind, part, cache)]
        if part == "learn":  # conditions that the mixtures lack: a fan that starts, and calls without speech
            tracks += [
                corpus.generate_tracks(kind, part, cache, steps=True),
                corpus.generate_noise_only_tracks(kind, part, cache),
            ]
        for track in itertools.chain.from_iterable(tracks):
            traces.append(module.trace_network_inputs(library, track.samples))
            speech.append(track.speech)
    return traces, speech


def _train_network(cache: Path) -> Network:
    traces, speech = _collect_track_traces("learn", cache)
    late = [np.concatenate([one[:1].repeat(LOOKBACK_FRAMES), one[:-LOOKBACK_FRAMES]]) for one in speech]
    rows = np.concatenate([one.inputs[one.is_observed] for one in traces])
    target = np.concatenate([one[trace.is_observed] for one, trace in zip(late, traces, strict=True)]).astype(
        np.float32
    )
    return train_network(rows, target, epochs=EPOCH_COUNT)


def _choose_policy(network: Network, cache: Path) -> tuple[DecisionPolicy, float, float]:
    traces, speech = _collect_track_traces("choose", cache)
    probabilities = np.full((max(map(len, speech)), len(speech)), GATED_ODDS)
    for column, one in enumerate(traces):
        probabilities[: len(one.inputs), column] = one.calculate_log_odds(network.calculate_log_odds, GATED_ODDS)
    candidates = []
    for policy in CANDIDATE_POLICIES:
        sent = apply_policy(probabilities, policy)
        each = [measure_detection_rates(sent[: len(one), column], one) for column, one in enumerate(speech)]
        recall, dropped = np.mean(each, axis=0)
        candidates.append((float(recall), float(dropped), policy))
    sufficient = [one for one in candidates if one[0] >= MIN_RECALL] or [max(candidates, key=lambda one: one[0])]
    recall, dropped, policy = max(sufficient, key=lambda one: one[1])
    return policy, recall, dropped


def _format_c_number(value: float) -> str:
    text = f"{value:.6g}"
    return text + ("F" if "." in text or "e" in text else ".0F")


def _format_c_array(name: str, values: Float32Array) -> str:
    rows = values if values.ndim > 1 else [values]
    lines = ["{" + ", ".join(_format_c_number(float(value)) for value in row) + "}" for row in rows]
    size = "".join(f"[{length}]" for length in values.shape)
    body = "{\n    " + ",\n    ".join(lines) + ",\n}" if values.ndim > 1 else lines[0]
    return f"static const float {name}{size} = {body};"


def render_header(network: Network, policy: DecisionPolicy) -> str:
    w1, b1, w2, b2, w3, b3 = network.weights
    scalars = {
        "GATED_ODDS": GATED_ODDS,
        "SMOOTHING": policy.smoothing,
        "START_SCORE": policy.start_threshold,
        "STAY_SCORE": policy.continue_threshold,
        "LEARNING_LEVEL": LEARNING_LEVEL,
        "bias_3": float(b3[0]),
    }
    lines = [
        "/* Made by `python -m bench.vad.learn`, which says from what. */",
        "#ifndef VOICE_VAD_LEARNED_H",
        "#define VOICE_VAD_LEARNED_H",
        "",
        f"enum {{ HIDDEN = {len(b1)}, HIDDEN_2 = {len(b2)} }};",
        f"enum {{ PRE_ROLL = {policy.pre_roll_frames}, HANGOVER = {policy.hangover_frames} }};",
        *(f"static const float {name} = {_format_c_number(value)};" for name, value in scalars.items()),
        *(
            _format_c_array(name, values)
            for name, values in (
                ("weight_1", w1),
                ("bias_1", b1),
                ("weight_2", w2),
                ("bias_2", b2),
                ("weight_3", w3[:, 0]),
            )
        ),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Train the network, select a policy, and write the header."""
    cache = Path(sys.argv[1] if len(sys.argv) > 1 else "build/bench-vad")
    network = _train_network(cache)
    policy, recall, dropped = _choose_policy(network, cache)
    HEADER_FILE.write_text(render_header(network, policy))
    print(f"{policy}: recall {recall:.4f}, {dropped:.4f} of silence dropped on the validation set")


if __name__ == "__main__":
    main()
