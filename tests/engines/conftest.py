"""Engines with the command lines of the shipped files and tiny models: `make test-engines`."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.cell import cell_pod
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.services import create_aggregated_processes, create_chat_launcher
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.file.loading import load
from voice_blueprint.file.model.azure import AggregatedService, Azure, ChatService
from voice_sandbox.engines.pod import Pod
from voice_sandbox.engines.processes import LOOPBACK, MODELS_FOLDER, ROOT, VENV_FOLDER, EngineProcess, run_processes
from voice_sandbox.engines.substitutions import CommandRenderer
from voice_sandbox.loopback import find_free_port

# These tests require the environment of the engines.
collect_ignore_glob = [] if (VENV_FOLDER / ".ready").exists() else ["test_*.py"]

PRODUCTION = ROOT / "deployments/production-azure.yaml"
LOGS = ROOT / "build/engines"
"""Output of the engines, in a folder per module."""


@pytest.fixture(scope="session")
def models() -> Path:
    """Return the folder of tiny models."""
    program = ROOT / "voice_sandbox/engines/tiny_models.py"
    subprocess.run([VENV_FOLDER / "bin/python", program, MODELS_FOLDER], check=True, timeout=300)  # noqa: S603
    return MODELS_FOLDER


@pytest.fixture(scope="session")
def azure() -> Azure:
    section = load(PRODUCTION).azure_section
    assert section
    return section


class Bench:
    """Creates processes of launchers on free ports, with logs in one folder."""

    def __init__(self, folder: Path, models: Path) -> None:
        self.folder = folder
        self.models = models

    def engine(self, launcher: VllmServer, name: str, ports: dict[int, int] | None = None) -> EngineProcess:
        """Return an engine without starting it."""
        ports = {launcher.port: find_free_port()} | (ports or {})
        process = CommandRenderer(self.folder / name, self.models, ports).render_process(launcher)
        for each in process.applied_substitutions:
            print(f"{name}: {each.name}: {each.reason}")
        return EngineProcess(name, process, self.folder, f"http://{LOOPBACK}:{ports[launcher.port]}")

    def launch_process(self, launcher: Launcher, name: str, port: int) -> EngineProcess:
        """Create the engine process of a launcher that renders ``port``, without starting it."""
        own = find_free_port()
        process = CommandRenderer(self.folder / name, self.models, {port: own}).render_process(launcher)
        for each in process.applied_substitutions:
            print(f"{name}: {each.name}: {each.reason}")
        return EngineProcess(name, process, self.folder, f"http://{LOOPBACK}:{own}")

    def process(self, launcher: Launcher, name: str, ports: dict[int, int], port: int, health: str) -> EngineProcess:
        """Create another process with a ``health`` endpoint on the rendered ``port``, without starting it."""
        process = CommandRenderer(self.folder / name, self.models, ports).render_process(launcher)
        return EngineProcess(name, process, self.folder, f"http://{LOOPBACK}:{ports.get(port, port)}", health)


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest, models: Path) -> Bench:
    """Return a bench whose logs are kept after the tests."""
    folder = LOGS / request.module.__name__.rpartition(".")[2]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return Bench(folder, models)


class Tokens:
    """Counts an engine's prompt tokens, and how many of them were in its prefix cache."""

    def __init__(self, engine: EngineProcess) -> None:
        self._engine = engine
        self._before = self._read()

    def take(self) -> tuple[int, int]:
        """Return prompt tokens and prefix cache hits since the last call."""
        before, self._before = self._before, self._read()
        queried, hit = (round(after - earlier) for after, earlier in zip(self._before, before, strict=True))
        return queried, hit

    def _read(self) -> tuple[float, float]:
        figures = self._engine.fetch_metrics()
        return figures["vllm:prefix_cache_queries_total"], figures["vllm:prefix_cache_hits_total"]


def chat_service(azure: Azure) -> ChatService:
    return next(each for each in azure.services if isinstance(each, ChatService))


def audio_service(azure: Azure) -> AggregatedService:
    return next(each for each in azure.services if isinstance(each, AggregatedService) and each.lmcache)


@pytest.fixture(scope="module")
def chat(azure: Azure, bench: Bench) -> Iterator[EngineProcess]:
    """Start one replica of the text model."""
    service = chat_service(azure)
    with run_processes(bench.engine(create_chat_launcher(azure, service, service.pools[0]), "chat")) as (engine,):
        yield engine


@pytest.fixture(scope="session")
def voxtral_launch(azure: Azure) -> VllmServer:
    return create_aggregated_processes(azure, audio_service(azure)).engine


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Pod]:
    """Start the pod of a prefill/decode cell, once for all files that use it; ``test_cell_stops.py`` ends it."""
    pod = cell_pod(tmp_path_factory.mktemp("cell"), models)
    try:
        pod.start()
        pod.wait_until_ready()
        yield pod
    finally:
        pod.kill()
