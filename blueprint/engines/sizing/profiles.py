"""Baseline and tuned engines for every model on every GPU, and pairs for an A/B measurement."""

from dataclasses import dataclass, replace

from blueprint import catalog
from blueprint.catalog.inference import Gpu, ModelCard, Task
from blueprint.engines.sizing.defaults import BLOCK_SIZE, MOST_CAPTURED_SEQS, batch_defaults
from blueprint.engines.sizing.engine import size_engine
from blueprint.engines.sizing.live import call_tokens
from blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from blueprint.file.model.serving import Load, Profile

TYPICAL_LOADS = {
    Task.AUDIO_CHAT: Load(sessions=1, session_tokens=1500, context_tokens=32768),
    Task.TRANSCRIPTION: Load(sessions=1, session_tokens=448, context_tokens=448),
    Task.CHAT: Load(sessions=1, session_tokens=1500, context_tokens=16384),
}
"""Lengths that the table is computed for. An assumption: 1500 tokens are 60 s of Voxtral audio (750) with prompt and
answer; 448 is the whole of Whisper's decoder."""

LIVE_CALL_S = 600
"""The same for models that take audio as it comes: ten minutes, as long as `docs/tuning.md` counts."""

TREATED_BLOCK_SIZE = 32
TREATED_STEP_FACTOR = 4
"""What the treatment of the A/B pair changes ``max_num_batched_tokens`` by. A choice."""


@dataclass(frozen=True)
class ProfileRow:
    """One model on one GPU: both profiles, or why there are none."""

    model: str
    gpu: str
    tensor_parallel: int
    baseline: EngineSizing | None
    tuned: EngineSizing | None
    refusal: DoesNotFitError | None = None


def profile_table() -> tuple[ProfileRow, ...]:
    """Return a row for every vLLM model and GPU of the catalogue.

    TP is 1, or 2 where that is needed and NVLink joins two such GPUs.
    """
    models = [model for model in catalog.models().values() if model.served_by == "vllm"]
    return tuple(_row(model, gpu) for model in models for gpu in catalog.gpus().values())


def _typical(model: ModelCard) -> Load:
    if not model.hears_live:
        return TYPICAL_LOADS[model.task]
    tokens = call_tokens(model, LIVE_CALL_S)
    return Load(sessions=1, session_tokens=tokens, context_tokens=tokens, longest_call_s=LIVE_CALL_S)


def _row(model: ModelCard, gpu: Gpu) -> ProfileRow:
    load = _typical(model)
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
            return ProfileRow(model.name, gpu.name, width, baseline, tuned)
    return ProfileRow(model.name, gpu.name, widths[-1], None, None, refusal)


def batching_pair(sizing: EngineSizing) -> tuple[EngineSizing, EngineSizing]:
    """Return control and treatment for the claim that the batch scheduler and the block size give -40 % of latency.

    No source for the claim was found. Both engines carry the load of the smaller one, and differ in ``max_num_seqs``,
    ``max_num_batched_tokens`` and ``block_size`` only. Control has vLLM's defaults, written out; the treatment has more
    requests and tokens in a step, and larger blocks. vLLM warns that a set block size may exclude faster attention
    backends.
    """
    defaults = batch_defaults(catalog.gpus()[sizing.gpu])
    control = replace(
        sizing,
        sessions=min(sizing.sessions, defaults.max_num_seqs),
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        block_size=BLOCK_SIZE,
        reasons={"batching": "A/B pair: differs in max_num_seqs, max_num_batched_tokens and block_size only"},
    )
    treatment = replace(
        control,
        max_num_seqs=max(MOST_CAPTURED_SEQS, 2 * defaults.max_num_seqs),
        max_num_batched_tokens=TREATED_STEP_FACTOR * defaults.max_num_batched_tokens,
        block_size=TREATED_BLOCK_SIZE,
    )
    return control, treatment
