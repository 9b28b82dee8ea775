"""The cold-start budget: every optimization has an effect, every number has a source, and the page matches the code."""

import os

import pytest

from tests.blueprint.launch.samples import ROOT, azure_service, deployment
from tests.userdata import hosts
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS, PHASE_DIMENSION, START_PHASES_FILE, StartPhase
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.launch import Launcher, services
from voice_blueprint.engines.launch.coldstart import (
    BUDGETS,
    Lever,
    PhaseBudget,
    budget_table,
    start_budget,
    start_seconds,
)
from voice_blueprint.engines.launch.vllm import START_LOG_PREFIXES
from voice_blueprint.file.model.azure import ChatService, TtsService
from voice_userdata import render, unpack

PAGE = ROOT / "docs" / "cold-start.md"
TABLE_MARKER = "<!-- table -->\n"
ROWS = [(image, row) for image, rows in BUDGETS.items() for row in rows]
LEVERS = [(image, lever) for image, row in ROWS for lever in row.levers]


def launcher_for(image: Image) -> Launcher:
    azure = deployment("cells").azure
    chat, tts = azure_service(ChatService), azure_service(TtsService)
    assert isinstance(chat, ChatService)
    assert isinstance(tts, TtsService)
    if image is Image.ASR_NEURON:
        return services.neuron_launch(deployment("production-us-east-1").aws.asr[0])
    return services.tts_launch(azure, tts) if image is Image.TTS_OMNI else services.chat_launch(azure, chat, "a100")


def render_optimization(image: Image, lever: Lever) -> str:
    if lever.wired_in.startswith("userdata/"):
        return unpack(render(hosts.asr_neuron() if image is Image.ASR_NEURON else hosts.asr_gpu()))
    launcher = launcher_for(image)
    return " ".join([*launcher.command(), *(f"{name}={value}" for name, value in launcher.environment().items())])


@pytest.mark.parametrize(("image", "lever"), LEVERS, ids=lambda value: getattr(value, "shows_as", value))
def test_optimization_is_in_the_rendered_output_and_its_source_file(image: Image, lever: Lever) -> None:
    assert lever.shows_as in render_optimization(image, lever)
    source = (ROOT / lever.wired_in).read_text()
    assert lever.shows_as.split("=")[0].split()[-1] in source


@pytest.mark.parametrize(("image", "row"), ROWS, ids=str)
def test_every_number_has_a_source(image: Image, row: PhaseBudget) -> None:
    assert row.source
    assert (row.seconds is None) == (row.source == "not published"), image


@pytest.mark.parametrize("image", BUDGETS)
def test_phases_are_unique_and_in_order(image: Image) -> None:
    order = list(StartPhase)
    positions = [order.index(row.phase) for row in BUDGETS[image]]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize("image", BUDGETS)
def test_host_timeouts_cover_the_measured_phases(image: Image, artifacts: bool) -> None:
    budget = start_budget([image], artifacts=artifacts)
    assert budget.ready_s >= 2 * start_seconds(image, pull=False, artifacts=artifacts)
    # No heartbeat is sent during the pull of one image.
    assert 2 * (start_seconds(image, pull=True) - start_seconds(image, pull=False)) <= budget.silence_s


@pytest.mark.parametrize(
    ("images", "artifacts", "ready_s", "silence_s"),
    [
        ([Image.VAD_DATAPLANE, Image.TELEMETRY], False, 900, 900),
        # 2 x (306 s loading weights + 166 s compiling + 90 s CUDA graphs + 131 s warm-up), in whole minutes.
        ([Image.WHISPER_ENGINE, Image.ASR_VLLM], False, 1440, 900),
        # 2 x (63 + 20 + 90 + 131 s): weights and compiled programs are on the disk.
        ([Image.WHISPER_ENGINE, Image.ASR_VLLM], True, 660, 600),
        ([Image.ASR_NEURON], False, 900, 900),
        ([Image.ASR_NEURON], True, 480, 600),
    ],
)
def test_a_budget_is_computed_from_images_and_optimizations(
    images: list[Image], artifacts: bool, ready_s: int, silence_s: int
) -> None:
    budget = start_budget(images, artifacts=artifacts)
    assert (budget.ready_s, budget.silence_s) == (ready_s, silence_s)


def test_hosts_report_every_phase_that_the_budget_has() -> None:
    metric = METRICS["ColdStart"]
    assert metric.publisher is Image.TELEMETRY
    assert metric.tiers == (Tier.ASR,)
    assert PHASE_DIMENSION in metric.dimensions
    script = unpack(render(hosts.asr_gpu()))
    assert START_PHASES_FILE == "/run/voice/cold-start/phases"
    assert "PHASES=$RUN/cold-start/phases" in script
    reported = {
        phase for phase in StartPhase if phase in START_LOG_PREFIXES or f'"{phase}"' in script or f'"{phase} ' in script
    }
    assert reported == set(StartPhase)


def test_page_shows_the_current_budget() -> None:
    text = PAGE.read_text()
    fresh = text[: text.index(TABLE_MARKER) + len(TABLE_MARKER)] + "\n" + budget_table() + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(fresh)
        text = fresh
    assert text == fresh, "docs/cold-start.md is stale: run UPDATE_GOLDEN=1 pytest tests/blueprint/launch"
