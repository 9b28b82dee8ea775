"""Interface to a model: prefill and decode as separate operations."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voice_whisper.settings import ModelSettings

HiddenStates = NDArray[np.float32] | NDArray[np.float16]


class Role(StrEnum):
    """Role of a worker process."""

    ENCODER = "encoder"
    """Prefill: features to hidden states."""
    DECODER = "decoder"
    """Decode: hidden states to text."""
    COLOCATED = "colocated"
    """Prefill and decode, one after the other."""


@dataclass(frozen=True)
class Word:
    """A word, including adjacent spaces and punctuation.

    Attributes:
        start: Start within the window, seconds.
        end: End within the window, seconds.
        confidence: Mean probability of its tokens.
    """

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class DecodedText:
    """The text of a window.

    Attributes:
        language: Requested or detected language; ISO 639-1.
        words: Words; empty if the backend does not report their times.
    """

    text: str
    language: str
    words: tuple[Word, ...] = ()


class Backend(Protocol):
    """A model on a kind of hardware.

    Attributes:
        bins: Number of mel bins of its input.
        languages: Supported languages, as ISO 639-1 codes if they exist.
        supports_batch_encoding: Whether a batch of windows is faster than single ones.
    """

    bins: int
    languages: tuple[str, ...]
    supports_batch_encoding: bool

    def encode(self, features: NDArray[np.float32]) -> HiddenStates:
        """Convert features of shape (batch, bins, rows) to hidden states of shape (batch, rows / 2, width)."""
        ...

    def decode(
        self, hidden: HiddenStates, languages: Sequence[str | None], rows: Sequence[int], prompt: str = ""
    ) -> list[DecodedText]:
        """Convert hidden states to text. The language of each window is detected if it is ``None``.

        Args:
            rows: Number of each window's rows that contain audio.
            prompt: Words that are likely to occur in all windows.
        """
        ...


class ModelLoadError(Exception):
    """A model could not be loaded. The message contains the remedy."""


def load_backend(settings: ModelSettings, role: Role, threads: int, number: int) -> Backend:
    """Load the model for one role.

    Args:
        number: Index of the worker among those of its role, from 0.

    Raises:
        ModelLoadError: The model does not exist, or does not fit the hardware.
    """
    # Each image only contains the libraries of one backend.
    module = importlib.import_module(f"voice_whisper.backends.on_{settings.backend}")
    backend: Backend = module.load(settings, role, threads, number)
    return backend
