"""Download of a model's weights."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from voice_whisper.backends.base import ModelLoadError


def fetch_snapshot(model: str, revision: str, cache_dir: Path) -> Path:
    """Return the folder of a model, which is downloaded to the cache if the model is a repository.

    Args:
        revision: Commit of the repository; empty for the latest.

    Raises:
        ModelLoadError: There is no such folder, and the repository is unreachable.
    """
    if Path(model).is_dir():
        return Path(model)
    try:
        return Path(snapshot_download(model, revision=revision or None, cache_dir=cache_dir / "weights"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelLoadError(
            f"VOICE_MODEL={model}: no such folder, and it cannot be downloaded ({type(error).__name__}): "
            f"give a folder, or a repository at Hugging Face that this host can reach"
        ) from error
