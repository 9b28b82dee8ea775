"""Baseline and tuned engines for every model on every GPU, and pairs for an A/B measurement."""

from dataclasses import dataclass, replace

from voice_blueprint import catalog
from voice_blueprint.catalog.inference import Gpu, ModelCard, ModelTask
from voice_blueprint.engines.sizing.defaults import (
    BLOCK_SIZE_TOKENS,
    MAX_CAPTURED_SEQS,
    select_default_scheduler_limits,
)
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.engines.sizing.live import calculate_call_tokens
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from voice_blueprint.file.model.serving import Load, Profile

TYPICAL_LOAD_BY_TASK = {
    ModelTask.AUDIO_CHAT: Load(sessions=1, session_tokens=1500, context_tokens=32768),
    ModelTask.TRANSCRIPTION: Load(sessions=1, session_tokens=448, context_tokens=448),
    ModelTask.CHAT: Load(sessions=1, session_tokens=1500, context_tokens=16384),
}
"""Session lengths for which the table is calculated. ASSUMED: 1500 tokens are 60 s of Voxtral audio (750) with prompt
and answer; 448 is the whole context of Whisper's decoder."""

LIVE_CALL_DURATION_S = 600
"""Duration of a call for models with streaming audio: ten minutes, as in `docs/tuning.md`."""

TREATMENT_BLOCK_SIZE = 32
TREATMENT_STEP_FACTOR = 4
"""Factor by which the treatment of the A/B pair changes ``max_num_batched_tokens``. This is our choice."""


@dataclass(frozen=True)
class ProfileComparison:
    """A model on one GPU: both profiles, or the reason for their absence."""

    model: str
    gpu: str
    tensor_parallel: int
    baseline: EngineSizing | None
    tuned: EngineSizing | None
    refusal: DoesNotFitError | None = None


def build_profile_table() -> tuple[ProfileComparison, ...]:
    """Return a row for every vLLM model and GPU in the catalogue.

    TP is 1, or 2 if required and supported by NVLink.
    """
    models = [model for model in catalog.models().values() if model.served_by == "vllm"]
    return tuple(_build_profile_row(model, gpu) for model in models for gpu in catalog.gpus().values())


def _get_typical_load(model: ModelCard) -> Load:
    if not model.hears_live:
        return TYPICAL_LOAD_BY_TASK[model.task]
    tokens = calculate_call_tokens(model, LIVE_CALL_DURATION_S)
    return Load(sessions=1, session_tokens=tokens, context_tokens=tokens, longest_call_s=LIVE_CALL_DURATION_S)


def _build_profile_row(model: ModelCard, gpu: Gpu) -> ProfileComparison:
    load = _get_typical_load(model)
    widths = (1, 2) if gpu.nvlink_gb_per_s else (1,)
    refusal: DoesNotFitError | None = None
    for width in widths:
        try:
            baseline, tuned = (
                size_engine(model, gpu, load=load, tensor_parallel=width, profile=profile)
                for profile in (Profile.BASELINE, Profile.TUNED)
            )
        except DoesNotFitError as error:
            refusal = error
        else:
            return ProfileComparison(model.name, gpu.name, width, baseline, tuned)
    return ProfileComparison(model.name, gpu.name, widths[-1], None, None, refusal)


def create_batching_variants(sizing: EngineSizing) -> tuple[EngineSizing, EngineSizing]:
    """Return the control and the treatment for an A/B test of batching limits and the block size.

    The test examines the claim that batching limits and block size reduce latency by 40 %. No source of the claim was
    found. Both engines have the load of the smaller one, and only differ in ``max_num_seqs``,
    ``max_num_batched_tokens`` and ``block_size``. The control has vLLM's defaults, explicitly set; the treatment has
    more requests and tokens per step, and larger blocks. vLLM warns that an explicit block size may exclude faster
    attention backends.
    """
    defaults = select_default_scheduler_limits(catalog.gpus()[sizing.gpu])
    control = replace(
        sizing,
        sessions=min(sizing.sessions, defaults.max_num_seqs),
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        block_size=BLOCK_SIZE_TOKENS,
        reasons={"batching": "A/B pair: differs in max_num_seqs, max_num_batched_tokens and block_size only"},
    )
    treatment = replace(
        control,
        max_num_seqs=max(MAX_CAPTURED_SEQS, 2 * defaults.max_num_seqs),
        max_num_batched_tokens=TREATMENT_STEP_FACTOR * defaults.max_num_batched_tokens,
        block_size=TREATMENT_BLOCK_SIZE,
    )
    return control, treatment
