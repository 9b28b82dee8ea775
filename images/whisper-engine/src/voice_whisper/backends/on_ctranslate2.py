"""Whisper on CTranslate2: CPUs and NVIDIA GPUs, with the same code."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from voice_whisper.backends.base import DecodedText, HiddenStates, ModelLoadError, Role, Word
from voice_whisper.backends.weights import fetch_snapshot
from voice_whisper.settings import ModelSettings
from voice_whisper.window import ROWS_PER_S

MAX_TOKENS_PER_S = 10
"""Maximum number of tokens per second of audio, which limits repetitive output: twice the rate of fast speech."""
MAX_LENGTH_TO_TOKENS_RATIO = 2
"""Ratio of ``max_length`` to the tokens of a text. CTranslate2's Whisper applies ``max_length`` to prompt and text
together, half of it to each."""

MAX_PROMPT_TOKENS = 90
"""Maximum number of prompt tokens. Only the end of a longer prompt is used. The smallest window leaves room for this
many tokens in addition to its text."""

ROWS_PER_STATE = 2
STATE_DURATION_S = ROWS_PER_STATE / ROWS_PER_S
WORD_START_MARKER = "\u0120"
"""The tokenizer's representation of the space before a word."""
LANGUAGES_WITHOUT_SPACES = {"zh", "ja", "th", "lo", "my", "yue"}
"""Languages without spaces between words: every token may be a word."""
LANGUAGE_TOKEN_PATTERN = re.compile(r"<\|([a-z]{2,3})\|>")

NO_SPEECH_THRESHOLD = 0.6
LOG_PROBABILITY_THRESHOLD = -1.0
"""Whisper's own thresholds for silence, as in faster-whisper. A window has no words if its probability of silence is
above the first threshold, and its log probability is below the second."""


@dataclass(frozen=True)
class _SpecialTokens:
    """Tokens that control the decoder."""

    start: int
    transcribe: int
    no_timestamps: int
    first_special: int
    start_of_previous: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> "_SpecialTokens":
        names = ("<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>", "<|endoftext|>", "<|startofprev|>")
        return cls(*(_get_token_id(tokenizer, name) for name in names))


def _get_token_id(tokenizer: Tokenizer, name: str) -> int:
    token_id = tokenizer.token_to_id(name)
    if token_id is None:
        raise ModelLoadError(f"tokenizer.json does not contain {name}, so that it is not a tokenizer of Whisper")
    return token_id


