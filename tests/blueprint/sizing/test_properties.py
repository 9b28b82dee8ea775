"""Properties of sizing that are true for every model, GPU and load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_blueprint import catalog
from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.engines.sizing.memory import (
    BYTES_PER_GIB,
    calculate_kv_memory,
    calculate_session_bytes,
    calculate_weights_gib,
)
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from voice_blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization

MODELS = st.sampled_from([model for model in catalog.models().values() if model.served_by == "vllm"])
GPUS = st.sampled_from(list(catalog.gpus().values()))
TENSOR_PARALLEL_SIZES = st.sampled_from([1, 2, 4])
QUANTIZATIONS = st.sampled_from(Quantization)
LENGTHS = st.integers(min_value=1, max_value=32768)


def size_model(
    model: ModelCard,
    gpu: Gpu,
    tokens: int,
    *,
    width: int = 1,
    quantization: Quantization = Quantization.NONE,
    profile: Profile = Profile.TUNED,
) -> EngineSizing | None:
    """Size an engine for sessions of a length, limited to the model's context; None if it does not fit."""
    tokens = min(tokens, model.max_context_tokens)
    load = Load(sessions=1, session_tokens=tokens, context_tokens=tokens)
    try:
        return size_engine(model, gpu, load=load, tensor_parallel=width, quantization=quantization, profile=profile)
    except DoesNotFitError:
        return None


def sessions(engine: EngineSizing | None) -> int:
    return engine.sessions if engine else 0


@given(
    model=MODELS,
    gpu=GPUS,
    width=TENSOR_PARALLEL_SIZES,
    quantization=QUANTIZATIONS,
    tokens=LENGTHS,
    profile=st.sampled_from(Profile),
)
def test_memory_is_never_exceeded(
    *, model: ModelCard, gpu: Gpu, width: int, quantization: Quantization, tokens: int, profile: Profile
) -> None:
    engine = size_model(model, gpu, tokens, width=width, quantization=quantization, profile=profile)
    if engine is None:
        return
    cache = engine.sessions * calculate_session_bytes(model, engine.max_model_len)
    assert cache <= calculate_kv_memory(model, gpu, tensor_parallel=width, quantization=quantization).total_bytes
    assert (
        cache / BYTES_PER_GIB + calculate_weights_gib(model, quantization)
        < width * gpu.memory_gib * engine.gpu_memory_utilization
    )
    assert engine.sessions >= 1


@given(MODELS, GPUS, TENSOR_PARALLEL_SIZES, LENGTHS, LENGTHS)
def test_longer_sessions_never_increase_their_number(
    model: ModelCard, gpu: Gpu, width: int, one: int, other: int
) -> None:
    short, long = sorted((one, other))
    assert sessions(size_model(model, gpu, short, width=width)) >= sessions(size_model(model, gpu, long, width=width))


@given(MODELS, GPUS, LENGTHS, st.floats(min_value=0, max_value=100))
def test_a_larger_gpu_never_supports_fewer_sessions(model: ModelCard, gpu: Gpu, tokens: int, more: float) -> None:
    larger = gpu.model_copy(update={"memory_gib": gpu.memory_gib + more})
    assert sessions(size_model(model, larger, tokens)) >= sessions(size_model(model, gpu, tokens))


@given(MODELS, GPUS, TENSOR_PARALLEL_SIZES, LENGTHS)
def test_fp8_weights_never_reduce_sessions(model: ModelCard, gpu: Gpu, width: int, tokens: int) -> None:
    fp8 = size_model(model, gpu, tokens, width=width, quantization=Quantization.FP8)
    assert sessions(fp8) >= sessions(size_model(model, gpu, tokens, width=width))


@given(MODELS, GPUS, TENSOR_PARALLEL_SIZES, LENGTHS)
def test_graphs_are_sorted_unique_and_end_at_the_batch(model: ModelCard, gpu: Gpu, width: int, tokens: int) -> None:
    engine = size_model(model, gpu, tokens, width=width)
    if engine is None:
        return
    sizes = engine.cudagraph_capture_sizes
    assert engine.max_num_seqs is not None
    assert engine.max_num_batched_tokens is not None
    assert engine.max_queued_requests is not None
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == engine.max_num_seqs
    assert engine.sessions <= engine.max_num_seqs <= engine.max_num_batched_tokens
    assert engine.max_queued_requests > engine.max_num_seqs


@given(MODELS, st.integers(min_value=0, max_value=32768), st.integers(min_value=0, max_value=32768))
def test_a_session_never_shrinks_and_fp8_halves_it(model: ModelCard, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert calculate_session_bytes(model, short) <= calculate_session_bytes(model, long)
    assert calculate_session_bytes(model, long, KvCacheType.FP8) * 2 == pytest.approx(
        calculate_session_bytes(model, long), abs=2
    )
