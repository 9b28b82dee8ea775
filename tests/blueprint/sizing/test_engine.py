"""Sizing of engines: manually computed numbers of Voxtral on A100-80, reasons of settings, and refusals."""

from dataclasses import fields, replace

import pytest

from tests.blueprint.sizing.cases import (
    A10,
    A100,
    A4500,
    CHAT_SESSIONS,
    CLIP,
    FULL_CONTEXT_SESSIONS,
    H100,
    H200,
    QWEN,
    SHORT_SESSIONS,
    TTS,
    TURBO,
    VOXTRAL,
    WHISPER,
)
from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.engines.sizing.defaults import (
    list_capture_sizes,
    round_up_to_graph_size,
    select_default_scheduler_limits,
)
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.engines.sizing.profiles import build_profile_table, create_batching_variants
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing, LimitingFactor
from voice_blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization


@pytest.mark.parametrize(
    ("tensor_parallel", "quantization", "full", "short", "tolerance"),
    [
        (1, Quantization.NONE, 4.7, 103, 0.011),
        (2, Quantization.NONE, 18.5, 403, 0.005),
        (1, Quantization.FP8, 9.2, 200, 0.03),  # embeddings and output head stay bfloat16 here
    ],
)
def test_sessions_of_voxtral_on_a100(
    tensor_parallel: int, quantization: Quantization, full: float, short: int, tolerance: float
) -> None:
    sized = size_engine(VOXTRAL, A100, load=SHORT_SESSIONS, tensor_parallel=tensor_parallel, quantization=quantization)
    assert sized.sessions_at_full_context == pytest.approx(full, rel=tolerance)
    assert sized.sessions == pytest.approx(short, rel=tolerance)
    assert size_engine(
        VOXTRAL, A100, load=FULL_CONTEXT_SESSIONS, tensor_parallel=tensor_parallel, quantization=quantization
    ).sessions == int(sized.sessions_at_full_context)


def test_two_engines_support_half_the_sessions_of_one_on_both_gpus() -> None:
    one, both = (size_engine(VOXTRAL, A100, load=SHORT_SESSIONS, tensor_parallel=width).sessions for width in (1, 2))
    assert 2 * one == pytest.approx(206, rel=0.011)
    assert both == 403


def test_the_default_of_256_sequences_limits_the_baseline() -> None:
    baseline, tuned = (
        size_engine(VOXTRAL, A100, load=SHORT_SESSIONS, tensor_parallel=2, profile=profile)
        for profile in (Profile.BASELINE, Profile.TUNED)
    )
    assert (baseline.sessions, baseline.limit) == (256, LimitingFactor.MAX_NUM_SEQS)
    assert (tuned.sessions, tuned.limit) == (403, LimitingFactor.KV_MEMORY)
    assert baseline.kv_cache_tokens == tuned.kv_cache_tokens


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"), [(A100, 2048, 256), (A10, 2048, 256), (A4500, 2048, 256), (H100, 8192, 1024)]
)
def test_defaults_of_vllm(gpu: Gpu, tokens: int, seqs: int) -> None:
    defaults = select_default_scheduler_limits(gpu)
    assert (defaults.max_num_batched_tokens, defaults.max_num_seqs) == (tokens, seqs)


def test_defaults_of_the_largest_gpus() -> None:
    assert select_default_scheduler_limits(H200).max_num_seqs == 1024
    larger = H200.model_copy(update={"name": "B200", "memory_gib": 178.0})
    assert select_default_scheduler_limits(larger).max_num_batched_tokens == 16384


def test_baseline_sets_nothing() -> None:
    sized = size_engine(QWEN, A100, load=CHAT_SESSIONS, profile=Profile.BASELINE)
    assert sized.max_num_seqs is None
    assert sized.max_num_batched_tokens is None
    assert sized.max_queued_requests is None
    assert sized.cudagraph_capture_sizes == ()


def test_tuned_settings_have_reasons_and_do_not_change_the_block_size() -> None:
    sized = size_engine(VOXTRAL, A100, load=SHORT_SESSIONS, tensor_parallel=2)
    assert sized.block_size is None
    knobs = {"max_num_seqs", "max_num_batched_tokens", "cudagraph_capture_sizes", "max_queued_requests"}
    assert knobs <= set(sized.reasons) <= {field.name for field in fields(EngineSizing)}
    assert sized.max_num_seqs == 416  # the next graph size above 403
    assert sized.max_queued_requests == 416 + 104  # vLLM counts running requests too


@pytest.mark.parametrize(
    ("model", "gpu", "load", "tokens"),
    [
        (VOXTRAL, A100, SHORT_SESSIONS, 2048),
        (VOXTRAL, A100, Load(sessions=1, session_tokens=3500, context_tokens=32768), 4096),
        (VOXTRAL, A100, Load(sessions=1, session_tokens=20000, context_tokens=32768), 4096),
        # no audio: chunked prefill suffices
        (QWEN, A100, Load(sessions=1, session_tokens=3500, context_tokens=16384), 2048),
        (WHISPER, A100, CLIP, 2048),
        (VOXTRAL, H100, SHORT_SESSIONS, 8192),
        (VOXTRAL, H200, SHORT_SESSIONS, 8192),
        (QWEN, H200, CHAT_SESSIONS, 16384),
    ],
)
def test_step_tokens(model: ModelCard, gpu: Gpu, load: Load, tokens: int) -> None:
    assert size_engine(model, gpu, load=load).max_num_batched_tokens == tokens


