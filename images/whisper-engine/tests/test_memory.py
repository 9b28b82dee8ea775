"""Memory that processes share: windows of the largest Whisper models, large-v3 and its relatives."""

import os

import numpy as np
import pytest

from voice_whisper.memory import SlotMemory

SLOTS = 3
FEATURES = (128, 3000)
"""Mel bins, and rows of 30 s."""
STATES = (1500, 1280)
ELEMENTS = 128 * 3000 + 1500 * 1280


def test_each_slot_has_the_features_and_the_states_of_its_own_window() -> None:
    memory = SlotMemory(SLOTS)
    for slot in range(SLOTS):
        memory.get_features_view(slot, *FEATURES)[:] = 1 + slot
        memory.get_hidden_states_view(slot, STATES, "float32")[:] = -1 - slot
    for slot in range(SLOTS):
        assert (memory.get_features_view(slot, *FEATURES) == 1 + slot).all()
        assert (memory.get_hidden_states_view(slot, STATES, "float32") == -1 - slot).all()


def test_a_slot_has_no_more_room_than_the_largest_model_needs() -> None:
    memory = SlotMemory(SLOTS)
    assert memory.get_features_view(SLOTS - 1, 1, ELEMENTS).size == ELEMENTS
    assert memory.get_hidden_states_view(SLOTS - 1, (1, 1500 * 1280), "float32").size == 1500 * 1280
    with pytest.raises(ValueError, match="buffer is smaller than requested"):
        memory.get_features_view(SLOTS - 1, 1, ELEMENTS + 1)
    with pytest.raises(ValueError, match="buffer is smaller than requested"):
        memory.get_hidden_states_view(SLOTS - 1, (1, 1500 * 1280 + 1), "float32")


def test_a_process_with_the_descriptor_sees_the_same_slots() -> None:
    memory = SlotMemory(SLOTS)
    assert os.fstat(memory.descriptor).st_size == SLOTS * 4 * ELEMENTS
    memory.get_features_view(2, 80, 1000)[:] = np.arange(1000)
    memory.get_hidden_states_view(1, (500, 384), "float16")[:] = np.arange(384)
    other = SlotMemory(SLOTS, os.dup(memory.descriptor))
    assert (other.get_features_view(2, 80, 1000) == np.arange(1000)).all()
    assert (other.get_hidden_states_view(1, (500, 384), "float16") == np.arange(384)).all()
