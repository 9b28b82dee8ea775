"""``hf download``, which downloads only the files of a model that its engine reads."""

from voice_blueprint.catalog.inference import ModelCard

_COMMON_FILE_PATTERNS = ("*.json", "*.txt", "*.jinja")
FILE_PATTERNS_BY_MODEL_FORMAT = {
    "hf": (*_COMMON_FILE_PATTERNS, "*.model", "model.safetensors", "model-*.safetensors"),
    # vLLM-Omni reads a voice from `voice_embedding/<name>.pt` (models/voxtral_tts/voxtral_tts.py, 0.30.0).
    "mistral": (*_COMMON_FILE_PATTERNS, "consolidated*.safetensors", "voice_embedding/*.pt"),
}
"""Patterns of the files that an engine reads, by the format of the model. A repository may contain the weights in
several formats: Voxtral in the layouts of Mistral and Transformers, Whisper for PyTorch, for Flax and in 32 bits."""


def build_download_command(card: ModelCard, repository: str, revision: str | None) -> tuple[str, ...]:
    """Return the command that downloads a model's repository. Existing files are not downloaded again.

    Args:
        repository: Repository of the model, or of its FP8 weights, which are in Transformers' layout.
        revision: Commit; ``None`` for the latest.
    """
    layout = card.file_format if repository == card.repository else "hf"
    patterns = (argument for pattern in FILE_PATTERNS_BY_MODEL_FORMAT[layout] for argument in ("--include", pattern))
    return ("hf", "download", repository, *(("--revision", revision) if revision else ()), *patterns)
