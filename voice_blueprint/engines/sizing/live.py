"""Sizing for models with streaming audio: a session is a call, which adds tokens every second.

Three limits apply to the calls of an engine: memory for their contexts, compute for incoming audio, and memory
bandwidth, since each step reads all contexts. None of these limits was measured on a GPU; ``catalog.live_streams``
contains published measurements.
"""

import math

from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.engines.sizing.memory import BF16_BYTES, BYTES_PER_GIB
from voice_blueprint.engines.sizing.result import DoesNotFitError, LimitingFactor
from voice_blueprint.file.model.serving import Load

LIVE_COMPUTE_FRACTION = 0.3
"""Share of peak compute that small batches of encoder and decoder reach. ASSUMED."""
LIVE_BANDWIDTH_FRACTION = 0.6
"""Share of peak bandwidth that attention over many contexts reaches. ASSUMED."""
ENCODER_POSITIONS_PER_TOKEN = 4
"""Positions of a Whisper-like encoder per token of the decoder (50 and 12.5 per second). All weights are multiplied by
this ratio, since the catalogue does not separate encoder and decoder. The result is an upper limit on the work."""


def calculate_call_tokens(model: ModelCard, seconds: float) -> int:
    """Return the tokens in a call of this duration; 0 for a model without streaming input."""
    return math.ceil(seconds * (model.audio_tokens_per_s or 0)) if model.hears_live else 0


def validate_call_duration(model: ModelCard, load: Load) -> None:
    """Reject sessions that are shorter than their call.

    Raises:
        DoesNotFitError: A session is shorter than its call.
    """
    if load.longest_call_s is None:
        return
    required_tokens = calculate_call_tokens(model, load.longest_call_s)
    if load.session_tokens < required_tokens:
        raise DoesNotFitError(
            f"a call of {load.longest_call_s} s requires {required_tokens} tokens of {model.name} "
            f"({model.audio_tokens_per_s:g} a "
            f"second); session_tokens {load.session_tokens} hold {load.session_tokens / required_tokens:.0%} of it",
            f"set session_tokens and context_tokens to {required_tokens} or more",
        )


def calculate_max_calls_by_limit(
    model: ModelCard, gpu: Gpu, *, tensor_parallel: int, weights_gib: float, session_bytes: int
) -> dict[LimitingFactor, int]:
    """Return the number of calls that compute and memory bandwidth allow.

    The result is empty for a model without streaming audio.

    Every token of a call is a step, which reads the weights once and the context of each call.
    """
    if not model.hears_live or not model.audio_tokens_per_s:
        return {}
    rate = model.audio_tokens_per_s
    parameters = model.weights_gib * BYTES_PER_GIB / BF16_BYTES
    flops = LIVE_COMPUTE_FRACTION * gpu.bf16_tflops * 1e12 * tensor_parallel
    read = LIVE_BANDWIDTH_FRACTION * gpu.memory_gb_per_s * 1e9 * tensor_parallel / rate - weights_gib * BYTES_PER_GIB
    return {
        LimitingFactor.COMPUTE: int(flops / (2 * parameters * rate * ENCODER_POSITIONS_PER_TOKEN)),
        LimitingFactor.BANDWIDTH: max(0, int(read / session_bytes)),
    }
