"""Command line of a vLLM engine and its validation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from voice_blueprint import catalog
from voice_blueprint.engines.launch.audio import AudioLimits, calculate_audio_limits
from voice_blueprint.engines.launch.base import format_flags
from voice_blueprint.engines.launch.fabric import NixlFabric
from voice_blueprint.engines.launch.kv_transfer import EngineRole, KvTransfer
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization


def engine(model: str = "voxtral-small-24b", gpu: str = "A100-80", **changes: object) -> VllmServer:
    card = catalog.models()[model]
    context = min(card.max_context_tokens, 32768)
    load = Load(sessions=8, session_tokens=min(context, 1500), context_tokens=context)
    sizing = size_engine(card, catalog.gpus()[gpu], load=load)
    server = VllmServer(card, sizing, port=8000, cache_dir="/cache", shutdown_timeout_s=60)
    return replace(server, **changes)  # type: ignore[arg-type]


def value(server: VllmServer, flag: str) -> str | None:
    argv = server.build_command()
    return argv[argv.index(flag) + 1] if flag in argv else None


CELL_SIDE: dict[str, Any] = {"kv_transfer": KvTransfer(EngineRole.DECODE, 6556), "fabric": NixlFabric(5700)}


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda: engine("whisper-large-v3", **CELL_SIDE), "encoder-decoder.*serve it aggregated and without LMCache"),
        (lambda: engine("whisper-large-v3", kv_transfer=KvTransfer(EngineRole.AGGREGATED, 6555)), "encoder-decoder"),
        (lambda: engine(shutdown_timeout_s=0), "abort every request"),
        (lambda: engine(model="voxtral-small-24b", kv_transfer=CELL_SIDE["kv_transfer"]), "need a fabric"),
        (lambda: engine(fabric=CELL_SIDE["fabric"]), "others have none"),
        (lambda: replace(engine(), model=catalog.models()["qwen3-8b"]), "size what is launched"),
        (lambda: replace(engine(), model=catalog.models()["voxtral-4b-tts"]), "OmniServer"),
        (lambda: KvTransfer(EngineRole.AGGREGATED), "no KV connector"),
    ],
)
def test_harmful_vllm_settings_are_refused(make: Callable[[], object], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        make()


def test_mistral_format_is_set_by_three_flags() -> None:
    server = engine()
    formats = [value(server, flag) for flag in ("--tokenizer-mode", "--config-format", "--load-format")]
    assert formats == ["mistral"] * 3
    assert value(engine("qwen3-8b"), "--load-format") == "fastsafetensors"
    assert value(engine("qwen3-8b"), "--tokenizer-mode") is None


def test_published_fp8_weights_are_preferred_to_quantization_at_load_time() -> None:
    for model, repository, flag in (
        ("qwen3-8b", "Qwen/Qwen3-8B-FP8", None),
        ("voxtral-small-24b", "mistralai/Voxtral-Small-24B-2507", "fp8"),
    ):
        server = engine(model)
        server = replace(server, sizing=replace(server.sizing, quantization=Quantization.FP8))
        assert server.build_command()[2] == server.repository == repository
        assert value(server, "--quantization") == flag


def test_settings_that_sizing_leaves_unset_use_the_vllm_default() -> None:
    server = engine("qwen3-8b")
    knobs = {
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-num-queued-reqs",
        "--enable-chunked-prefill",
        "--enable-prefix-caching",
        "--compilation-config",
    }
    assert knobs <= set(server.build_command())
    sizing = replace(
        server.sizing,
        profile=Profile.BASELINE,
        max_num_seqs=None,
        max_num_batched_tokens=None,
        max_queued_requests=None,
        cudagraph_capture_sizes=(),
    )
    assert not knobs & set(replace(server, sizing=sizing).build_command())


def test_block_size_and_fp8_kv_cache_are_rendered_only_when_set() -> None:
    server = engine()
    assert value(server, "--block-size") is value(server, "--kv-cache-dtype") is None
    sizing = replace(server.sizing, block_size=32, kv_cache_type=KvCacheType.FP8)
    server = replace(server, sizing=sizing)
    assert (value(server, "--block-size"), value(server, "--kv-cache-dtype")) == ("32", "fp8")


def test_encoder_decoder_models_disable_chunked_prefill_and_prefix_caching_and_spawn_workers() -> None:
    server = engine("whisper-large-v3")
    assert {"--no-enable-chunked-prefill", "--no-enable-prefix-caching"} <= set(server.build_command())
    assert server.build_environment()["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in engine().build_environment()


def test_decode_engines_capture_only_decode_graphs() -> None:
    assert '"cudagraph_mode":"FULL_DECODE_ONLY"' in (value(engine(**CELL_SIDE), "--compilation-config") or "")
    prefill = engine(kv_transfer=KvTransfer(EngineRole.PREFILL, 6555), fabric=NixlFabric(5600))
    assert "cudagraph_mode" not in (value(prefill, "--compilation-config") or "")


def test_a_streaming_model_uses_piecewise_graphs() -> None:
    assert '"cudagraph_mode":"PIECEWISE"' in (value(engine("voxtral-mini-4b-realtime"), "--compilation-config") or "")


def test_contents_of_requests_are_not_logged_and_usage_is_not_reported() -> None:
    server = engine()
    assert "--no-enable-log-requests" in server.build_command()
    assert {"VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"} <= server.build_environment().keys()


def test_engines_that_share_kv_cache_use_the_same_hash_seed() -> None:
    assert engine(**CELL_SIDE).build_environment()["PYTHONHASHSEED"] == "0"
    assert "PYTHONHASHSEED" not in engine().build_environment()


def test_a_request_to_voxtral_accepts_forty_minutes_of_audio() -> None:
    limits = engine().request_audio_limits
    assert limits == AudioLimits(2400)
    # At 16 kHz and 16 bits the file has 76.8 MB; base64 adds a third.
    assert limits.max_file_mib * 2**20 >= 76_800_000
    assert limits.max_body_bytes >= 76_800_000 * 4 / 3
    assert limits.build_environment()["VLLM_MAX_AUDIO_DECODE_BYTES"] == str(2400 * 48_000 * 4)


def test_audio_is_limited_by_the_context_of_audio_language_models_only() -> None:
    cards = catalog.models()
    assert calculate_audio_limits(cards["voxtral-small-24b"], 7500) == AudioLimits(600)
    assert calculate_audio_limits(cards["whisper-large-v3"], 448) is None
    assert calculate_audio_limits(cards["qwen3-8b"], 16384) is None


def test_flags_are_formatted_by_the_type_of_their_value() -> None:
    spelled = format_flags({"--a": None, "--b": True, "--c": False, "--d": 0.90, "--e": {"x": [1]}, "--f": ("u", "v")})
    assert spelled == ("--b", "--no-c", "--d", "0.9", "--e", '{"x":[1]}', "--f", "u", "v")
