"""The cold-start budget: every lever is really wired, every number has a source, the page is what the code says."""

import os

import pytest

from blueprint.contract.images import Image
from blueprint.contract.metrics import METRICS, PHASE_DIMENSION, START_PHASES_FILE, StartPhase
from blueprint.contract.network import Tier
from blueprint.engines.launch import Launcher, services
from blueprint.engines.launch.coldstart import BUDGETS, Lever, PhaseBudget, known_seconds, start_budget, table
from blueprint.engines.launch.vllm import START_LOG
from blueprint.file.model.azure import ChatService, TtsService
from tests.blueprint.launch.samples import ROOT, azure_service, deployment
from tests.userdata import hosts
from userdata import render

PAGE = ROOT / "docs" / "cold-start.md"
MARK = "<!-- table -->\n"
ROWS = [(image, row) for image, rows in BUDGETS.items() for row in rows]
LEVERS = [(image, lever) for image, row in ROWS for lever in row.levers]


def launcher_of(image: Image) -> Launcher:
    azure = deployment("cells").azure
    chat, tts = azure_service(ChatService), azure_service(TtsService)
    assert isinstance(chat, ChatService)
    assert isinstance(tts, TtsService)
    if image is Image.ASR_NEURON:
        return services.neuron_launch(deployment("production-us-east-1").aws.asr[0])
    return services.tts_launch(azure, tts) if image is Image.TTS_OMNI else services.chat_launch(azure, chat, "a100")


def rendered(image: Image, lever: Lever) -> str:
    if lever.wired_in.startswith("userdata/"):
        return render(hosts.asr_neuron() if image is Image.ASR_NEURON else hosts.asr_gpu())
    launcher = launcher_of(image)
    return " ".join([*launcher.command(), *(f"{name}={value}" for name, value in launcher.environment().items())])


@pytest.mark.parametrize(("image", "lever"), LEVERS, ids=lambda value: getattr(value, "shows_as", value))
def test_lever_is_wired(image: Image, lever: Lever) -> None:
    assert lever.shows_as in rendered(image, lever)
    source = (ROOT / lever.wired_in).read_text()
    assert lever.shows_as.split("=")[0].split()[-1] in source


@pytest.mark.parametrize(("image", "row"), ROWS, ids=str)
def test_every_number_says_whose_it_is(image: Image, row: PhaseBudget) -> None:
    assert row.source
    assert (row.seconds is None) == (row.source == "not published"), image


@pytest.mark.parametrize("image", BUDGETS)
def test_phases_stand_once_and_in_order(image: Image) -> None:
    order = list(StartPhase)
    positions = [order.index(row.phase) for row in BUDGETS[image]]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize("image", BUDGETS)
def test_hosts_wait_long_enough_for_the_known_phases(image: Image, artifacts: bool) -> None:
    budget = start_budget([image], artifacts=artifacts)
    assert budget.ready_s >= 2 * known_seconds(image, pull=False, artifacts=artifacts)
    # No heartbeat is sent during the pull of one image.
    assert 2 * (known_seconds(image, pull=True) - known_seconds(image, pull=False)) <= budget.silence_s


@pytest.mark.parametrize(
    ("images", "artifacts", "ready_s", "silence_s"),
    [
        ([Image.VAD_DATAPLANE, Image.TELEMETRY], False, 900, 900),
        # Twice 306 s of weights, 166 s to compile, 90 s of graphs and 131 s of warm-up, in whole minutes.
        ([Image.WHISPER_ENGINE, Image.ASR_VLLM], False, 1440, 900),
        # Twice 63, 20, 90 and 131 s: weights are on the disk, and compiled programs beside them.
        ([Image.WHISPER_ENGINE, Image.ASR_VLLM], True, 660, 600),
        ([Image.ASR_NEURON], False, 900, 900),
        ([Image.ASR_NEURON], True, 480, 600),
    ],
)
def test_a_budget_follows_from_images_and_levers(
    images: list[Image], artifacts: bool, ready_s: int, silence_s: int
) -> None:
    budget = start_budget(images, artifacts=artifacts)
    assert (budget.ready_s, budget.silence_s) == (ready_s, silence_s)


def test_hosts_report_every_phase_that_the_budget_has() -> None:
    metric = METRICS["ColdStart"]
    assert metric.publisher is Image.TELEMETRY
    assert metric.tiers == (Tier.ASR,)
    assert PHASE_DIMENSION in metric.dimensions
    script = render(hosts.asr_gpu())
    assert START_PHASES_FILE == "/run/voice/cold-start/phases"
    assert "PHASES=$RUN/cold-start/phases" in script
    reported = {phase for phase in StartPhase if phase in START_LOG or f'"{phase}"' in script or f'"{phase} ' in script}
    assert reported == set(StartPhase)


def test_page_shows_the_budget_as_it_is() -> None:
    text = PAGE.read_text()
    fresh = text[: text.index(MARK) + len(MARK)] + "\n" + table() + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(fresh)
        text = fresh
    assert text == fresh, "docs/cold-start.md is stale: run UPDATE_GOLDEN=1 pytest tests/blueprint/launch"
