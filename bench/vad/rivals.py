# mypy: disable-error-code="import-not-found,import-untyped"
"""Runs Silero and webrtcvad from their packages, for comparison."""

import importlib.util
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import webrtcvad

from bench.vad.corpus import SAMPLE_RATE, SAMPLES_PER_FRAME, FrameFlags

CHUNK_SAMPLES = 512
CONTEXT_SAMPLES = 64


class SileroVad:
    """Silero's 16 kHz model on one thread.

    The model classifies chunks of 32 ms. Each frame has the class of the chunk at the frame's centre.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        package = importlib.util.find_spec("silero_vad")
        if package is None or package.origin is None:
            raise RuntimeError("silero-vad is not installed: make bench-vad installs it")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        model = Path(package.origin).parent / "data/silero_vad.onnx"
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._threshold = threshold
        self.microseconds_per_chunk = 0.0

    def __call__(self, samples: npt.NDArray[np.int16]) -> FrameFlags:
        """Return the 20 ms frames with speech."""
        audio = (samples / 32768).astype(np.float32)
        chunks = len(audio) // CHUNK_SAMPLES
        state = np.zeros((2, 1, 128), np.float32)
        context = np.zeros(CONTEXT_SAMPLES, np.float32)
        probabilities = np.zeros(chunks)
        start = time.perf_counter()
        for index in range(chunks):
            chunk = audio[index * CHUNK_SAMPLES : (index + 1) * CHUNK_SAMPLES]
            inputs = {
                "input": np.concatenate([context, chunk])[None],
                "state": state,
                "sr": np.array(SAMPLE_RATE, np.int64),
            }
            out, state = self._session.run(None, inputs)
            probabilities[index] = out[0, 0]
            context = chunk[-CONTEXT_SAMPLES:]
        self.microseconds_per_chunk = (time.perf_counter() - start) / chunks * 1e6
        middles = np.arange(len(samples) // SAMPLES_PER_FRAME) * SAMPLES_PER_FRAME + SAMPLES_PER_FRAME // 2
        return np.asarray(probabilities[np.minimum(middles // CHUNK_SAMPLES, chunks - 1)] > self._threshold)


class WebrtcVad:
    """webrtcvad with frames of 20 ms."""

    def __init__(self, mode: int) -> None:
        self._mode = mode

    def __call__(self, samples: npt.NDArray[np.int16]) -> FrameFlags:
        """Return the 20 ms frames with speech."""
        vad = webrtcvad.Vad(self._mode)
        raw = samples.tobytes()
        frames = range(0, len(raw) // (2 * SAMPLES_PER_FRAME) * 2 * SAMPLES_PER_FRAME, 2 * SAMPLES_PER_FRAME)
        return np.array([vad.is_speech(raw[at : at + 2 * SAMPLES_PER_FRAME], SAMPLE_RATE) for at in frames])
