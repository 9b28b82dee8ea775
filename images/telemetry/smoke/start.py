"""Smoke test of telemetry on a VAD host without sources, which are reported as missing while metrics are served.

``run.sh`` runs this test in the image.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request

from voice_blueprint.contract.environment import VARIABLES_BY_IMAGE
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import PROMETHEUS

TELEMETRY_COMMAND = [sys.executable, "-m", "voice_telemetry"]
DEADLINE_S = 60
ENVIRONMENT_VARIABLES = {
    "VOICE_PROMETHEUS_PORT": str(PROMETHEUS.number),
    "VOICE_TELEMETRY_SOURCES": "dataplane,gpu,neuron",
    "VOICE_VALKEY_PORT": "6379",
    "VOICE_REGION": "us-east-1",
}


def get_scrape_status() -> str:
    """Scrape the metrics, and return "ok" or the HTTP status, or an empty text until the program listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS.number}/metrics", timeout=5) as answer:
            return "ok" if answer.status == 200 else f"{answer.status}"  # noqa: PLR2004  HTTP's OK
    except OSError:
        return ""


def assert_equal(name: str, actual: object, expected: object) -> None:
    """Fail the test unless a result has the expected value."""
    if actual != expected:
        sys.exit(f"{name}: {actual}, expected {expected}")


def check_startup() -> None:
    """Start telemetry with an invalid and then with a valid environment, and stop it."""
    contract = {
        variable.name: ENVIRONMENT_VARIABLES.get(variable.name, "smoke")
        for variable in VARIABLES_BY_IMAGE[Image.TELEMETRY]
    }
    environment = {**os.environ, **contract, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    # The store's address is set directly, since this container has no file with it.
    del environment["VOICE_VALKEY_PASSWORD_FILE"], environment["VOICE_VALKEY_HOST_FILE"]
    environment["VOICE_VALKEY_HOST"] = "127.0.0.1"
    wrong = {**environment, "VOICE_TELEMETRY_SOURCES": "tea"}
    assert_equal("wrong source", subprocess.run(TELEMETRY_COMMAND, env=wrong, check=False).returncode, 2)  # noqa: S603  telemetry
    program = subprocess.Popen(TELEMETRY_COMMAND, env=environment)  # noqa: S603  telemetry
    end = time.monotonic() + DEADLINE_S
    while not get_scrape_status() and time.monotonic() < end:
        time.sleep(0.2)
    assert_equal("Prometheus endpoint", get_scrape_status(), "ok")
    program.send_signal(signal.SIGTERM)
    assert_equal("exit code", program.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    check_startup()
