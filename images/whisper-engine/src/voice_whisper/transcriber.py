"""What turns utterances into text, whichever engine does it."""

from typing import Protocol

from blueprint.contract.chunk import ChunkKind
from voice_whisper.job import Heard, Wanted
from voice_whisper.utterance import Utterance


class Transcriber(Protocol):
    """Speech to text.

    Attributes:
        languages: That it understands; none: it does not tell.
        longest_frames: Of an utterance, in 20 ms frames; a longer one is cut.
    """

    languages: tuple[str, ...]
    longest_frames: int

    @property
    def kinds(self) -> frozenset[ChunkKind]:
        """Chunks that it can read."""
        ...

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for prefill, and for decode."""
        ...

    @property
    def restarts(self) -> dict[str, int]:
        """Workers that had to be started again, by role."""
        ...

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            CannotStartError: The model cannot be loaded.
        """
        ...

    async def ready(self) -> None:
        """Return when it can transcribe."""
        ...

    async def transcribe(self, utterance: Utterance, language: str | None, wanted: Wanted) -> Heard:
        """Return what an utterance says, so far or finally.

        Raises:
            GivenUpError: It cannot be transcribed.
            StaleError: A partial waits for too long.
        """
        ...
