"""Memory that the main process and the workers share: features for encoders, and hidden states for decoders.

The memory is an anonymous file that workers inherit. Only slot numbers are sent between processes. The kernel allocates
only the pages that are used, and frees the memory when the last process has ended for any reason.
"""

import mmap
import os
from typing import cast

import numpy as np
from numpy.typing import NDArray

from voice_whisper.backends.base import HiddenStates
from voice_whisper.window import MAX_WINDOW_ROWS

MAX_MEL_BINS = 128
MAX_HIDDEN_STATES = 1500
MAX_HIDDEN_WIDTH = 1280
"""Among the Whisper models, large-v3 has the most mel bins, and the large models have the widest hidden states."""

FEATURE_BYTES = 4 * MAX_MEL_BINS * MAX_WINDOW_ROWS
HIDDEN_STATES_BYTES = 4 * MAX_HIDDEN_STATES * MAX_HIDDEN_WIDTH
SLOT_BYTES = FEATURE_BYTES + HIDDEN_STATES_BYTES


class SlotMemory:
    """Slots for one utterance each.

    Attributes:
        descriptor: File descriptor of the anonymous file.
    """

    def __init__(self, count: int, descriptor: int | None = None) -> None:
        """Create slots, or open those that another process created."""
        if descriptor is None:
            descriptor = os.memfd_create("voice-slots")
            os.ftruncate(descriptor, count * SLOT_BYTES)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, count * SLOT_BYTES)

    def get_features_view(self, slot: int, bins: int, rows: int) -> NDArray[np.float32]:
        """Return the features in a slot, with shape (bins, rows), in place."""
        offset = slot * SLOT_BYTES
        return np.frombuffer(self._memory, np.float32, bins * rows, offset).reshape(bins, rows)

    def get_hidden_states_view(self, slot: int, shape: tuple[int, int], dtype: str) -> HiddenStates:
        """Return the hidden states in a slot, in place."""
        offset = slot * SLOT_BYTES + FEATURE_BYTES
        states = np.frombuffer(self._memory, np.dtype(dtype), shape[0] * shape[1], offset)
        return cast("HiddenStates", states.reshape(shape))
