"""Maximum audio per request, which must be the same in vLLM and in the proxies in front of it."""

import math
from dataclasses import dataclass

from voice_blueprint.catalog.inference import ModelArchitecture, ModelCard, ModelTask

MAX_AUDIO_S = 2400
"""Maximum duration of audio for Voxtral, about 40 minutes (arXiv 2507.13264)."""

_UPLOAD_BYTES_PER_S = 16_000 * 2
"""WAV at 16 kHz, 16 bit, mono: the largest useful upload format."""
_DECODED_BYTES_PER_S = 48_000 * 4
"""Float32 at 48 kHz, mono: the basis of vLLM's default of 256 MiB for 600 s."""
_MIB = 1 << 20


@dataclass(frozen=True)
class AudioLimits:
    """Limits of one request.

    Attributes:
        max_seconds: Maximum duration of audio, s.
    """

    max_seconds: int

    @property
    def max_file_mib(self) -> int:
        """Maximum size of an audio file, MiB."""
        return math.ceil(self.max_seconds * _UPLOAD_BYTES_PER_S / _MIB)

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of an HTTP body: a file as base64, as in chat messages, and 1 MiB of text."""
        return self.max_file_mib * _MIB * 4 // 3 + _MIB

    @property
    def max_body_mib(self) -> int:
        """Maximum size of an HTTP body, rounded up to MiB."""
        return math.ceil(self.max_body_bytes / _MIB)

    def build_environment(self) -> dict[str, str]:
        """Return the vLLM variables that set these limits.

        By default, vLLM rejects audio over 25 MB or 600 s, and bodies over 32 MiB.
        """
        return {
            "VLLM_MAX_AUDIO_DECODE_DURATION_S": str(self.max_seconds),
            "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB": str(self.max_file_mib),
            "VLLM_MAX_AUDIO_DECODE_BYTES": str(self.max_seconds * _DECODED_BYTES_PER_S),
            "VLLM_HTTP_MAX_REQUEST_BODY_SIZE": str(self.max_body_bytes),
        }


def calculate_audio_limits(model: ModelCard, max_model_len: int) -> AudioLimits | None:
    """Return the limits that result from a model's context, or ``None`` if vLLM's own limits are lower.

    vLLM splits audio for encoder-decoder models into windows of 30 s, so their context does not limit the duration.
    """
    if model.task is not ModelTask.AUDIO_CHAT or model.architecture is not ModelArchitecture.DECODER_ONLY:
        return None
    if model.audio_tokens_per_s is None:
        return None
    return AudioLimits(min(MAX_AUDIO_S, int(max_model_len / model.audio_tokens_per_s)))
