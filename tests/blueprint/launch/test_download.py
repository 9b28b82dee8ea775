"""Files of a model repository that are downloaded, determined with the hub's real client."""

import fnmatch

import pytest
from huggingface_hub import constants

from voice_blueprint import catalog
from voice_blueprint.engines.launch.download import FILE_PATTERNS_BY_MODEL_FORMAT, build_download_command

with pytest.MonkeyPatch.context() as offline:
    offline.setattr(constants, "HF_HUB_OFFLINE", True)  # otherwise the import fetches a list from the hub
    from huggingface_hub.cli import download
    from huggingface_hub.cli.hf import app

SHARED_FILES = ["config.json", "generation_config.json", "tokenizer_config.json"]
MISTRAL_FILES = ["consolidated.safetensors", "params.json", "tekken.json"]
TRANSFORMERS_FILES = [
    "model-00001-of-00011.safetensors",
    "model-00011-of-00011.safetensors",
    "model.safetensors.index.json",
]
"""https://huggingface.co/mistralai/Voxtral-Small-24B-2507 has both formats."""
OTHER_FORMATS = [
    "flax_model.msgpack",
    "pytorch_model.bin",
    "model.fp32-00001-of-00002.safetensors",
    "pytorch_model.fp32.bin",
]
"""https://huggingface.co/openai/whisper-large-v3 has them in addition to ``model.safetensors``."""


def requested_snapshot(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> dict[str, object]:
    """Return the request that the client would send to the hub."""
    seen: dict[str, object] = {}

    def snapshot(**arguments: object) -> str:
        seen.update(arguments)
        return "/models"

    monkeypatch.setattr(download, "snapshot_download", snapshot)
    app(list(command[1:]), standalone_mode=False)
    return seen


@pytest.mark.parametrize(
    ("name", "downloaded_files", "other_files"),
    [
        ("voxtral-small-24b", [*SHARED_FILES, *MISTRAL_FILES], TRANSFORMERS_FILES[:2]),
        ("voxtral-4b-tts", [*MISTRAL_FILES, "voice_embedding/casual_male.pt"], TRANSFORMERS_FILES[:2]),
        ("whisper-large-v3", [*SHARED_FILES, "model.safetensors", "vocab.json", "merges.txt"], OTHER_FORMATS),
        ("qwen3-8b", [*SHARED_FILES, *TRANSFORMERS_FILES, "merges.txt"], ["consolidated.safetensors", *OTHER_FORMATS]),
    ],
)
def test_only_one_weight_format_is_downloaded(
    name: str, downloaded_files: list[str], other_files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = catalog.models()[name]
    command = build_download_command(card, card.repository, "1" * 40)
    assert command[:2] == ("hf", "download")
    seen = requested_snapshot(monkeypatch, command)
    assert (seen["repo_id"], seen["revision"]) == (card.repository, "1" * 40)
    patterns = seen["allow_patterns"]
    assert isinstance(patterns, list)
    assert [file for file in downloaded_files if not any(fnmatch.fnmatch(file, each) for each in patterns)] == []
    assert [file for file in other_files if any(fnmatch.fnmatch(file, each) for each in patterns)] == []


def test_fp8_weights_use_the_transformers_layout() -> None:
    card = catalog.models()["qwen3-8b"].model_copy(update={"file_format": "mistral"})
    assert card.fp8_repository
    assert set(FILE_PATTERNS_BY_MODEL_FORMAT["hf"]) <= set(build_download_command(card, card.fp8_repository, None))
    assert "consolidated*.safetensors" in build_download_command(card, card.repository, None)
