"""Complete command lines, environments and files match golden files; ``UPDATE_GOLDEN=1`` updates these."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.blueprint.launch.samples import (
    VOXTRAL_LOAD,
    WHISPER_LOAD,
    Named,
    azure_service,
    deployment,
    p5,
    service_processes,
)
from voice_blueprint.engines.launch import Launcher, services
from voice_blueprint.file.model.azure import AggregatedService, ChatService, PeerPool, PrefillDecodeCell, TtsService
from voice_blueprint.file.model.serving import Profile, Quantization

GOLDEN = Path(__file__).parent / "golden"


def format_launcher(launcher: Launcher) -> str:
    """Return one flag per line, with its values."""
    lines: list[str] = []
    for argument in map(shlex.quote, launcher.build_command()):
        starts = argument.startswith("--") and argument != "--"
        if starts or not lines:
            lines.append(argument)
        else:
            lines[-1] += f" {argument}"
    lines += ["# environment", *(f"{name}={value}" for name, value in launcher.build_environment().items())]
    for path, text in launcher.render_files().items():
        lines += [f"# {path}", text.rstrip("\n")]
    return "\n".join(lines) + "\n"


def production(kind: type, **changes: object) -> Named:
    of = deployment("cells")
    return service_processes(of, azure_service(kind).model_copy(update=changes))


def auxiliary_services() -> Named:
    yield "router", services.create_router_launcher(deployment("cells").azure)
    yield "dcgm", services.create_dcgm_launcher()
    yield "lmcache-coordinator", services.create_coordinator_launcher()


def fleets() -> Named:
    yield (
        "whisper-large-v3, FP8",
        services.create_fleet_launcher(p5("whisper-large-v3", WHISPER_LOAD, Quantization.FP8)),
    )
    yield "voxtral-small-24b", services.create_fleet_launcher(p5("voxtral-small-24b", VOXTRAL_LOAD))


def neuron() -> Named:
    for fleet in deployment("production-us-east-1").aws.asr:
        if fleet.name != "p5":
            yield fleet.instance_type, services.create_neuron_launcher(fleet)


CASES: dict[str, Callable[[], Named]] = {
    "prefill-decode-cell": lambda: production(PrefillDecodeCell),
    "aggregated": lambda: production(AggregatedService),
    "aggregated-lmcache": lambda: production(AggregatedService, lmcache=PeerPool(l1_gib=100, l2_nvme_gib=500)),
    "aggregated-peers": lambda: production(AggregatedService, lmcache=PeerPool(l1_gib=100, peers=True)),
    "aggregated-baseline": lambda: production(AggregatedService, profile=Profile.BASELINE),
    "tts": lambda: production(TtsService),
    "tts-eager": lambda: production(TtsService, cuda_graphs=False),
    "qwen": lambda: production(ChatService),
    "around-the-engines": auxiliary_services,
    "p5": fleets,
    "neuron": neuron,
}


@pytest.mark.parametrize("name", CASES)
def test_launchers_of_a_service_match_the_golden_file(name: str) -> None:
    text = "\n".join(f"== {part}\n{format_launcher(launcher)}" for part, launcher in CASES[name]())
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert golden.exists(), f"{golden} is missing: run with UPDATE_GOLDEN=1 and read what it wrote"
    assert text == golden.read_text()


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
