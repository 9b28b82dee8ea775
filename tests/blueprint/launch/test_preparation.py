"""The fleet's preparation job, run with fake programs."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.blueprint.launch.samples import deployment
from voice_blueprint.contract.network import VLLM
from voice_blueprint.engines.launch.download import build_download_command
from voice_blueprint.engines.launch.services import create_fleet_launcher, create_preparation_launcher
from voice_blueprint.file.model.aws import AsrFleet, Engine
from voice_blueprint.file.model.serving import VllmOptions

FAKE_VLLM = """#!/usr/bin/env python3
import os, signal, socket, sys, time
print("vllm", *sys.argv[1:], os.environ["HF_HUB_OFFLINE"], file=open(os.environ["SEEN"], "a"))
def stop(*_):
    print("stopped", file=open(os.environ["SEEN"], "a"))
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
listening = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
while True:
    time.sleep(0.1)
"""


def fleet() -> AsrFleet:
    (p5,) = (each for each in deployment("production-us-east-1").aws.asr if each.name == "p5")
    options = {
        "model": "voxtral-small-24b",
        "revision": "1" * 40,
        "load": {"sessions": 8, "session_tokens": 1500, "context_tokens": 32768},
    }
    changes = {"engine": Engine.VLLM, "vllm": VllmOptions.model_validate(options), "revision": None}
    return p5.model_copy(update=changes)


def run(folder: Path, **programs: str) -> tuple[int, list[str]]:
    """Run the job's command with these programs, and return its status and their records."""
    for name, text in {"sleep": "#!/bin/bash\nexec /bin/sleep 0.1\n", **programs}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch, seen = create_preparation_launcher(fleet()), folder / "seen"
    seen.touch()
    command = [word.replace(f"/{VLLM.number})", f"/{port})") for word in launch.build_command()]
    path = f"{folder}:{os.environ['PATH']}"
    environment = {**launch.build_environment(), "PATH": path, "SEEN": str(seen), "PORT": str(port)}
    done = subprocess.run(command, env=environment, timeout=60, check=False)  # noqa: S603  the command of the job
    return done.returncode, seen.read_text().splitlines()


FAKE_HF = '#!/bin/bash\necho hf "$@" "$HF_HUB_OFFLINE" >>"$SEEN"\n'


def test_the_job_downloads_and_starts_vllm_like_a_host_and_stops_it(tmp_path: Path) -> None:
    status, seen = run(tmp_path, hf=FAKE_HF, vllm=FAKE_VLLM)
    server = create_fleet_launcher(fleet())
    assert (status, seen) == (
        0,
        [
            " ".join([*build_download_command(server.model, server.repository, "1" * 40), "0"]),
            " ".join([*create_fleet_launcher(fleet()).build_command(), "1"]),
            "stopped",
        ],
    )
    # Cache keys contain a hash of the environment, so job and hosts must use the same.
    assert (
        create_preparation_launcher(fleet()).build_environment() == create_fleet_launcher(fleet()).build_environment()
    )


@pytest.mark.parametrize("broken", ["hf", "vllm"])
def test_a_failed_download_or_start_fails_the_job(broken: str, tmp_path: Path) -> None:
    status, seen = run(tmp_path, **{"hf": FAKE_HF, "vllm": FAKE_VLLM, broken: "#!/bin/bash\nexit 3\n"})
    assert status != 0
    assert "stopped" not in seen
