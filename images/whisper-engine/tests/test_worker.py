"""A worker's steps within this process, with a stand-in for its model."""

import io
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from voice_whisper import worker as worker_module
from voice_whisper.backends.base import DecodedText, ModelLoadError, Role
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchReply, BatchRequest, FailedMessage, ReadyMessage, StatesLayout
from voice_whisper.worker import process_batch

SHAPE = (2, 3)
STATES = StatesLayout(shape=SHAPE, dtype="float16")


class Seconds:
    """A clock that a model advances, on a machine that has just started."""

    now = 0.5

    def perf_counter(self) -> float:
        return self.now


class Model:
    """A model whose hidden states and texts are the first feature of each slot, with a known duration of its steps."""

    bins, supports_batch_encoding, languages = 80, True, ("en", "de")

    def __init__(self, clock: Seconds) -> None:
        self._clock = clock
        self.asked: list[object] = []
        self.missing = 0

    def encode(self, features: np.ndarray) -> np.ndarray:
        self._clock.now += 2
        first = features[:, 0, 0].astype(np.float16)[: len(features) - self.missing]
        return np.broadcast_to(first[:, None, None], (len(first), *SHAPE))

    def decode(self, hidden: np.ndarray, *rest: object) -> list[DecodedText]:
        self.asked += rest
        self._clock.now += 3
        return [DecodedText(f"{states[0, 0]:g}", "en") for states in hidden]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    found = Seconds()
    monkeypatch.setattr(worker_module, "time", found)
    return found


@pytest.fixture
def model(clock: Seconds) -> Any:
    return Model(clock)


@pytest.fixture
def memory() -> SlotMemory:
    found = SlotMemory(3)
    for slot in range(3):
        found.get_features_view(slot, 80, 10)[:] = slot + 1
    return found


def request(*slots: int, states: StatesLayout | None = None) -> BatchRequest:
    languages: list[str | None] = [None, "de"]
    return BatchRequest(
        slots=list(slots), bins=80, rows=10, states=states, languages=languages, audio_rows=[9, 8], prompt="Valkey"
    )


def test_a_colocated_worker_transcribes_features(memory: SlotMemory, model: Any) -> None:
    reply = process_batch(Role.COLOCATED, model, memory, request(2, 0))
    texts = [DecodedText("3", "en"), DecodedText("1", "en")]
    assert reply == BatchReply(texts=texts, stages_ms={"encode": 2000.0, "decode": 3000.0})
    assert model.asked == [[None, "de"], [9, 8], "Valkey"]
    assert memory.get_features_view(2, 80, 10)[0, 0] == 3
    assert not any(memory.get_hidden_states_view(slot, SHAPE, "float16").any() for slot in range(3))


def test_hidden_states_pass_from_an_encoder_to_a_decoder_in_their_slots(memory: SlotMemory, model: Any) -> None:
    reply = process_batch(Role.ENCODER, model, memory, request(2, 0))
    assert reply == BatchReply(states=STATES, stages_ms={"encode": 2000.0})
    assert [memory.get_hidden_states_view(slot, SHAPE, "float16")[1, 2] for slot in range(3)] == [1, 0, 3]
    assert model.asked == []
    memory.get_features_view(0, 80, 10)[:] = 9
    reply = process_batch(Role.DECODER, model, memory, request(0, 2, states=reply.states))
    texts = [DecodedText("1", "en"), DecodedText("3", "en")]
    assert reply == BatchReply(texts=texts, stages_ms={"decode": 3000.0})


def test_a_batch_without_hidden_states_is_not_decoded(memory: SlotMemory, model: Any) -> None:
    with pytest.raises(ValueError, match="before prefill"):
        process_batch(Role.DECODER, model, memory, request(0))


def test_a_model_that_loses_a_window_is_an_error(memory: SlotMemory, model: Any) -> None:
    """Otherwise, a slot would keep the hidden states of another call."""
    model.missing = 1
    with pytest.raises(ValueError, match="shorter"):
        process_batch(Role.ENCODER, model, memory, request(0, 1))


def test_a_worker_needs_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["worker", "no role"])
    with pytest.raises(ValueError, match="'no role' is not a valid Role"):
        runpy.run_path(worker_module.__file__, run_name="__main__")


def run_main(monkeypatch: pytest.MonkeyPatch, memory: SlotMemory, load: object, lines: Sequence[str]) -> Any:
    """Return the exit code and output of a worker process with this input."""
    reader, writer = os.pipe()
    replies = io.FileIO(writer, "w")
    monkeypatch.setattr(worker_module, "_redirect_stdout", lambda: replies)
    monkeypatch.setattr(worker_module, "load_backend", load)
    monkeypatch.setattr(sys, "argv", ["worker", "colocated", str(memory.descriptor), "3", "2", "1"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    monkeypatch.setenv("VOICE_MODEL", "a model")
    monkeypatch.setenv("VOICE_CACHE_DIR", "/nonexistent")
    code = worker_module.main()
    replies.close()
    with os.fdopen(reader) as output:
        return code, output.read().splitlines()


def test_a_worker_answers_each_line(monkeypatch: pytest.MonkeyPatch, memory: SlotMemory, model: Any) -> None:
    loads: list[tuple[object, ...]] = []

    def load(settings: Any, *rest: object) -> Any:
        loads.append((settings.model, *rest))
        return model

    lines = [request(2, 0).model_dump_json(), request(1, 0).model_dump_json()]
    code, (ready, *replies) = run_main(monkeypatch, memory, load, lines)
    assert code == 0
    assert loads == [("a model", Role.COLOCATED, 2, 1)]
    assert ReadyMessage.model_validate_json(ready) == ReadyMessage(
        bins=80, languages=("en", "de"), supports_batch_encoding=True
    )
    texts = [[decoded.text for decoded in BatchReply.model_validate_json(reply).texts] for reply in replies]
    assert texts == [["3", "1"], ["2", "1"]]


def test_a_worker_without_a_model_reports_the_reason(monkeypatch: pytest.MonkeyPatch, memory: SlotMemory) -> None:
    def load(*_: object) -> None:
        raise ModelLoadError("no such folder")

    code, (reply,) = run_main(monkeypatch, memory, load, ["a request"])
    assert code == 1
    assert FailedMessage.model_validate_json(reply).reason == "no such folder"
