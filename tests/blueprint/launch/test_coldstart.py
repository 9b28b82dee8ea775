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
    PHASE_BUDGETS_BY_IMAGE,
    Optimization,
    PhaseBudget,
    calculate_start_duration_s,
    calculate_start_timeouts,
    format_budget_table,
)
from voice_blueprint.engines.launch.vllm import LOG_PREFIX_BY_START_PHASE
from voice_blueprint.file.model.azure import ChatService, TtsService
from voice_userdata import render_user_data, unpack_script

PAGE = ROOT / "docs" / "cold-start.md"
TABLE_MARKER = "<!-- table -->\n"
ROWS = [(image, row) for image, rows in PHASE_BUDGETS_BY_IMAGE.items() for row in rows]
LEVERS = [(image, lever) for image, row in ROWS for lever in row.levers]


def launcher_for(image: Image) -> Launcher:
    azure = deployment("cells").azure
    chat, tts = azure_service(ChatService), azure_service(TtsService)
    assert isinstance(chat, ChatService)
    assert isinstance(tts, TtsService)
    if image is Image.ASR_NEURON:
        return services.create_neuron_launcher(deployment("production-us-east-1").aws.asr[0])
    return (
        services.create_tts_launcher(azure, tts)
        if image is Image.TTS_OMNI
        else services.create_chat_launcher(azure, chat, "a100")
    )


def render_optimization(image: Image, lever: Optimization) -> str:
    if lever.wired_in.startswith("userdata/"):
        return unpack_script(render_user_data(hosts.asr_neuron() if image is Image.ASR_NEURON else hosts.asr_gpu()))
    launcher = launcher_for(image)
    return " ".join(
        [*launcher.build_command(), *(f"{name}={value}" for name, value in launcher.build_environment().items())]
    )


@pytest.mark.parametrize(("image", "lever"), LEVERS, ids=lambda value: getattr(value, "shows_as", value))
def test_optimization_is_in_the_rendered_output_and_its_source_file(image: Image, lever: Optimization) -> None:
    assert lever.shows_as in render_optimization(image, lever)
    source = (ROOT / lever.wired_in).read_text()
    assert lever.shows_as.split("=")[0].split()[-1] in source


@pytest.mark.parametrize(("image", "row"), ROWS, ids=str)
def test_every_number_has_a_source(image: Image, row: PhaseBudget) -> None:
    assert row.source
    assert (row.seconds is None) == (row.source == "not published"), image


@pytest.mark.parametrize("image", PHASE_BUDGETS_BY_IMAGE)
def test_phases_are_unique_and_in_order(image: Image) -> None:
    order = list(StartPhase)
    positions = [order.index(row.phase) for row in PHASE_BUDGETS_BY_IMAGE[image]]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize("image", PHASE_BUDGETS_BY_IMAGE)
def test_host_timeouts_cover_the_measured_phases(image: Image, artifacts: bool) -> None:
    budget = calculate_start_timeouts([image], artifacts=artifacts)
    assert budget.ready_timeout_s >= 2 * calculate_start_duration_s(image, pull=False, artifacts=artifacts)
    # No heartbeat is sent during the pull of one image.
    assert (
        2 * (calculate_start_duration_s(image, pull=True) - calculate_start_duration_s(image, pull=False))
        <= budget.heartbeat_timeout_s
    )


@pytest.mark.parametrize(
    ("images", "artifacts", "ready_timeout_s", "heartbeat_timeout_s"),
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
    images: list[Image], artifacts: bool, ready_timeout_s: int, heartbeat_timeout_s: int
) -> None:
    budget = calculate_start_timeouts(images, artifacts=artifacts)
    assert (budget.ready_timeout_s, budget.heartbeat_timeout_s) == (ready_timeout_s, heartbeat_timeout_s)


def test_hosts_report_every_phase_that_the_budget_has() -> None:
    metric = METRICS["ColdStart"]
    assert metric.publisher is Image.TELEMETRY
    assert metric.tiers == (Tier.ASR,)
    assert PHASE_DIMENSION in metric.dimensions
    script = unpack_script(render_user_data(hosts.asr_gpu()))
    assert START_PHASES_FILE == "/run/voice/cold-start/phases"
    assert "PHASES=$RUN/cold-start/phases" in script
    reported = {
        phase
        for phase in StartPhase
        if phase in LOG_PREFIX_BY_START_PHASE or f'"{phase}"' in script or f'"{phase} ' in script
    }
    assert reported == set(StartPhase)


def test_page_shows_the_current_budget() -> None:
    text = PAGE.read_text()
    fresh = text[: text.index(TABLE_MARKER) + len(TABLE_MARKER)] + "\n" + format_budget_table() + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(fresh)
        text = fresh
    assert text == fresh, "docs/cold-start.md is stale: run UPDATE_GOLDEN=1 pytest tests/blueprint/launch"
