"""The fake Hugging Face server of the rehearsal, used by the engine's library."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from voice_sandbox.hosts.weights import WeightsServer

FILES = {"model.bin": bytes(range(256)) * 4096, "config.json": b"{}", "vocabulary.txt": b"a\nb\n"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    weights = WeightsServer("Systran/tiny", folder)
    yield f"http://127.0.0.1:{weights.port}"
    weights.close()


def test_the_library_downloads_every_file(server: str, tmp_path: Path) -> None:
    got = Path(snapshot_download("Systran/tiny", cache_dir=tmp_path / "cache", endpoint=server))
    assert {file.name: file.read_bytes() for file in got.iterdir()} == FILES


def test_an_unknown_repository_is_not_found(server: str, tmp_path: Path) -> None:
    with pytest.raises(LocalEntryNotFoundError):
        snapshot_download("Systran/large", cache_dir=tmp_path / "cache", endpoint=server)
