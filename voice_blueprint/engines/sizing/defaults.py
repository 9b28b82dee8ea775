"""vLLM defaults: batch limits and CUDA graph sizes for its API server, version 0.33."""

from dataclasses import dataclass

from voice_blueprint.catalog.inference import Gpu

BLOCK_SIZE_TOKENS = 16
"""Tokens per KV cache block (``--block-size``)."""

MAX_CAPTURED_SEQS = 512
"""Largest batch with a CUDA graph by default (config/compilation.py); larger ones decode without graphs."""

_SMALL_STEP_MAX, _SMALL_STEP, _LARGE_STEP = 256, 8, 16
_MIN_LARGEST_GPU_GIB, _MIN_LARGE_GPU_GIB = 160, 70


@dataclass(frozen=True)
class SchedulerLimits:
    """Limits for one scheduler step."""

    max_num_batched_tokens: int
    max_num_seqs: int


def select_default_scheduler_limits(gpu: Gpu) -> SchedulerLimits:
    """Return the defaults of vLLM's API server on a GPU (``EngineArgs.get_batch_defaults`` in engine/arg_utils.py).

    vLLM selects them by the memory that CUDA reports, and excludes the A100 by name, since larger steps reduce its
    throughput (vLLM pull request 17885).
    """
    if gpu.memory_gib >= _MIN_LARGEST_GPU_GIB:
        return SchedulerLimits(16384, 1024)
    if gpu.memory_gib >= _MIN_LARGE_GPU_GIB and not gpu.name.startswith("A100"):
        return SchedulerLimits(8192, 1024)
    return SchedulerLimits(2048, 256)


def round_up_to_graph_size(sequences: int) -> int:
    """Return the smallest of vLLM's graph sizes that is at least ``sequences``."""
    for size in (1, 2, 4):
        if sequences <= size:
            return size
    step = _SMALL_STEP if sequences <= _SMALL_STEP_MAX else _LARGE_STEP
    return -(-sequences // step) * step


def list_capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Return the batch sizes for which to capture CUDA graphs, up to ``max_num_seqs``.

    The sizes are those of vLLM: 1, 2, 4, multiples of 8 below 256, and multiples of 16 from 256.

    vLLM's default continues to twice ``max_num_seqs``, up to ``MAX_CAPTURED_SEQS``.
    """
    sizes = (
        1,
        2,
        4,
        *range(_SMALL_STEP, _SMALL_STEP_MAX, _SMALL_STEP),
        *range(_SMALL_STEP_MAX, max_num_seqs + 1, _LARGE_STEP),
    )
    return tuple(size for size in sizes if size <= max_num_seqs)
