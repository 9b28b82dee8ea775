"""Smoke test of the gateway without a state store: it starts, but is unhealthy and rejects all callers.

Also tests the FFmpeg that the image builds: its licence and its decoders.

Run in the image by ``run.sh``.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import wave
from pathlib import Path

import av
from av._core import library_meta

from voice_blueprint.contract.environment import VARIABLES_BY_IMAGE
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.session_api import HEALTH_COMMAND, HEALTH_PATH

GATEWAY_COMMAND = [sys.executable, "-m", "voice_gateway"]
DECODE_COMMAND = [sys.executable, "-m", "voice_gateway.decode", "60"]
EXPECTED_DECODERS = {"aac", "alac", "flac", "mp3float", "opus", "pcm_alaw", "pcm_mulaw", "pcm_s16le", "vorbis"}
SOUND_PATH = Path("/tmp/sound.wav")  # noqa: S108  the image's volume
DEADLINE_S = 60
PORT_VARIABLES = {"VOICE_HTTP_PORT": "8080", "VOICE_MEDIA_PORT": "8083"}
NUMERIC_VARIABLES = {"VOICE_RTP_PORT": "5004", "VOICE_VALKEY_PORT": "6379", "VOICE_TOKEN_TTL_S": "300"}
TIMEOUT_VARIABLES = {"VOICE_IDLE_TIMEOUT_S": "60", "VOICE_DRAIN_TIMEOUT_S": "1", "VOICE_END_OF_TURN_MS": "500"}
TRACE_VARIABLES = {"VOICE_TRACE_COLLECTOR": "", "VOICE_TRACED_SHARE": "0"}
EMPTY_VARIABLE_NAMES = ("ARCHIVE_URL", "OTHER_REGIONS", "API_HOST", "API_URL", "CELLS", "ALLOWED_ORIGINS")
EMPTY_VARIABLES = {f"VOICE_{name}": "" for name in EMPTY_VARIABLE_NAMES}
CALLER_VARIABLES = {"VOICE_AUTHORIZER": "none", "VOICE_JWT_ISSUER": "", "VOICE_JWT_AUDIENCE": ""}
LIMIT_VARIABLE_NAMES = (
    *("RECONNECT_GRACE_S", "SESSION_MAX_S", "CALLER_SESSIONS", "CALLER_CREATIONS_PER_S", "CALLER_MINUTES_PER_DAY"),
    "MAX_CONNECTIONS",
)
LIMIT_VARIABLES = {f"VOICE_{name}": "100" for name in LIMIT_VARIABLE_NAMES}
VALID_VARIABLES = {
    **PORT_VARIABLES,
    **NUMERIC_VARIABLES,
    **TIMEOUT_VARIABLES,
    **TRACE_VARIABLES,
    **EMPTY_VARIABLES,
    **CALLER_VARIABLES,
    **LIMIT_VARIABLES,
    "VOICE_TOKEN_KEY": "x" * 64,
    "VOICE_VALKEY_HOST": "127.0.0.1",
}


def get_health_status(port: str) -> int:
    """Return the HTTP status of a port; 0 until the program listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{HEALTH_PATH}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def assert_equal(name: str, actual: object, expected: object) -> None:
    """Fail the test unless a result has the expected value."""
    if actual != expected:
        sys.exit(f"{name}: {actual}, expected {expected}")


def check_decoder() -> None:
    """Decode a second of audio with the image's FFmpeg, which supports all formats and contains no GPL parts."""
    assert_equal("FFmpeg's licence", {each["license"] for each in library_meta.values()}, {"LGPL version 2.1 or later"})
    assert_equal("missing decoders", EXPECTED_DECODERS - av.codecs_available, set())
    with wave.open(str(SOUND_PATH), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(2 * 8000))
    with SOUND_PATH.open("rb") as file:
        result = subprocess.run(DECODE_COMMAND, stdin=file, capture_output=True, check=False)  # noqa: S603  the gateway's
    assert_equal("decoded bytes", (result.returncode, len(result.stdout), result.stderr), (0, 2 * 16000, b""))


def check_startup() -> None:
    """Start the gateway with an invalid and then with a valid environment, and stop it."""
    contract = {
        variable.name: VALID_VARIABLES.get(variable.name, "smoke") for variable in VARIABLES_BY_IMAGE[Image.GATEWAY]
    }
    environment = {**os.environ, **contract}
    wrong = {**environment, "VOICE_HTTP_PORT": "none"}
    assert_equal("wrong port", subprocess.run(GATEWAY_COMMAND, env=wrong, check=False).returncode, 2)  # noqa: S603  the gateway
    program = subprocess.Popen(GATEWAY_COMMAND, env=environment)  # noqa: S603  the gateway
    end = time.monotonic() + DEADLINE_S
    while 0 in map(get_health_status, PORT_VARIABLES.values()) and time.monotonic() < end:
        time.sleep(0.2)
    assert_equal(
        "health without a state store", [get_health_status(port) for port in PORT_VARIABLES.values()], [503, 503]
    )
    assert_equal("health check", subprocess.run([HEALTH_COMMAND], env=environment, check=False).returncode, 1)  # noqa: S603
    program.send_signal(signal.SIGTERM)
    assert_equal("exit code", program.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    check_decoder()
    check_startup()
