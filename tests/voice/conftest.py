"""The local voice path as processes: store, gateway, VAD stage, two ASR hosts, a real model."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from voice_ops.demo.command import SAMPLE_FILE, find_weights
from voice_ops.demo.services import DATA_PLANE_BUILD, Service, VoicePath

HOSTS = {"asr-1": "127.0.0.1", "asr-2": "127.0.0.2"}
"""Address of each ASR host: they share the chunk port."""
NICE_INCREMENT = 5
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

DATA_PLANE = None if "VOICE_REFERENCE_VAD" in os.environ else DATA_PLANE_BUILD
"""Data plane built by `make test-native`; if the variable is set, the reference VAD stage, which needs no compiler."""


@contextmanager
def voice_path(folder: Path) -> Iterator[VoicePath]:
    built = DATA_PLANE is None or (DATA_PLANE / "vad-dataplane").exists()
    assert built, "`make test-native` builds the data plane; VOICE_REFERENCE_VAD=1 takes the reference VAD instead"
    with VoicePath(folder, find_weights(None), DATA_PLANE) as path:
        path.start_store().wait_until_ready()
        path.start_vad()
        engines = [path.start_engine(name, address, VOICE_DRAIN_TIMEOUT_S="120") for name, address in HOSTS.items()]
        path.wait_until_ready()
        for engine in engines:
            _be_nice(engine)
        yield path


@pytest.fixture
def path(tmp_path: Path) -> Iterator[VoicePath]:
    """Start the path without a gateway for tests that damage it; every test starts its gateways."""
    with voice_path(tmp_path) as path:
        yield path


@pytest.fixture(scope="module")
def _lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoicePath]:
    with voice_path(tmp_path_factory.mktemp("voice")) as path:
        yield path


@pytest.fixture
def whole_path(_lasting: VoicePath) -> Iterator[VoicePath]:
    """Share the path between the tests of a file that do not damage it; each test starts a gateway."""
    yield _lasting
    _lasting.services.pop("gateway").stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program, "needs Debian's chromium: `make test-voice` installs it"
    microphone = f"--use-file-for-fake-audio-capture={SAMPLE_FILE}%noloop"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", microphone],
        )


def _be_nice(engine: Service) -> None:
    """Lower the priority of a host's workers, which would run on separate machines."""
    assert engine.process
    pid = engine.process.pid
    nice = os.getpriority(os.PRIO_PROCESS, pid) + NICE_INCREMENT
    for worker in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        os.setpriority(os.PRIO_PROCESS, int(worker), nice)
