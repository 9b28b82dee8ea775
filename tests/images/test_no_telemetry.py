"""onnxruntime, which comes with what we use, tells its maker about itself unless its environment forbids it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synthesized import ROOT

SWITCH = "ORT_DISABLE_TELEMETRY"
WATCHED_S = 20
"""It asks for its address within three seconds on an idle machine; with the switch nothing ever comes."""
CAN_IMPORT_IT = ("agent", "asr-neuron", "asr-vllm", "tts-omni", "whisper-engine")
"""Images with Python packages for speech: their bases and next versions may bring it along."""

NAME_SERVER = f"""
import pathlib, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
import faster_whisper, onnxruntime
(model, *_) = pathlib.Path(faster_whisper.__file__).parent.glob("assets/*.onnx")
session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
server.settimeout({WATCHED_S})
try:
    query = server.recv(512)[12:]
except TimeoutError:
    sys.exit()
while query[0]:
    print(query[1 : 1 + query[0]].decode(), end=".")
    query = query[1 + query[0] :]
"""


def asked_for(home: Path, **environment: str) -> str:
    """Use it in a network of its own, and return the name that it asks for; nothing when it asks for none."""
    resolver = home / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n", encoding="ascii")
    script = (
        f"ip link set lo up && mount --bind {resolver} /etc/resolv.conf && exec {sys.executable} -c '{NAME_SERVER}'"
    )
    done = subprocess.run(  # noqa: S603
        ["/usr/bin/unshare", "--net", "--mount", "/bin/bash", "-c", script],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def traces(home: Path) -> list[str]:
    return [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file() and file.name != "resolv.conf"]


def test_it_would_tell(tmp_path: Path) -> None:
    """Without this the test below would hold for any reason."""
    assert asked_for(tmp_path).endswith("microsoft.com.")
    assert any("deviceid" in trace for trace in traces(tmp_path))


def test_it_tells_nothing_in_our_environment(tmp_path: Path) -> None:
    assert os.environ[SWITCH] == "1", "tests run with it too"
    assert asked_for(tmp_path, **{SWITCH: os.environ[SWITCH]}) == ""
    assert traces(tmp_path) == []


@pytest.mark.parametrize("image", CAN_IMPORT_IT)
def test_images_forbid_it(image: str) -> None:
    assert f"{SWITCH}=1" in (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
