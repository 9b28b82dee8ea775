"""What main process and workers say to each other: one JSON object a line, and never any audio."""

from pydantic import BaseModel, ConfigDict

from voice_whisper.backends.base import Decoded


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ready(_Message):
    """A worker has its model; what it says of that is the backend's."""

    bins: int
    languages: tuple[str, ...]
    encodes_batches: bool = False


class Failed(_Message):
    """A worker cannot load its model."""

    why: str


class States(_Message):
    """Shape and type of hidden states."""

    shape: tuple[int, int]
    dtype: str


class Request(_Message):
    """A batch: slots with features of the same length, or with hidden states of the same shape.

    Attributes:
        states: Of the hidden states, once the slots hold them.
        languages: To decode each in; ``None``: find out which.
        audio_rows: How many of each one's rows hold audio.
    """

    slots: list[int]
    bins: int
    rows: int
    states: States | None = None
    languages: list[str | None]
    audio_rows: list[int]


class Reply(_Message):
    """What was made of a batch, in its order.

    Attributes:
        states: Of the hidden states that the slots hold now; ``None`` where they have been decoded.
        texts: What the slots say; empty before they are decoded.
        stages_ms: How long each stage took.
    """

    states: States | None = None
    texts: list[Decoded] = []
    stages_ms: dict[str, float]
