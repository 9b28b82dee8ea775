"""Segmentation of a session's frames into chunks of speech, in the same way as in the data plane."""

from collections import deque
from dataclasses import replace

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_MEL_BINS, CHUNK_MEL_FRAMES, ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import FeatureRows, LogMelExtractor

SAMPLE_RATE_HZ = 16000
FRAMES_PER_CHUNK = 5
PRE_ROLL_FRAMES = 12
HANGOVER_FRAMES = 25
"""Silent frames that end an utterance: half a second. Shorter pauses are part of the sentence."""
ONSET_FRAMES = 3
_VAD_AGGRESSIVENESS = 2
"""Aggressiveness, 0 to 3: lower values classify more audio as speech."""


NO_FLAGS = ChunkFlag(0)


class UtteranceSplitter:
    """Splits a session's frames into utterances, and utterances into chunks.

    Args:
        first_sequence: Position of the session's next frame. It is not 0 if another host has processed earlier frames.
        first_number: Number of the session's next chunk.
    """

    def __init__(self, ssrc: int, first_sequence: int, first_number: int = 0) -> None:
        self._ssrc = ssrc
        self._next_sequence = first_sequence
        self._number = first_number
        self._mark = ChunkFlag(0)
        self._vad = webrtcvad.Vad(_VAD_AGGRESSIVENESS)
        self._mel = LogMelExtractor()
        self._recent: deque[tuple[int, NDArray[np.int16], bool]] = deque(maxlen=PRE_ROLL_FRAMES)
        self._pending: list[tuple[int, NDArray[np.int16], bool, bool]] = []
        self._rows: NDArray[np.float32] = np.empty((0, CHUNK_MEL_BINS), np.float32)
        self._voiced_frames = 0
        self._silent_frames = 0
        self._speaking = False
        self._starts = False

    def process_frame(self, samples: NDArray[np.int16], *, is_concealed: bool) -> list[AudioChunk]:
        """Process a frame of 20 ms, and return the chunks that the frame completes."""
        is_voiced = self._vad.is_speech(samples.tobytes(), SAMPLE_RATE_HZ)
        sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
        self._voiced_frames = self._voiced_frames + 1 if is_voiced else 0
        if not self._speaking:
            self._recent.append((sequence, samples, is_concealed))
            if self._voiced_frames < ONSET_FRAMES:
                return []
            self._begin_utterance()
        else:
            self._pending.append((sequence, samples, is_concealed, is_voiced))
        self._silent_frames = 0 if is_voiced else self._silent_frames + 1
        return self._flush(ends_utterance=self._silent_frames >= HANGOVER_FRAMES)

    def close(self, mark: ChunkFlag = NO_FLAGS) -> list[AudioChunk]:
        """End the utterance, at the end of the audio or because the sender requests the transcript."""
        if self._speaking:
            self._mark = mark
            chunks = self._flush(ends_utterance=True)
            self._mark = NO_FLAGS
            return chunks
        if not mark or self._next_sequence == 0:
            return []
        self._recent.clear()
        flags = ChunkFlag.START_OF_SPEECH | ChunkFlag.END_OF_SPEECH | ChunkFlag.SILENCE | mark
        return [self._build_chunk(self._next_sequence - 1, flags, self._rows[:0])]

    def resume_at(self, sequence: int) -> None:
        """Continue at a position on the session's clock or after the sent audio, whichever is later."""
        self._next_sequence = max(sequence, self._next_sequence)

    def _begin_utterance(self) -> None:
        self._speaking = self._starts = True
        self._pending = [(sequence, samples, is_concealed, False) for sequence, samples, is_concealed in self._recent]
        self._recent.clear()

    def _flush(self, *, ends_utterance: bool) -> list[AudioChunk]:
        chunks = []
        while len(self._pending) >= FRAMES_PER_CHUNK or (ends_utterance and self._pending):
            frames, self._pending = self._pending[:FRAMES_PER_CHUNK], self._pending[FRAMES_PER_CHUNK:]
            chunks.append(self._build_chunk_from_frames(frames, last=ends_utterance and not self._pending))
        if ends_utterance:
            self._speaking = False
            self._silent_frames = 0
            if not chunks:  # nothing was pending
                self._rows = np.concatenate([self._rows, self._mel.flush()])
            if len(self._rows) or not chunks:  # the last features, for which a full chunk had no space
                chunks = [
                    replace(chunk, flags=chunk.flags & ~(ChunkFlag.END_OF_SPEECH | self._mark)) for chunk in chunks
                ]
                chunks.append(
                    self._build_chunk(self._next_sequence - 1, ChunkFlag.END_OF_SPEECH | self._mark, self._rows)
                )
                self._rows = self._rows[:0]
        return chunks

    def _build_chunk_from_frames(
        self, frames: list[tuple[int, NDArray[np.int16], bool, bool]], *, last: bool
    ) -> AudioChunk:
        flags = ChunkFlag.START_OF_SPEECH if self._starts else ChunkFlag(0)
        self._starts = False
        for _, samples, is_concealed, _ in frames:
            self._rows = np.concatenate([self._rows, self._mel.push(samples)])
            flags |= ChunkFlag.CONCEALED if is_concealed else ChunkFlag(0)
        if last:
            self._rows = np.concatenate([self._rows, self._mel.flush()])
            flags |= ChunkFlag.END_OF_SPEECH | self._mark
        if not any(is_voiced for *_, is_voiced in frames):
            flags |= ChunkFlag.SILENCE
        rows, self._rows = self._rows[:CHUNK_MEL_FRAMES], self._rows[CHUNK_MEL_FRAMES:]
        return self._build_chunk(frames[0][0], flags, rows)

    def _build_chunk(self, sequence: int, flags: ChunkFlag, rows: FeatureRows) -> AudioChunk:
        self._number += 1
        return AudioChunk(self._ssrc, sequence, flags, rows, self._number - 1)
