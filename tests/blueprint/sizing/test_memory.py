"""KV bytes, weights and memory budgets match manual calculations."""

import pytest

from tests.blueprint.sizing.cases import A100, A4500, QWEN, QWEN_7B, REALTIME, TURBO, VOXTRAL, WHISPER
from voice_blueprint import catalog
from voice_blueprint.engines.sizing.memory import (
    BYTES_PER_GIB,
    calculate_cross_attention_bytes,
    calculate_kv_bytes_per_token,
    calculate_kv_memory,
    calculate_session_bytes,
    calculate_weights_gib,
    count_kv_head_copies,
)
from voice_blueprint.file.model.serving import KvCacheType, Quantization


@pytest.mark.parametrize(
    ("model", "per_token"),
    [
        ("qwen2.5-7b-instruct", 57_344),
        ("qwen3-8b", 147_456),
        ("voxtral-small-24b", 163_840),
        ("voxtral-4b-tts", 106_496),
        ("whisper-large-v3", 163_840),
        ("whisper-large-v3-turbo", 20_480),
    ],
)
def test_bytes_per_token(model: str, per_token: int) -> None:
    assert calculate_kv_bytes_per_token(catalog.models()[model]) == per_token
    assert calculate_kv_bytes_per_token(catalog.models()[model], KvCacheType.FP8) * 2 == per_token


def test_bytes_per_token_match_a_vllm_log() -> None:
    # vLLM's page on quantized KV caches: Qwen3-4B, of the same KV shape as Qwen3-8B, has 83,488 tokens in 11.47 GiB.
    logged = 11.47 * BYTES_PER_GIB / 83_488
    assert calculate_kv_bytes_per_token(QWEN) == pytest.approx(logged, rel=0.001)


def test_cross_attention_is_stored_for_every_sequence() -> None:
    assert calculate_cross_attention_bytes(WHISPER) / 1e6 == pytest.approx(246, abs=0.5)
    assert calculate_cross_attention_bytes(TURBO) / 1e6 == pytest.approx(31, abs=0.5)
    assert calculate_cross_attention_bytes(VOXTRAL) == 0
    assert calculate_session_bytes(WHISPER, 448) == (1500 + 448) * 163_840


def test_a_minute_of_voxtral_audio_with_its_prompt_is_139_mb() -> None:
    assert VOXTRAL.audio_tokens_per_s is not None
    assert VOXTRAL.audio_tokens_per_s * 60 == 750
    assert calculate_session_bytes(VOXTRAL, 850) / 1e6 == pytest.approx(139, abs=0.5)


def test_a_sliding_window_model_stores_its_window_and_encoder() -> None:
    short, long, longer = (calculate_session_bytes(REALTIME, tokens) for tokens in (1_000, 8_192, 100_000))
    assert short < long == longer
    assert calculate_session_bytes(REALTIME, 0) == REALTIME.encoder_state_bytes == 2 * 32 * 32 * 64 * 2 * 750


def test_fp8_halves_the_linear_weights_only() -> None:
    assert calculate_weights_gib(VOXTRAL) == 45.3
    assert calculate_weights_gib(VOXTRAL, Quantization.FP8) == pytest.approx(2.5 + 42.8 / 2)


def test_fp8_weights_match_the_published_file() -> None:
    # RedHatAI/whisper-large-v3-FP8-dynamic is 1.69 GB; its convolutions and positions stay bfloat16 too.
    assert calculate_weights_gib(WHISPER, Quantization.FP8) * BYTES_PER_GIB / 1e9 == pytest.approx(1.69, rel=0.06)


@pytest.mark.parametrize(
    ("tensor_parallel", "quantization", "tokens", "tolerance"),
    [
        (1, Quantization.NONE, 154_000, 0.005),
        (2, Quantization.NONE, 605_000, 0.005),
        # 300,000 halves all 45.3 GiB; embeddings and output head (2.5 GiB) stay bfloat16 here.
        (1, Quantization.FP8, 300_000, 0.03),
    ],
)
def test_kv_tokens_of_voxtral_on_a100(
    tensor_parallel: int, quantization: Quantization, tokens: int, tolerance: float
) -> None:
    memory = calculate_kv_memory(VOXTRAL, A100, tensor_parallel=tensor_parallel, quantization=quantization)
    assert memory.total_bytes // calculate_kv_bytes_per_token(VOXTRAL) == pytest.approx(tokens, rel=tolerance)


def test_no_kv_cache_remains_if_the_weights_do_not_fit() -> None:
    memory = calculate_kv_memory(VOXTRAL, A4500)
    assert memory.per_gpu_gib < 0
    assert memory.total_bytes == 0


def test_kv_heads_are_replicated_across_more_gpus() -> None:
    assert [count_kv_head_copies(QWEN_7B, width) for width in (1, 2, 4, 8)] == [1, 1, 1, 2]


def test_the_calculation_is_shown() -> None:
    shown = calculate_kv_memory(VOXTRAL, A100, tensor_parallel=2).format_arithmetic()
    assert shown == (
        "2 x (0.92 x 79.1 GiB of A100-80 - 45.3 GiB weights / TP 2 - 4 GiB activations) = 92.2 GiB for the KV cache"
    )
