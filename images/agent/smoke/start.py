"""Smoke test of the agent without engines or a state store: it starts, is healthy, and rejects all callers.

Run in the image by ``run.sh``.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from voice_blueprint.contract.environment import VARIABLES_BY_IMAGE
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.session_api import HEALTH_COMMAND, HEALTH_PATH

AGENT_COMMAND = [sys.executable, "-m", "voice_agent"]
DEADLINE_S = 60
PORT = "8084"
NUMERIC_VARIABLES = {
    "VOICE_HTTP_PORT": PORT,
    "VOICE_VALKEY_PORT": "6379",
    "VOICE_TOKEN_TTL_S": "300",
    "VOICE_CONVERSATIONS": "8",
}
LIMIT_VARIABLES = {"VOICE_IDLE_TIMEOUT_S": "60", "VOICE_DRAIN_TIMEOUT_S": "1", "VOICE_ANSWER_TOKENS": "100"}
ENGINE_URLS = {f"VOICE_{name}_URL": "http://127.0.0.1:9" for name in ("GATEWAY", "CHAT", "SPEECH")}
OTHER_VARIABLES = {
    **dict.fromkeys(("VOICE_TOOLS_URL", "VOICE_TOOLS_KEY", "VOICE_TWILIO_ACCOUNT", "VOICE_TWILIO_TOKEN"), ""),
    "VOICE_TRACE_COLLECTOR": "",
    "VOICE_TRACED_SHARE": "0",
    "VOICE_LANGUAGE": "",
    "VOICE_SPEECH_RATE": "24000",
    "VOICE_TOKEN_KEY": "x" * 64,
}
VALID_VARIABLES = {
    **NUMERIC_VARIABLES,
    **LIMIT_VARIABLES,
    **ENGINE_URLS,
    **OTHER_VARIABLES,
    "VOICE_VALKEY_HOST": "127.0.0.1",
    "VOICE_LISTENING": "transcript",
}


def get_health_status() -> int:
    """Return the HTTP status of the port; 0 until the program listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{HEALTH_PATH}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def assert_equal(name: str, actual: object, expected: object) -> None:
    """Fail the test unless a result has the expected value."""
    if actual != expected:
        sys.exit(f"{name}: {actual}, expected {expected}")


def check_startup() -> None:
    """Start the agent with an invalid, then a valid environment, and stop it."""
    contract = {
        variable.name: VALID_VARIABLES.get(variable.name, "smoke") for variable in VARIABLES_BY_IMAGE[Image.AGENT]
    }
    environment = {**os.environ, **contract}
    wrong = {**environment, "VOICE_HTTP_PORT": "none"}
    assert_equal("wrong port", subprocess.run(AGENT_COMMAND, env=wrong, check=False).returncode, 2)  # noqa: S603  the agent
    program = subprocess.Popen(AGENT_COMMAND, env=environment)  # noqa: S603  the agent
    end = time.monotonic() + DEADLINE_S
    while not get_health_status() and time.monotonic() < end:
        time.sleep(0.2)
    assert_equal("get_health_status", get_health_status(), 200)
    assert_equal("health check", subprocess.run([HEALTH_COMMAND], env=environment, check=False).returncode, 0)  # noqa: S603
    program.send_signal(signal.SIGTERM)
    assert_equal("exit code", program.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    check_startup()
