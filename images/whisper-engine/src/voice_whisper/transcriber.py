"""Interface for transcribing utterances with any engine."""

from typing import Protocol

from voice_blueprint.contract.chunk import ChunkKind
from voice_whisper.job import Priority, WindowTranscript
from voice_whisper.utterance import Utterance


class Transcriber(Protocol):
    """Speech to text.

    Attributes:
        languages: Supported languages; empty if unknown.
        max_utterance_frames: Maximum length of an utterance, in 20 ms frames. A longer utterance is split.
        overlap_frames: Frames of the previous utterance that an utterance includes again after a split during speech.
            It is 0 for an engine without word times, since the words would be repeated.
    """

    languages: tuple[str, ...]
    max_utterance_frames: int
    overlap_frames: int

    @property
    def supported_kinds(self) -> frozenset[ChunkKind]:
        """Kinds of chunks that the model accepts as input."""
        ...

    @property
    def queue_depths(self) -> tuple[int, int]:
        """Number of utterances that wait for prefill, and for decode."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Whether the engine makes no progress on its work, which other hosts should take over."""
        ...

    @property
    def restarts_by_role(self) -> dict[str, int]:
        """Number of restarted workers, by role."""
        ...

    async def run(self) -> None:
        """Run the engine until cancelled.

        Raises:
            WorkerStartError: The model cannot be loaded.
        """
        ...

    async def wait_until_ready(self) -> None:
        """Return once the engine can transcribe."""
        ...

    async def transcribe(
        self, utterance: Utterance, language: str | None, priority: Priority, prompt: str = ""
    ) -> WindowTranscript:
        """Return the transcript of an utterance, partial or final.

        Args:
            prompt: Words that are likely to occur.

        Raises:
            JobFailedError: The utterance cannot be transcribed.
            StaleJobError: A partial has waited too long.
        """
        ...
