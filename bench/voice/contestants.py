"""Starts the compared voice paths, each with its own store, gateway, VAD stage and engine."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bench import product
from bench.product import PRODUCT_BUILD_FOLDER, PROJECT, ROOT
from bench.voice.processes import measure_process_cpu_s
from voice_blueprint.contract.metrics import ENGINE_METRICS_PATH
from voice_ops.demo.services import LOOPBACK, Gateway, VoicePath
from voice_whisper.settings import Layout

DATA_PLANE_PROGRAM = PRODUCT_BUILD_FOLDER / "src/vad-dataplane"
DEFAULT_VAD_MODULE = PRODUCT_BUILD_FOLDER / "src/vad/vad.so"
ALL_SPEECH_MODULE = PRODUCT_BUILD_FOLDER / "tests/vad/all_speech.so"
"""VAD module that classifies all audio as speech, so that no silence is dropped."""
MAX_IDLE_WAIT_S = 60


@dataclass(frozen=True)
class Contestant:
    """A configuration of the voice path.

    Attributes:
        root: Checkout of the programs, except for the data plane, which is always that of this checkout.
    """

    name: str
    layout: Layout
    vad: Path
    root: Path = ROOT


CONTESTANTS = (
    Contestant("disaggregated", Layout.DISAGGREGATED, DEFAULT_VAD_MODULE),
    Contestant("colocated", Layout.COLOCATED, DEFAULT_VAD_MODULE),
    Contestant("silence kept", Layout.DISAGGREGATED, ALL_SPEECH_MODULE),
)


def build_programs() -> None:
    """Compile the data plane and both VAD modules. Install missing Debian packages.

    Raises:
        subprocess.CalledProcessError: The compiler or the installation fails.
    """
    product.build_product_targets(
        *(
            str(file.relative_to(PRODUCT_BUILD_FOLDER))
            for file in (DATA_PLANE_PROGRAM, DEFAULT_VAD_MODULE, ALL_SPEECH_MODULE)
        )
    )
    subprocess.run([PROJECT / "tests/install.sh", ROOT / "tests/packages.txt"], check=True)  # noqa: S603


class RunningContestant:
    """A running contestant.

    Attributes:
        gateway: Gateway for calls.
    """

    def __init__(self, contestant: Contestant, folder: Path, model: Path) -> None:
        self.contestant = contestant
        self._path = VoicePath(
            folder, model, data_plane=_create_build_folder(folder, contestant.vad), root=contestant.root
        )
        self.gateway: Gateway

    def start(self) -> None:
        """Start all programs, and wait until they are ready.

        Raises:
            voice_ops.demo.services.ServiceError: A program does not start.
        """
        self._path.start_store().wait_until_ready()
        self.gateway = self._path.start_gateway()
        self._path.start_vad()
        self._path.start_engine(VOICE_LAYOUT=self.contestant.layout)
        self._path.wait_until_ready()
        self._path.wait_for_capacity(self.gateway)

    def stop(self) -> None:
        self._path.stop()

    def measure_cpu_s(self) -> dict[str, float]:
        """Return the CPU time of each program including its children, in seconds."""
        processes = {name: service.process for name, service in self._path.services.items()}
        return {name: measure_process_cpu_s(process.pid) for name, process in processes.items() if process}

    def read_counter(self, name: str) -> int:
        """Return the value of an engine counter."""
        return int(self._read_metrics()["counters"].get(name, 0))

    def _read_metrics(self) -> dict[str, Any]:
        port = self._path.services["asr"].environment["VOICE_HEALTH_PORT"]
        return dict(httpx2.get(f"http://{LOOPBACK}:{port}{ENGINE_METRICS_PATH}").json())

    def wait_until_idle(self) -> None:
        """Wait until the engine is idle, so that an excessive load does not affect the next measurement."""
        limit = time.monotonic() + MAX_IDLE_WAIT_S
        while time.monotonic() < limit:
            engine_metrics = self._read_metrics()
            if engine_metrics["EncoderQueueDepth"] == engine_metrics["DecoderQueueDepth"] == 0:
                return
            time.sleep(0.2)


def _create_build_folder(folder: Path, module: Path) -> Path:
    """Return a copy of the data plane's build folder with the given VAD module."""
    stage = folder / "stage"
    (stage / "vad").mkdir(parents=True)
    (stage / "vad-dataplane").symlink_to(DATA_PLANE_PROGRAM)
    (stage / "vad/vad.so").symlink_to(module)
    return stage
