"""What a model has to do: prefill and decode, each by itself."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voice_whisper.settings import ModelSettings

Array = NDArray[np.float32] | NDArray[np.float16]


class Role(StrEnum):
    """What a worker process does."""

    ENCODER = "encoder"
    """Prefill: features to hidden states."""
    DECODER = "decoder"
    """Decode: hidden states to text."""
    COLOCATED = "colocated"
    """Both, one after the other."""


@dataclass(frozen=True)
class Word:
    """A word, with the space or punctuation around it.

    Attributes:
        start: Seconds from the window's begin.
        end: Likewise.
        confidence: Mean probability of its tokens.
    """

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Decoded:
    """Text of one window.

    Attributes:
        language: As it was asked for or found out; ISO 639-1.
        words: Its words; none: the backend does not tell their times.
    """

    text: str
    language: str
    words: tuple[Word, ...] = ()


class Backend(Protocol):
    """A model on some hardware.

    Attributes:
        bins: Mel bins that it takes.
        languages: That it understands, by ISO 639-1 where that has a code.
        encodes_batches: Whether several windows at a time take less than one by one.
    """

    bins: int
    languages: tuple[str, ...]
    encodes_batches: bool

    def encode(self, features: NDArray[np.float32]) -> Array:
        """Turn features of shape (batch, bins, rows) into hidden states of shape (batch, rows / 2, width)."""
        ...

    def decode(self, hidden: Array, languages: Sequence[str | None], rows: Sequence[int]) -> list[Decoded]:
        """Turn hidden states into text, each in its language; ``None``: find out which.

        Args:
            rows: Of each window's features, how many hold audio.
        """
        ...


class CannotLoadError(Exception):
    """A model cannot be loaded; the message says what to do."""


def load(settings: ModelSettings, role: Role, threads: int, number: int) -> Backend:
    """Load the model for one role.

    Args:
        number: Of the worker among those of its role, from 0.

    Raises:
        CannotLoadError: It is not there, or does not fit the hardware.
    """
    # Each image has the libraries of one backend only.
    module = importlib.import_module(f"voice_whisper.backends.on_{settings.backend}")
    backend: Backend = module.load(settings, role, threads, number)
    return backend
