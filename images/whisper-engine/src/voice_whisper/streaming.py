"""Transcription by engines with streaming input, which process an utterance once, as its audio arrives."""

import asyncio
import itertools
import re
import time
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkKind
from voice_runtime.features import SAMPLE_RATE_HZ
from voice_whisper.job import JobFailedError, Priority, WindowTranscript
from voice_whisper.utterance import Utterance
from voice_whisper.window import FRAME_MS

MAX_UTTERANCE_FRAMES = 300_000 // FRAME_MS
"""Maximum length of an utterance. Its audio is kept for another stream or host until the final transcript is
available."""
OVERLAP_SAMPLES = 2 * SAMPLE_RATE_HZ
"""Number of samples that the next stream repeats, so that a word at the boundary is complete in one of the streams."""
MAX_OVERLAP_WORDS = 8
"""Maximum number of words in an overlap: four per second."""
MAX_CUT_WORDS = 2
"""Maximum number of words that a stream recognizes wrongly at its start or end. A single shared word that is farther
from the seam may be a different occurrence of a frequent word."""
MAX_DELAY_FRAMES = 200 // FRAME_MS
"""Time after which a missing chunk counts as lost. Until then, a partial ends before the chunk."""
RETRY_PAUSE_S = 1.0
MAX_ATTEMPTS = 60
"""Maximum number of attempts, which cover a restart of the engine. After the last attempt, an utterance is
abandoned."""


class StreamError(Exception):
    """The engine has closed a stream."""


class Stream(Protocol):
    """A stream of audio.

    Attributes:
        text: Text so far. Later words are only appended.
    """

    text: str

    async def send(self, samples: NDArray[np.int16]) -> None:
        """Send samples at 16 kHz.

        Raises:
            StreamError: The stream was closed.
        """
        ...

    async def finish(self) -> str:
        """Send the end of the audio, and return the whole text.

        Raises:
            StreamError: The stream was closed.
        """
        ...

    async def close(self) -> None: ...


class StreamingRecognizer(Protocol):
    """An engine with streaming input."""

    @property
    def max_stream_s(self) -> float:
        """Maximum duration of audio for the engine's context, seconds; available once ready."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Whether the engine no longer responds."""
        ...

    async def run(self) -> None:
        """Maintain the connection until cancelled."""
        ...

    async def wait_until_ready(self) -> None:
        """Return once the engine accepts streams."""
        ...

    async def open_stream(self) -> Stream:
        """Open a stream.

        Raises:
            StreamError: No stream is available.
        """
        ...


@dataclass
class _UtteranceProgress:
    """Progress of an utterance.

    Attributes:
        begin: First frame of the utterance when it was first sent. If the first frame changes, all audio is sent again.
        text: Text of completed streams.
        sent_sample_count: Number of sent samples.
        stream_start_sample: Start of the open stream.
        overlaps: Whether the open stream overlaps with the previous one.

    The last two attributes are set when a stream is opened.
    """

    begin: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stream: Stream | None = None
    text: str = ""
    sent_sample_count: int = 0
    stream_start_sample: int = field(init=False)
    overlaps: bool = field(init=False)


