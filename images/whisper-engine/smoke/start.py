"""Smoke test of the engine: it reports an invalid variable, and that the weights are missing.

Run in the image by ``run.sh``.
"""

import os
import subprocess
import sys
from ctypes import CDLL

from voice_blueprint.contract.environment import VARIABLES_BY_IMAGE
from voice_blueprint.contract.images import Image

ENGINE_COMMAND = [sys.executable, "-m", "voice_whisper"]
START_TIMEOUT_S = 120
VALID_ENVIRONMENT = {
    "VOICE_HOST_ADDRESS": "127.0.0.1",
    "VOICE_HOST_KIND": "gpu",
    "VOICE_CHUNK_PORT": "5006",
    "VOICE_HEALTH_PORT": "8082",
    "VOICE_VALKEY_PORT": "6379",
    "VOICE_VALKEY_HOST_FILE": "/dev/null",
    "VOICE_VALKEY_PASSWORD_FILE": "/dev/null",
    "VOICE_ENGINE": "whisper",
    "VOICE_MODEL_REVISION": "",
    "VOICE_SESSIONS": "4",
    "VOICE_ENCODERS": "1",
    "VOICE_DECODERS": "1",
    "VOICE_CACHE_DIR": "/var/cache/voice",
    "VOICE_DRAIN_TIMEOUT_S": "5",
}


def expect_rejection(change: dict[str, str], code: int, answer: str) -> None:
    """Fail the test unless the engine rejects an environment with the expected message."""
    contract = {
        variable.name: VALID_ENVIRONMENT.get(variable.name, "smoke")
        for variable in VARIABLES_BY_IMAGE[Image.WHISPER_ENGINE]
    }
    environment = {**os.environ, **contract, "HF_HUB_OFFLINE": "1", **change}
    result = subprocess.run(  # noqa: S603  the engine
        ENGINE_COMMAND, env=environment, stderr=subprocess.PIPE, text=True, timeout=START_TIMEOUT_S, check=False
    )
    if result.returncode != code or answer not in result.stderr:
        sys.exit(f"with {change}: exit code {result.returncode}, expected {code}; said: {result.stderr}")


def check_startup() -> None:
    """Start the engine with an invalid variable, and without weights."""
    expect_rejection({"VOICE_CHUNK_PORT": "none"}, 2, "VOICE_CHUNK_PORT='none'")
    expect_rejection({"VOICE_MODEL": "/nonexistent"}, 1, "VOICE_MODEL=/nonexistent: no such folder")


if __name__ == "__main__":
    check_startup()
    CDLL("libcublas.so.12")
