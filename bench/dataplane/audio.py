"""Creates the audio for all streams from sentences, pauses and line noise."""

import io
import subprocess
import wave

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000
SAMPLES_PER_FRAME = 320
SPEECH_FRACTION = 0.6
NOISE_DB = -25
"""Level of the white noise relative to the speech."""
SENTENCES = (
    ("en-us+f3", "Good afternoon, I would like to change the address on my account."),
    ("en-gb+m3", "The delivery came on Monday, but two of the four boxes were empty."),
    ("en-us+m1", "Yes, that is right. Could you send me the bill by e-mail as well?"),
    ("en-gb+f2", "I have been waiting since half past nine, and nobody has called me back."),
)


def _synthesize(voice: str, sentence: str) -> npt.NDArray[np.float64]:
    spoken = subprocess.run(["espeak-ng", "-v", voice, "--stdout", sentence], capture_output=True, check=True).stdout  # noqa: S603, S607
    with wave.open(io.BytesIO(spoken)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
    active_samples = np.flatnonzero(np.abs(samples) > np.abs(samples).max() / 100)
    samples = samples[active_samples[0] : active_samples[-1]]
    at = np.arange(len(samples) * SAMPLE_RATE // rate // SAMPLES_PER_FRAME * SAMPLES_PER_FRAME) * rate / SAMPLE_RATE
    return np.asarray(np.interp(at, np.arange(len(samples)), samples / samples.std()))


def synthesize_conversation() -> npt.NDArray[np.int16]:
    """Return a conversation as 16 kHz samples in whole frames, 60 % of which are speech."""
    random = np.random.default_rng(1)
    pieces = []
    for voice, sentence in SENTENCES:
        spoken_audio = _synthesize(voice, sentence)
        pause = round(len(spoken_audio) * (1 / SPEECH_FRACTION - 1) / SAMPLES_PER_FRAME) * SAMPLES_PER_FRAME
        pieces += [spoken_audio, np.zeros(pause)]
    clean = np.concatenate(pieces)
    line = clean + random.standard_normal(len(clean)) * 10 ** (NOISE_DB / 20)
    return np.clip(np.rint(line * 2000), -32768, 32767).astype(np.int16)
