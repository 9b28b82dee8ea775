"""The gateway with a service's environment, and with no state store: it serves, but takes no callers.

Run in the image by ``run.sh``.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from blueprint.contract.environment import ENVIRONMENT
from blueprint.contract.images import Image
from blueprint.contract.session_api import HEALTH_COMMAND, HEALTH_PATH

GATEWAY = [sys.executable, "-m", "voice_gateway"]
DEADLINE_S = 60
PORTS = {"VOICE_HTTP_PORT": "8080", "VOICE_MEDIA_PORT": "8083"}
NUMBERS = {"VOICE_RTP_PORT": "5004", "VOICE_VALKEY_PORT": "6379", "VOICE_TOKEN_TTL_S": "300"}
TIMES = {"VOICE_IDLE_TIMEOUT_S": "60", "VOICE_DRAIN_TIMEOUT_S": "1", "VOICE_END_OF_TURN_MS": "500"}
CALLERS = {"VOICE_AUTHORIZER": "none", "VOICE_JWT_ISSUER": "", "VOICE_JWT_AUDIENCE": ""}
LIMITS = {
    f"VOICE_{name}": "100"
    for name in ("RECONNECT_GRACE_S", "SESSION_MAX_S", "CALLER_SESSIONS", "CALLER_CREATIONS_PER_S", "MAX_CONNECTIONS")
}
SET = {**PORTS, **NUMBERS, **TIMES, **CALLERS, **LIMITS, "VOICE_TOKEN_KEY": "x" * 64, "VOICE_VALKEY_HOST": "127.0.0.1"}


def health(port: str) -> int:
    """Return what a port answers; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{HEALTH_PATH}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def expect(what: str, found: object, wanted: object) -> None:
    """End the test unless something is as it should be."""
    if found != wanted:
        sys.exit(f"{what}: {found}, expected {wanted}")


def main() -> None:
    """Start it wrongly, then rightly, and stop it."""
    contract = {variable.name: SET.get(variable.name, "smoke") for variable in ENVIRONMENT[Image.GATEWAY]}
    environment = {**os.environ, **contract}
    wrong = {**environment, "VOICE_HTTP_PORT": "none"}
    expect("wrong port", subprocess.run(GATEWAY, env=wrong, check=False).returncode, 2)  # noqa: S603  the gateway
    program = subprocess.Popen(GATEWAY, env=environment)  # noqa: S603  the gateway
    end = time.monotonic() + DEADLINE_S
    while 0 in map(health, PORTS.values()) and time.monotonic() < end:
        time.sleep(0.2)
    expect("health without a state store", [health(port) for port in PORTS.values()], [503, 503])
    expect("health check", subprocess.run([HEALTH_COMMAND], env=environment, check=False).returncode, 1)  # noqa: S603
    program.send_signal(signal.SIGTERM)
    expect("exit code", program.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    main()
