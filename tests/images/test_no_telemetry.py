"""onnxruntime, a transitive dependency, sends telemetry to its vendor unless its environment disables it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation import unshare
from tests.synthesized import ROOT

DISABLING_VARIABLE = "ORT_DISABLE_TELEMETRY"
OBSERVATION_S = 20
"""Observation time: on an idle machine it resolves its telemetry host within three seconds, unless disabled."""
IMAGES_WITH_ONNXRUNTIME = ("agent", "asr-neuron", "asr-vllm", "tts-omni", "whisper-engine")
"""Images with Python packages for speech, whose bases may contain onnxruntime."""

NAME_SERVER = f"""
import pathlib, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
import faster_whisper, onnxruntime
(model, *_) = pathlib.Path(faster_whisper.__file__).parent.glob("assets/*.onnx")
session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
server.settimeout({OBSERVATION_S})
try:
    query = server.recv(512)[12:]
except TimeoutError:
    sys.exit()
while query[0]:
    print(query[1 : 1 + query[0]].decode(), end=".")
    query = query[1 + query[0] :]
"""


def requested_hosts(home: Path, **environment: str) -> str:
    """Import onnxruntime in a separate network, and return the host that it resolves; empty if there is none."""
    resolver = home / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n", encoding="ascii")
    bind = shlex.join(["mount", "--bind", str(resolver), "/etc/resolv.conf"])
    script = f"ip link set lo up && {bind} && exec {shlex.join([sys.executable, '-c', NAME_SERVER])}"
    done = subprocess.run(  # noqa: S603
        [*unshare("--net", "--mount"), "/bin/bash", "-c", script],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def traces(home: Path) -> list[str]:
    return [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file() and file.name != "resolv.conf"]


def test_the_engine_sends_telemetry_by_default(tmp_path: Path) -> None:
    """Control of the test below."""
    assert requested_hosts(tmp_path).endswith("microsoft.com.")
    assert any("deviceid" in trace for trace in traces(tmp_path))


def test_the_rendered_environment_disables_telemetry(tmp_path: Path) -> None:
    assert os.environ[DISABLING_VARIABLE] == "1", "tests run with it too"
    assert requested_hosts(tmp_path, **{DISABLING_VARIABLE: os.environ[DISABLING_VARIABLE]}) == ""
    assert traces(tmp_path) == []


@pytest.mark.parametrize("image", IMAGES_WITH_ONNXRUNTIME)
def test_images_disable_telemetry(image: str) -> None:
    assert f"{DISABLING_VARIABLE}=1" in (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
