"""The backend for Neuron, with stand-ins for the packages that only exist on such hosts."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from voice_whisper.backends import on_neuron
from voice_whisper.backends.base import DecodedText, ModelLoadError, Role
from voice_whisper.settings import ModelSettings

BINS = 128
WINDOW_ROWS = 3000
"""30 s, the only shape of an encoder."""
INFERENCE = "neuronx_distributed_inference"


class Tensor:
    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def split(self, size: int) -> list["Tensor"]:
        return [Tensor(self.values[at : at + size]) for at in range(0, len(self.values), size)]

    def numpy(self) -> NDArray[Any]:
        return self.values


class Part:
    """An encoder or decoder, compiled for batches of one size. The stand-in returns its input."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.loaded = ""

    def compile(self, folder: str) -> None:
        assert not any(Path(folder).iterdir()), "it is compiled once"
        (Path(folder) / "model.pt").touch()

    def load(self, folder: str) -> None:
        assert any(Path(folder).iterdir()), "it is compiled before"
        self.loaded = folder

    def __call__(self, windows: Tensor) -> Tensor:
        assert windows.values.shape == (self.batch, BINS, WINDOW_ROWS)
        return Tensor(windows.values.astype(np.float16))


class Application:
    is_multilingual = True
    dims = SimpleNamespace(n_mels=BINS)

    def __init__(self, _: str, config: Any) -> None:
        # A worker has one core.
        assert str(config.neuron.tp_degree) == os.environ["NEURON_RT_NUM_CORES"] == "1"
        assert "NEURON_RT_VISIBLE_CORES" not in os.environ
        self.encoder, self.decoder = (Part(config.neuron.batch_size) for _ in range(2))

    def decode(self, states: Tensor, options: Any) -> Any:
        assert options.without_timestamps
        assert not options.fp16
        text = f" {states.values.sum():.0f} after {options.prompt} "
        return SimpleNamespace(text=text, language=options.language or "fr")


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(NeuronConfig=SimpleNamespace)
    whisper = SimpleNamespace(
        WhisperInferenceConfig=lambda neuron, load_config: SimpleNamespace(neuron=neuron, loaded=load_config),
        NeuronApplicationWhisper=Application,
    )
    for name, module in {
        "torch": SimpleNamespace(from_numpy=Tensor, float16=np.float16),
        "whisper": SimpleNamespace(DecodingOptions=SimpleNamespace),
        "whisper.tokenizer": SimpleNamespace(LANGUAGES={"de": "german", "en": "english"}),
        f"{INFERENCE}.models.whisper.modeling_whisper": whisper,
        f"{INFERENCE}.models.config": config,
        f"{INFERENCE}.utils.hf_adapter": SimpleNamespace(load_pretrained_config=Path),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-1")
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    (tmp_path / "model").mkdir()
    return ModelSettings(model=str(tmp_path / "model"), cache_dir=tmp_path / "cache", backend="neuron")


@pytest.mark.parametrize(
    ("role", "parts"),
    [(Role.ENCODER, ["encoder"]), (Role.DECODER, ["decoder"]), (Role.COLOCATED, ["encoder", "decoder"])],
)
def test_a_worker_loads_its_parts_which_are_compiled_once(
    settings: ModelSettings, role: Role, parts: list[str]
) -> None:
    for number in range(2):
        application = on_neuron.load(settings, role, threads=1, number=number)._application
        folders = {part: getattr(application, part).loaded for part in ("encoder", "decoder")}
        assert [part for part, folder in folders.items() if folder] == parts
        assert len(set(folders.values())) == 2, "parts have folders of their own"


def test_windows_are_encoded_and_decoded_one_by_one(settings: ModelSettings) -> None:
    backend = on_neuron.load(settings, Role.COLOCATED, threads=1, number=0)
    assert backend.bins == BINS
    assert not backend.supports_batch_encoding
    assert backend.languages == ("de", "en")
    features = np.stack([np.full((BINS, 2), 1, np.float32), np.full((BINS, 2), 2, np.float32)])
    hidden = backend.encode(features)
    assert hidden.dtype == np.float32
    assert np.array_equal(hidden[:, :, :2], features)
    assert not hidden[:, :, 2:].any(), "silence follows"
    assert backend.decode(hidden, ["de", None], [2, 2]) == [
        DecodedText("256 after None", "de"),
        DecodedText("512 after None", "fr"),
    ]
    assert backend.decode(hidden[:1], ["de"], [2], "Trikafta")[0].text == "256 after Trikafta"


def test_a_model_of_english_supports_it_alone(settings: ModelSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "is_multilingual", False)
    assert on_neuron.load(settings, Role.ENCODER, threads=1, number=0).languages == ("en",)


def test_a_host_without_the_packages_cannot_load(settings: ModelSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{INFERENCE}.models.config", None)
    with pytest.raises(ModelLoadError, match="cannot be loaded on Neuron"):
        on_neuron.load(settings, Role.ENCODER, threads=1, number=0)
