"""Messages between the main process and the workers: one JSON object per line, without audio."""

from pydantic import BaseModel, ConfigDict

from voice_whisper.backends.base import DecodedText


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReadyMessage(_Message):
    """A worker has loaded its model. The fields describe the backend."""

    bins: int
    languages: tuple[str, ...]
    supports_batch_encoding: bool = False


class FailedMessage(_Message):
    """A worker cannot load its model."""

    reason: str


class StatesLayout(_Message):
    """Shape and type of hidden states."""

    shape: tuple[int, int]
    dtype: str


class BatchRequest(_Message):
    """A batch: slots with features of the same length, or with hidden states of the same shape.

    Attributes:
        states: Description of the hidden states, once the slots contain them.
        languages: Language of each slot; ``None`` to detect it.
        audio_rows: Number of rows that contain audio, for each slot.
        prompt: Words that are likely to occur in all slots.
    """

    slots: list[int]
    bins: int
    rows: int
    states: StatesLayout | None = None
    languages: list[str | None]
    audio_rows: list[int]
    prompt: str = ""


class BatchReply(_Message):
    """Result of a batch, in the order of its slots.

    Attributes:
        states: Description of the hidden states in the slots; ``None`` after decoding.
        texts: Transcripts; empty before decoding.
        stages_ms: Duration of each stage.
    """

    states: StatesLayout | None = None
    texts: list[DecodedText] = []
    stages_ms: dict[str, float]
