"""Whisper from NxD Inference on AWS Inferentia2 and Trainium1, in the image ``asr-neuron``.

This backend is not tested, since neither such hardware nor its packages were available. Names are those of
neuronx_distributed_inference.models.whisper.modeling_whisper (SDK 2.31) and of openai-whisper, on which it is based.

Encoder and decoder are each compiled once, into the cache folder. Each worker loads its part, or both parts if prefill
and decode are colocated, onto its own NeuronCore. Shapes are fixed: one window of 30 s at a time.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from voice_whisper.backends.base import DecodedText, HiddenStates, ModelLoadError, Role
from voice_whisper.backends.weights import fetch_snapshot
from voice_whisper.settings import ModelSettings
from voice_whisper.window import MAX_WINDOW_ROWS

CORES_PER_WORKER = "1"


class NeuronBackend:
    """A compiled model, or one part of it."""

    def __init__(self, application: Any) -> None:  # noqa: ANN401  a class of a package that is not here
        self._application = application
        self._torch = importlib.import_module("torch")
        self._options = importlib.import_module("whisper").DecodingOptions
        self.bins: int = application.dims.n_mels
        self.supports_batch_encoding = False
        languages = importlib.import_module("whisper.tokenizer").LANGUAGES
        self.languages: tuple[str, ...] = tuple(languages) if application.is_multilingual else ("en",)

    def encode(self, features: NDArray[np.float32]) -> HiddenStates:
        """Convert the features of 30 s windows to hidden states, one window at a time."""
        padding = ((0, 0), (0, 0), (0, MAX_WINDOW_ROWS - features.shape[2]))
        windows = self._torch.from_numpy(np.pad(features, padding))
        states = [self._application.encoder(window).numpy() for window in windows.split(1)]
        return np.concatenate(states).astype(np.float32)

    def decode(
        self,
        hidden: HiddenStates,
        languages: Sequence[str | None],
        rows: Sequence[int],  # noqa: ARG002  no word times are reported
        prompt: str = "",
    ) -> list[DecodedText]:
        """Convert hidden states to text by greedy search, one by one."""
        return [self._decode(states, language, prompt) for states, language in zip(hidden, languages, strict=True)]

    def _decode(self, states: HiddenStates, language: str | None, prompt: str) -> DecodedText:
        options = self._options(language=language, prompt=prompt or None, without_timestamps=True, fp16=False)
        result = self._application.decode(self._torch.from_numpy(states), options)
        return DecodedText(result.text.strip(), result.language)


def load(settings: ModelSettings, role: Role, threads: int, number: int) -> NeuronBackend:  # noqa: ARG001  the host computes little, and the runtime finds a free core
    """Load one part of a model, or both. The first worker that needs a part compiles it.

    Raises:
        ModelLoadError: The packages, the weights or a free NeuronCore are missing.
    """
    # A launcher specifies all cores of the host; each worker uses a free one.
    os.environ.pop("NEURON_RT_VISIBLE_CORES", None)
    os.environ["NEURON_RT_NUM_CORES"] = CORES_PER_WORKER
    folder = fetch_snapshot(settings.model, settings.model_revision, settings.cache_dir)
    roles = [half for half in (Role.ENCODER, Role.DECODER) if role in {half, Role.COLOCATED}]
    try:
        application = _load_application(folder)
        for module_role in roles:
            _load_module(
                getattr(application, module_role), settings.cache_dir / "neuron-whisper" / folder.name / module_role
            )
        return NeuronBackend(application)
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded on Neuron: {error}") from error


def _load_module(module: Any, compiled: Path) -> None:  # noqa: ANN401  as above
    compiled.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{compiled}.lock"):
        if not any(compiled.iterdir()):
            module.compile(str(compiled))
    module.load(str(compiled))


def _load_application(folder: Path) -> Any:  # noqa: ANN401  as above
    whisper = importlib.import_module("neuronx_distributed_inference.models.whisper.modeling_whisper")
    config = importlib.import_module("neuronx_distributed_inference.models.config")
    adapter = importlib.import_module("neuronx_distributed_inference.utils.hf_adapter")
    float16 = importlib.import_module("torch").float16
    neuron = config.NeuronConfig(batch_size=1, torch_dtype=float16, tp_degree=1)
    inference = whisper.WhisperInferenceConfig(neuron, load_config=adapter.load_pretrained_config(str(folder)))
    return whisper.NeuronApplicationWhisper(str(folder), config=inference)
