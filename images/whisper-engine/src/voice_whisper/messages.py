"""What main process and workers say to each other: one JSON object a line, and never any audio."""

from pydantic import BaseModel, ConfigDict

from voice_whisper.backends.base import Decoded


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ready(_Message):
    """A worker has its model."""

    bins: int
    languages: tuple[str, ...]


class Failed(_Message):
    """A worker cannot load its model."""

    why: str


class States(_Message):
    """Shape and type of hidden states."""

    shape: tuple[int, int]
    dtype: str


class EncodeRequest(_Message):
    """Features in these slots, all of the same length."""

    slots: list[int]
    bins: int
    rows: int


class EncodeReply(_Message):
    """The slots hold their hidden states."""

    states: States
    took_ms: float


class DecodeRequest(_Message):
    """Hidden states in these slots, all of the same shape; languages to decode them in."""

    slots: list[int]
    states: States
    languages: list[str | None]


class TranscribeRequest(EncodeRequest):
    """Features in these slots, and languages to decode them in."""

    languages: list[str | None]


class DecodeReply(_Message):
    """What the slots' hidden states say, in their order."""

    texts: list[Decoded]
    took_ms: float


class TranscribeReply(_Message):
    """What the slots' features say, in their order."""

    texts: list[Decoded]
    encode_ms: float
    decode_ms: float
