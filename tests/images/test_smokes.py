"""Smoke tests of the Python images, run on the sources: they detect a variable that is removed from the contract.

`voice images rehearse` tests the images (their FFmpeg, user and files).
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation import unshare
from voice_blueprint.contract.images import Image

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
TESTED_ELSEWHERE = {Image.VAD_DATAPLANE, Image.ROUTER, Image.PD_ROUTER}
"""Their smoke tests need packets or engines; their own tests start the programs with those."""
LOOPBACK_ONLY = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""In a separate network, in which the ports of the contract are free."""
LIMIT_S = 240
HEALTH_CHECK = IMAGES / "runtime/src/voice_runtime/healthcheck.py"


def smokes() -> set[str]:
    return {folder.parent.name for folder in IMAGES.glob("*/smoke")}


def test_every_smoke_test_runs_here_or_has_a_reason() -> None:
    run_here = {Image.TELEMETRY, Image.GATEWAY, Image.AGENT, Image.WHISPER_ENGINE}
    assert {Image(name) for name in smokes()} - TESTED_ELSEWHERE == run_here


@pytest.mark.parametrize("name", sorted(smokes() - TESTED_ELSEWHERE))
def test_a_program_starts_with_its_contract_environment_and_stops_cleanly(name: str, tmp_path: Path) -> None:
    command = tmp_path / "healthcheck"
    # The kernel splits a script's first line at spaces, which the interpreter's path may contain. Without -P, modules
    # next to the script would precede those of the standard library.
    command.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-P', str(HEALTH_CHECK)])}\n", encoding="utf-8")
    command.chmod(0o755)
    program = (
        "import runpy; from voice_blueprint.contract import session_api; "
        f"session_api.HEALTH_COMMAND = {str(command)!r}; "
        f"runpy.run_path({str(IMAGES / name / 'smoke/start.py')!r}, run_name='smoke')['check_startup']()"
    )
    sources = os.pathsep.join(map(str, (ROOT, IMAGES / name / "src", IMAGES / "runtime/src")))
    done = subprocess.run(  # noqa: S603
        [*unshare("--net"), *LOOPBACK_ONLY, sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": sources, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
