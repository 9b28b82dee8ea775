"""How much audio one request may carry: what vLLM and the proxies in front of it must agree on."""

import math
from dataclasses import dataclass

from blueprint.catalog.inference import Architecture, ModelCard, Task

LONGEST_AUDIO_S = 2400
"""About 40 minutes, the longest audio that Voxtral understands (arXiv 2507.13264)."""

_UPLOAD_BYTES_PER_S = 16_000 * 2
"""WAV at 16 kHz, 16 bit, mono: the largest form that a caller has a reason to send."""
_DECODED_BYTES_PER_S = 48_000 * 4
"""Float32 at 48 kHz, mono: how vLLM's own default of 256 MiB for 600 s is reckoned."""
_MIB = 1 << 20


@dataclass(frozen=True)
class AudioLimits:
    """What one request may carry.

    Attributes:
        seconds: Longest audio, s.
    """

    seconds: int

    @property
    def file_mib(self) -> int:
        """Largest audio file, MiB."""
        return math.ceil(self.seconds * _UPLOAD_BYTES_PER_S / _MIB)

    @property
    def body_bytes(self) -> int:
        """Largest HTTP body: the file in base64, as chat messages carry it, and 1 MiB of text."""
        return self.file_mib * _MIB * 4 // 3 + _MIB

    @property
    def body_mib(self) -> int:
        """The same in MiB, rounded up."""
        return math.ceil(self.body_bytes / _MIB)

    def environment(self) -> dict[str, str]:
        """Return vLLM's variables; its defaults refuse audio over 25 MB or 600 s, and bodies over 32 MiB."""
        return {
            "VLLM_MAX_AUDIO_DECODE_DURATION_S": str(self.seconds),
            "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB": str(self.file_mib),
            "VLLM_MAX_AUDIO_DECODE_BYTES": str(self.seconds * _DECODED_BYTES_PER_S),
            "VLLM_HTTP_MAX_REQUEST_BODY_SIZE": str(self.body_bytes),
        }


def audio_limits(model: ModelCard, max_model_len: int) -> AudioLimits | None:
    """Return what fits a model's context, or ``None`` where vLLM's own limits do.

    Encoder-decoder models read audio in windows of 30 s, which vLLM cuts by itself; no context limits the length.
    """
    if model.task is not Task.AUDIO_CHAT or model.architecture is not Architecture.DECODER_ONLY:
        return None
    if model.audio_tokens_per_s is None:
        return None
    return AudioLimits(min(LONGEST_AUDIO_S, int(max_model_len / model.audio_tokens_per_s)))
