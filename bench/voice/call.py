"""Creates the audio for a stream from sentences in the demo's sample, with 60 % silence."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from voice_ops.call.recording import FRAME_S, SAMPLE_RATE_HZ, SAMPLES_PER_FRAME, read_samples
from voice_ops.call.senders import Samples
from voice_ops.demo.command import SAMPLE_FILE, SAMPLE_TEXT_FILE

SILENCE_FRACTION = 0.6
SENTENCE_COUNT = 3
MIN_SPEECH_LEVEL = 300
"""Minimum level of speech, out of 32768. The background of the sample is quieter."""
MIN_PAUSE_FRAMES = 50
"""Minimum pause between sentences, one second. Pauses within a sentence are shorter."""
MARGIN_FRAMES = 2
MONOLOGUE_REPEATS = 6
"""Number of repetitions of each sentence in a monologue."""
START_OFFSET_FRACTION = 0.618
"""Difference between the start positions of successive streams, as a share of the silence. Positions never repeat."""


@dataclass(frozen=True)
class Call:
    """The audio of a stream, and its text.

    Attributes:
        samples: Samples at 16 kHz, in whole frames.
        utterance_times: Start and end of each sentence, seconds.
        text: Spoken text.
    """

    samples: Samples
    utterance_times: tuple[tuple[float, float], ...]
    text: str

    @property
    def duration_s(self) -> float:
        """Duration of the audio."""
        return self.samples.size / SAMPLE_RATE_HZ


def create_call(number: int, *, pauses: bool = True) -> Call:
    """Return the call of a stream. Each call starts at another position, so that the callers do not all speak at once.

    Args:
        pauses: Whether sentences are separated by pauses. Otherwise, the call is a monologue of about a minute.
    """
    if not pauses:
        return _build_monologue(number)
    sentences, silence = _load_sentences(), _create_background_pause()
    order = [(number + index) % SENTENCE_COUNT for index in range(SENTENCE_COUNT)]
    first = round(number * START_OFFSET_FRACTION % 1 * len(silence) / SAMPLES_PER_FRAME) * SAMPLES_PER_FRAME
    pieces, utterance_times, at = [silence[first:]], [], len(silence) - first
    for sentence in order:
        utterance_times.append((at / SAMPLE_RATE_HZ, (at + len(sentences[sentence])) / SAMPLE_RATE_HZ))
        pieces += [sentences[sentence], silence]
        at += len(sentences[sentence]) + len(silence)
    pieces[-1] = silence[:first]
    lines = SAMPLE_TEXT_FILE.read_text(encoding="utf-8").splitlines()
    return Call(np.concatenate(pieces), tuple(utterance_times), " ".join(lines[sentence] for sentence in order))


def _build_monologue(number: int) -> Call:
    sentences, lines = _load_sentences(), SAMPLE_TEXT_FILE.read_text(encoding="utf-8").splitlines()
    order = [(number + index) % SENTENCE_COUNT for index in range(SENTENCE_COUNT * MONOLOGUE_REPEATS)]
    silence = _create_background_pause()[: SAMPLES_PER_FRAME * MIN_PAUSE_FRAMES]
    samples = np.concatenate([silence, *(sentences[sentence] for sentence in order), silence])
    utterance_times = (len(silence) / SAMPLE_RATE_HZ, (samples.size - len(silence)) / SAMPLE_RATE_HZ)
    return Call(samples, (utterance_times,), " ".join(lines[sentence] for sentence in order))


@cache
def _load_sentences() -> list[Samples]:
    sample = read_samples(SAMPLE_FILE)
    active_frames = np.flatnonzero(np.abs(sample.reshape(-1, SAMPLES_PER_FRAME)).max(axis=1) > MIN_SPEECH_LEVEL)
    pauses = np.flatnonzero(np.diff(active_frames) > MIN_PAUSE_FRAMES)
    begins = active_frames[np.concatenate([[0], pauses + 1])] - MARGIN_FRAMES
    ends = active_frames[np.concatenate([pauses, [-1]])] + 1 + MARGIN_FRAMES
    spoken = [sample[b * SAMPLES_PER_FRAME : e * SAMPLES_PER_FRAME] for b, e in zip(begins, ends, strict=True)]
    return spoken[:SENTENCE_COUNT]


@cache
def _create_background_pause() -> Samples:
    """Return the audio of a pause, which repeats the background noise at the start of the sample."""
    speech = sum(map(len, _load_sentences()))
    frames = round(speech * SILENCE_FRACTION / (1 - SILENCE_FRACTION) / SENTENCE_COUNT / SAMPLES_PER_FRAME)
    background = read_samples(SAMPLE_FILE)[: round(0.9 / FRAME_S) * SAMPLES_PER_FRAME]
    return np.resize(background, frames * SAMPLES_PER_FRAME)