def test_sequences_do_not_exceed_the_largest_graph() -> None:
    sized = size_engine(TURBO, H100, load=CLIP)
    assert (sized.max_num_seqs, sized.sessions, sized.limit) == (512, 512, LimitingFactor.MAX_NUM_SEQS)


@pytest.mark.parametrize(("seqs", "bucket"), [(1, 1), (2, 2), (3, 4), (5, 8), (102, 104), (256, 256), (257, 272)])
def test_buckets(seqs: int, bucket: int) -> None:
    assert round_up_to_graph_size(seqs) == bucket
    assert list_capture_sizes(bucket)[-1] == bucket


def test_capture_sizes_have_the_spacing_of_the_vllm_default() -> None:
    assert list_capture_sizes(512) == (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    assert list_capture_sizes(24) == (1, 2, 4, 8, 16, 24)


def test_fp8_weights_on_a100_only_save_memory() -> None:
    assert (
        size_engine(VOXTRAL, A100, load=SHORT_SESSIONS, quantization=Quantization.FP8)
        .reasons["quantization"]
        .startswith("memory only")
    )
    assert (
        "arithmetic"
        in size_engine(VOXTRAL, H100, load=SHORT_SESSIONS, quantization=Quantization.FP8).reasons["quantization"]
    )


def test_fp8_kv_doubles_the_tokens_where_the_gpu_has_fp8() -> None:
    plain, fp8 = (size_engine(VOXTRAL, H100, load=SHORT_SESSIONS, kv_cache_type=kind) for kind in KvCacheType)
    assert fp8.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, rel=1e-5)


@pytest.mark.parametrize("gpu", [A100, A10, A4500], ids=lambda gpu: gpu.name)
def test_fp8_kv_is_refused_on_gpus_older_than_ada(gpu: Gpu) -> None:
    with pytest.raises(DoesNotFitError, match=r"needs compute capability 8\.9.*FlashInfer"):
        size_engine(QWEN, gpu, load=CHAT_SESSIONS, kv_cache_type=KvCacheType.FP8)


@pytest.mark.parametrize(
    ("model", "gpu", "tensor_parallel", "load", "message"),
    [
        (
            VOXTRAL,
            A10,
            1,
            SHORT_SESSIONS,
            r"0\.92 x 22 GiB of A10 - 45\.3 GiB weights - 4 GiB activations\) = -29\.1 GiB",
        ),
        (VOXTRAL, A4500, 1, SHORT_SESSIONS, "does not fit"),
        (VOXTRAL, A4500, 2, SHORT_SESSIONS, r"45\.3 GiB weights / TP 2"),
        (
            QWEN,
            A10,
            1,
            CHAT_SESSIONS,
            r"16384 tokens requires 2,415,919,104 bytes, more than .*\(7,136 tokens of 147,456 bytes\)",
        ),
        (VOXTRAL, A100, 1, FULL_CONTEXT_SESSIONS.model_copy(update={"context_tokens": 40000}), "more than the 32768"),
        (QWEN, A100, 1, CHAT_SESSIONS.model_copy(update={"session_tokens": 20000}), "more than context_tokens 16384"),
        (VOXTRAL, A100, 3, SHORT_SESSIONS, "32 attention heads and 8 KV heads .* do not divide over TP 3"),
        (WHISPER, H100, 8, CLIP, "20 attention heads"),
        (TTS, H200, 1, CLIP, "served by vllm-omni"),
    ],
)
def test_configurations_that_do_not_fit_are_refused_with_the_calculation(
    model: ModelCard, gpu: Gpu, tensor_parallel: int, load: Load, message: str
) -> None:
    with pytest.raises(DoesNotFitError, match=message):
        size_engine(model, gpu, load=load, tensor_parallel=tensor_parallel)


def test_a_refusal_has_a_remedy() -> None:
    with pytest.raises(DoesNotFitError) as refusal:
        size_engine(VOXTRAL, A10, load=SHORT_SESSIONS)
    assert "more or larger GPUs" in refusal.value.remedy
    assert str(refusal.value) == f"{refusal.value.arithmetic}; {refusal.value.remedy}"


def test_the_ab_pair_differs_only_in_the_documented_settings() -> None:
    control, treatment = create_batching_variants(size_engine(QWEN, A100, load=CHAT_SESSIONS))
    differing = {
        field.name for field in fields(control) if getattr(control, field.name) != getattr(treatment, field.name)
    }
    assert differing == {"max_num_seqs", "max_num_batched_tokens", "block_size"}
    defaults = select_default_scheduler_limits(A100)
    assert (control.max_num_seqs, control.max_num_batched_tokens) == (
        defaults.max_num_seqs,
        defaults.max_num_batched_tokens,
    )
    again = replace(
        treatment,
        max_num_seqs=control.max_num_seqs,
        max_num_batched_tokens=control.max_num_batched_tokens,
        block_size=control.block_size,
    )
    assert again == control


def test_the_profile_table_has_every_gpu_class_and_both_profiles() -> None:
    rows = build_profile_table()
    assert {"A100-80", "H100", "H200", "A10", "A4500"} <= {row.gpu for row in rows}
    for row in rows:
        assert (row.baseline is None) == (row.tuned is None) == (row.refusal is not None), row
        if row.baseline and row.tuned:
            assert row.baseline.profile is Profile.BASELINE
            assert row.tuned.profile is Profile.TUNED
