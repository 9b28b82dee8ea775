"""Sizing of the Whisper engine: admission limits and number of workers."""

import pytest
from pydantic import ValidationError

from tests.contract.sources import deployment
from voice_blueprint.capacity.bounds import calculate_asr_host_call_bounds, find_limiting_bound
from voice_blueprint.engines.launch import whisper
from voice_blueprint.engines.launch.whisper import WhisperEngine
from voice_blueprint.file.model.aws import AsrFleet


def whisper_engine(fleet: AsrFleet) -> WhisperEngine:
    return whisper.create_whisper_engine(fleet, find_limiting_bound(calculate_asr_host_call_bounds(fleet)).calls)


def fleet(name: str, **changes: object) -> AsrFleet:
    found = next(each for each in deployment("production-us-east-1").aws.asr if each.name == name)
    return AsrFleet.model_validate(found.model_dump() | changes)


@pytest.mark.parametrize(
    ("name", "instance_type", "encoders", "decoders"),
    [
        ("inf2", "inf2.48xlarge", 12, 12),
        ("inf2", "inf2.xlarge", 1, 1),
        ("trn1", "trn1.32xlarge", 16, 16),
        ("p5", "p5.4xlarge", 1, 1),
        ("p5", "p5.48xlarge", 8, 8),
        ("p5", "c8g.xlarge", 2, 2),
        ("p5", "c8g.medium", 1, 1),
    ],
)
def test_every_core_and_every_gpu_has_a_worker(name: str, instance_type: str, encoders: int, decoders: int) -> None:
    engine = whisper_engine(fleet(name, instance_type=instance_type))
    assert (engine.encoder_count, engine.decoder_count) == (encoders, decoders)


def test_measured_calls_are_admitted_up_to_the_memory_limit() -> None:
    measured = {"calls": 120, "date": "2026-11-22", "conditions": "large-v2 on inf2.48xlarge"}
    ceiling = whisper_engine(fleet("inf2")).sessions
    assert whisper_engine(fleet("inf2", measured=measured)).build_environment()["VOICE_SESSIONS"] == "120"
    assert whisper_engine(fleet("inf2", measured=measured | {"calls": 8000})).sessions == ceiling


def test_the_model_is_configured_or_chosen_by_accelerator() -> None:
    assert whisper_engine(fleet("p5")).model == "Systran/faster-whisper-large-v2"
    assert whisper_engine(fleet("trn1")).model == "openai/whisper-large-v2"
    assert whisper_engine(fleet("p5", instance_type="c8g.xlarge")).model == "Systran/faster-whisper-tiny.en"
    assert (
        whisper_engine(fleet("p5", model="some/whisper-tiny")).build_environment()["VOICE_MODEL"] == "some/whisper-tiny"
    )
    with pytest.raises(ValidationError, match="String should match pattern"):
        fleet("p5", model="../whisper")


def test_the_engine_admits_the_load_of_the_vllm_on_its_host() -> None:
    (p5,) = (each for each in deployment("both").aws.asr if each.vllm)
    assert p5.vllm
    assert whisper_engine(p5).sessions == p5.vllm.load.sessions
    with pytest.raises(ValidationError, match=r"vLLM's is `vllm\.model`"):
        AsrFleet.model_validate(p5.model_dump() | {"model": "some/whisper"})