def _list_model_languages(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the languages for which a model has tokens."""
    marks = map(LANGUAGE_TOKEN_PATTERN.fullmatch, tokenizer.get_vocab())
    return tuple(sorted(mark[1] for mark in marks if mark))


def _starts_word(piece: str, language: str) -> bool:
    return piece.startswith(WORD_START_MARKER) or language in LANGUAGES_WITHOUT_SPACES


def compute_max_length(hidden: HiddenStates) -> int:
    """Return the CTranslate2 parameter for the maximum number of tokens in a window."""
    states: int = hidden.shape[1]
    return states * ROWS_PER_STATE // ROWS_PER_S * MAX_TOKENS_PER_S * MAX_LENGTH_TO_TOKENS_RATIO


class CTranslate2Backend:
    """A converted Whisper model."""

    def __init__(self, model: ctranslate2.models.Whisper, tokenizer: Tokenizer) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._marks = _SpecialTokens.from_tokenizer(tokenizer)
        self.bins: int = model.n_mels
        # On a CPU, one window keeps the cores busy, and several windows do not fit into the CPU's caches.
        self.supports_batch_encoding: bool = model.device == "cuda"
        self.languages = _list_model_languages(tokenizer) if model.is_multilingual else ("en",)

    def encode(self, features: NDArray[np.float32]) -> HiddenStates:
        """Convert features to hidden states in host memory."""
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(features))
        return np.asarray(self._model.encode(view, to_cpu=True))

    def decode(
        self, hidden: HiddenStates, languages: Sequence[str | None], rows: Sequence[int], prompt: str = ""
    ) -> list[DecodedText]:
        """Convert hidden states to text by greedy search, and align its words."""
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(hidden))
        spoken, before = self._detect_languages(view, languages), self._encode_prompt(prompt)
        results = self._model.generate(
            view,
            [[*before, *self._build_control_prompt(language)] for language in spoken],
            beam_size=1,
            max_length=compute_max_length(hidden),
            return_scores=True,
            return_no_speech_prob=True,
        )
        token_lists = [self._select_text_tokens(each) for each in results]
        words = self._align_words(view, token_lists, spoken, rows)
        texts = [str(self._tokenizer.decode(tokens)).strip() for tokens in token_lists]
        return [DecodedText(*each) for each in zip(texts, spoken, words, strict=True)]

    def _detect_languages(self, view: ctranslate2.StorageView, languages: Sequence[str | None]) -> list[str]:
        if not self._model.is_multilingual:
            return ["en"] * len(languages)
        supported = [language if language in self.languages else None for language in languages]
        if None not in supported:
            return [language for language in supported if language]
        detected = [ranked[0][0].strip("<|>") for ranked in self._model.detect_language(view)]
        return [language or detected_language for language, detected_language in zip(supported, detected, strict=True)]

    def _build_control_prompt(self, language: str) -> list[int]:
        if not self._model.is_multilingual:
            return [self._marks.start, self._marks.no_timestamps]
        language_token = _get_token_id(self._tokenizer, f"<|{language}|>")
        return [self._marks.start, language_token, self._marks.transcribe, self._marks.no_timestamps]

    def _encode_prompt(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt, which Whisper treats as the end of the preceding text."""
        if not prompt:
            return []
        tokens = self._tokenizer.encode(f" {prompt}", add_special_tokens=False).ids[-MAX_PROMPT_TOKENS:]
        return [self._marks.start_of_previous, *tokens]

    def _select_text_tokens(self, result: ctranslate2.models.WhisperGenerationResult) -> list[int]:
        if result.no_speech_prob > NO_SPEECH_THRESHOLD and result.scores[0] < LOG_PROBABILITY_THRESHOLD:
            return []
        return [token for token in result.sequences_ids[0] if token < self._marks.first_special]

    def _align_words(
        self, view: ctranslate2.StorageView, token_lists: list[list[int]], languages: list[str], rows: Sequence[int]
    ) -> list[tuple[Word, ...]]:
        if not any(token_lists):
            return [() for _ in token_lists]
        aligned = self._model.align(view, [self._marks.start], token_lists, list(rows))
        return [self._extract_words(*each) for each in zip(token_lists, languages, aligned, strict=True)]

    def _extract_words(
        self,
        tokens: list[int],
        language: str,
        aligned: Any,  # noqa: ANN401  a class that the package does not name
    ) -> tuple[Word, ...]:
        starts: dict[int, float] = {}
        for token, state in aligned.alignments:
            starts.setdefault(token, state * STATE_DURATION_S)
        last = aligned.alignments[-1][1] * STATE_DURATION_S if aligned.alignments else 0.0
        pieces = [self._tokenizer.id_to_token(token) or "" for token in tokens]
        begins = [index for index, piece in enumerate(pieces) if not index or _starts_word(piece, language)]
        words = []
        for begin, end in itertools.pairwise([*begins, len(tokens)]):
            text = str(self._tokenizer.decode(tokens[begin:end]))
            confidence = fmean(aligned.text_token_probs[begin:end])
            words.append(Word(text, starts.get(begin, last), starts.get(end, last), round(confidence, 3)))
        return tuple(words)


def load(settings: ModelSettings, role: Role, threads: int, number: int) -> CTranslate2Backend:  # noqa: ARG001  same for every role
    """Load a model on the worker's GPU, if there are several.

    CTranslate2 loads encoder and decoder together.

    Raises:
        ModelLoadError: The model or the device does not exist.
    """
    folder = fetch_snapshot(settings.model, settings.model_revision, settings.cache_dir)
    try:
        gpus = ctranslate2.get_cuda_device_count()
        model = ctranslate2.models.Whisper(
            str(folder),
            device="cuda" if gpus else "cpu",
            device_index=number % gpus if gpus else 0,
            compute_type="float16" if gpus else "int8",
            intra_threads=threads,
        )
        return CTranslate2Backend(model, _load_tokenizer(folder))
    except (RuntimeError, ValueError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded: {error}") from error


def _load_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelLoadError(f"{file} is missing: copy it from the model that {folder.name} was converted from")
    return Tokenizer.from_file(str(file))