class StreamingTranscriber:
    """A transcriber for an engine with streaming input.

    Each utterance is sent once, in one stream or in several consecutive streams.
    """

    max_utterance_frames = MAX_UTTERANCE_FRAMES
    overlap_frames = 0

    def __init__(self, recognizer: StreamingRecognizer) -> None:
        self.supported_kinds = frozenset({ChunkKind.PCM16})
        self.languages: tuple[str, ...] = ()
        self.restarts_by_role: dict[str, int] = {}
        self._recognizer = recognizer
        self._progress: WeakKeyDictionary[Utterance, _UtteranceProgress] = WeakKeyDictionary()
        self._closing: set[asyncio.Task[None]] = set()
        self._finals = 0
        self.run, self.wait_until_ready = recognizer.run, recognizer.wait_until_ready

    @property
    def is_stuck(self) -> bool:
        """Whether the engine no longer responds."""
        return self._recognizer.is_stuck

    @property
    def queue_depths(self) -> tuple[int, int]:
        """Number of utterances whose last words are pending."""
        return 0, self._finals

    async def transcribe(
        self,
        utterance: Utterance,
        language: str | None,
        priority: Priority,
        prompt: str = "",  # noqa: ARG002  streaming engines accept no prompt
    ) -> WindowTranscript:
        """Return the transcript of an utterance.

        A partial is tried once. Other transcripts are retried until the engine is available again.

        Raises:
            JobFailedError: The engine remains unavailable.
        """
        started_at, is_partial = time.monotonic(), priority is Priority.PARTIAL
        self._finals += not is_partial
        try:
            # A message must not be truncated if a partial is cancelled.
            transcription = asyncio.ensure_future(
                self._transcribe_audio(utterance, 1 if is_partial else MAX_ATTEMPTS, is_partial)
            )
            text = await asyncio.shield(transcription)
        finally:
            self._finals -= not is_partial
        duration_s = time.monotonic() - started_at
        return WindowTranscript(text, language, {"decode": 1000 * duration_s}, duration_s)

    async def _transcribe_audio(self, utterance: Utterance, attempts: int, is_partial: bool) -> str:
        if (progress := self._progress.get(utterance)) is None:
            progress = self._progress[utterance] = _UtteranceProgress(utterance.begin)
            # The final transcript of a session that another host has taken over is never requested.
            finalize(utterance, self._close_stream, progress).atexit = False
        async with progress.lock:
            for attempt in range(attempts):
                if attempt:
                    await asyncio.sleep(RETRY_PAUSE_S)
                try:
                    return await self._send_audio(progress, utterance, is_partial)
                except StreamError as error:
                    problem = str(error)
                    await self._reset(progress, utterance)
        raise JobFailedError(problem)

    def _close_stream(self, progress: _UtteranceProgress) -> None:
        if progress.stream:
            closing = asyncio.get_running_loop().create_task(progress.stream.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _reset(self, progress: _UtteranceProgress, utterance: Utterance) -> None:
        if progress.stream:
            await progress.stream.close()
        progress.begin, progress.stream, progress.text, progress.sent_sample_count = utterance.begin, None, "", 0

    async def _send_audio(self, progress: _UtteranceProgress, utterance: Utterance, is_partial: bool) -> str:
        if progress.begin != utterance.begin:
            await self._reset(progress, utterance)
        samples, longest = utterance.decode_samples(), round(SAMPLE_RATE_HZ * self._recognizer.max_stream_s)
        end = _count_complete_samples(utterance, len(samples)) if is_partial else len(samples)
        while progress.sent_sample_count < end:
            if progress.stream is None:
                progress.stream, progress.stream_start_sample, progress.overlaps = (
                    await self._recognizer.open_stream(),
                    progress.sent_sample_count,
                    False,
                )
            elif progress.sent_sample_count - progress.stream_start_sample >= longest:
                await self._finish_stream(progress)
                progress.sent_sample_count = progress.stream_start_sample = progress.sent_sample_count - OVERLAP_SAMPLES
                progress.stream, progress.overlaps = await self._recognizer.open_stream(), True
            piece = samples[progress.sent_sample_count : min(end, progress.stream_start_sample + longest)]
            await progress.stream.send(piece)
            progress.sent_sample_count += len(piece)
        if not is_partial:
            await self._finish_stream(progress)
            return progress.text
        return (
            join_texts(progress.text, progress.stream.text, progress.overlaps, is_complete=False)
            if progress.stream
            else progress.text
        )

    async def _finish_stream(self, progress: _UtteranceProgress) -> None:
        if progress.stream:
            progress.text = join_texts(
                progress.text, await progress.stream.finish(), progress.overlaps, is_complete=True
            )
            await progress.stream.close()
            progress.stream = None


def join_texts(prefix: str, suffix: str, overlaps: bool, *, is_complete: bool) -> str:
    """Join the texts of two consecutive streams without repeating their overlap.

    Args:
        overlaps: Whether the second stream includes some of the first one's audio.
        is_complete: Whether the second text is complete; otherwise, it may not have reached the end of the overlap.
    """
    if not overlaps:
        return f"{prefix} {suffix}".strip()
    first, second = prefix.split(), suffix.split()
    at = max(0, len(first) - MAX_OVERLAP_WORDS)
    last, next_ = _normalize_words(first[at:]), _normalize_words(second[:MAX_OVERLAP_WORDS])
    seam = _find_overlap(last, next_)
    if seam is None:
        return f"{prefix} {suffix}".strip() if is_complete else prefix
    # A word at the boundary, and everything after it, is taken from the second stream.
    kept, skipped = seam
    return " ".join(first[: at + kept] + second[skipped:])


def _find_overlap(last: list[str], next_: list[str]) -> tuple[int, int] | None:
    """Return the positions of the common text in the last words of a stream and in the first words of the next.

    If several texts have the maximum number of words, the one nearest to the end of the first stream and to the start
    of the second is returned, because this is where the streams overlap.
    """
    found: list[tuple[int, int, tuple[int, int]]] = []
    for at, begin in itertools.product(range(len(last)), range(len(next_))):
        pairs = zip(last[at:], next_[begin:], strict=False)
        size = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        behind = len(last) - at - size
        if size > 1 or (size == 1 and max(behind, begin) <= MAX_CUT_WORDS):
            found.append((size, -behind - begin, (at, begin)))
    return max(found)[-1] if found else None


def _normalize_words(words: list[str]) -> list[str]:
    return [re.sub(r"\W", "", word).casefold() for word in words]


def _count_complete_samples(utterance: Utterance, samples: int) -> int:
    """Return the number of samples before the first missing chunk that may still arrive."""
    newest = utterance.start + utterance.frame_count - MAX_DELAY_FRAMES
    late = next((first for first, _ in utterance.gaps if first >= newest), None)
    return samples if late is None else (late - utterance.begin) * CHUNK_FRAME_SAMPLES
