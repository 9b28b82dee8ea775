"""The process only starts with a valid environment, and reports invalid variables."""

import json
import socket
import subprocess
import sys
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import FOLDER, TOKEN_KEY, GatewayProcess, holds
from voice_blueprint.contract.metrics import METRICS, NAMESPACE
from voice_blueprint.contract.session_api import HEALTH_PATH, LIVENESS_PATH
from voice_gateway.settings import GatewaySettings
from voice_runtime.metrics import Metrics
from voice_sandbox.loopback import find_free_port


def run(environment: dict[str, str], module: str = "voice_gateway") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUSY_TIMEOUT_S,
        check=False,
    )


WRONG = [
    ({"VOICE_HTTP_PORT": "99999"}, "VOICE_HTTP_PORT='99999': Input should be less than or equal to 65535"),
    ({"VOICE_TOKEN_KEY": "short-key"}, "VOICE_TOKEN_KEY: has 9 bytes, at least 32 are needed"),
    ({"VOICE_IDLE_TIMEOUT_S": "soon"}, "VOICE_IDLE_TIMEOUT_S='soon': Input should be a valid number"),
    ({"VOICE_MEDIA_HOST": ""}, "VOICE_MEDIA_HOST='': String should have at least 1 character"),
    ({"VOICE_JWT_ISSUER": "https://issuer.test"}, "VOICE_JWT_ISSUER and VOICE_JWT_AUDIENCE go together"),
    ({"VOICE_VALKEY_PORT": "0"}, "VOICE_VALKEY_PORT='0': Input should be greater than or equal to 1"),
    ({"VOICE_RTP_PORT": None}, "VOICE_RTP_PORT is not set"),
]


@pytest.mark.parametrize(("change", "line"), WRONG, ids=lambda value: str(value)[:30])
def test_invalid_variable_gives_a_one_line_error(
    store_server: StoreServer, change: dict[str, str | None], line: str
) -> None:
    environment = {**GatewayProcess(store_server, 5004).environment, **change}
    done = run({name: value for name, value in environment.items() if value is not None})
    assert done.returncode == 2
    [said] = done.stderr.splitlines()
    assert line in said
    assert "short-key" not in said


async def test_port_in_use_gives_a_one_line_error(store_server: StoreServer) -> None:
    gateway = GatewayProcess(store_server, 5004)
    with socket.create_server(("127.0.0.1", gateway.media_port)):
        done = run(gateway.environment)
    assert done.returncode == 1
    [said] = done.stderr.splitlines()
    assert "cannot start" in said
    assert "in use" in said


async def test_health_check_does_not_replace_a_gateway_whose_store_is_unavailable(
    start: Start, store_server: StoreServer
) -> None:
    gateway = start()
    await gateway.ready()
    assert run(gateway.environment, "voice_runtime.healthcheck").returncode == 0
    store_server.stop()
    try:
        await holds("it accepts no callers", lambda: gateway.health() == 503)
        assert run(gateway.environment, "voice_runtime.healthcheck").returncode == 0
    finally:
        store_server.start()
    gateway.kill()
    assert run(gateway.environment, "voice_runtime.healthcheck").returncode == 1


async def test_gateway_that_has_never_reached_its_store_is_unhealthy(start: Start) -> None:
    """Otherwise, a deployment with a wrong store would replace all healthy tasks."""
    gateway = start(VALKEY_PORT=find_free_port())
    await holds("it responds", lambda: gateway.health() != 0)
    ports = (gateway.http_port, gateway.media_port)
    assert [gateway.health(port, path) for port in ports for path in (HEALTH_PATH, LIVENESS_PATH)] == [503] * 4
    assert run(gateway.environment, "voice_runtime.healthcheck").returncode == 1


async def test_gateway_whose_password_has_become_invalid_is_unhealthy(start: Start, store: Redis) -> None:
    """Other gateways still reach the store, so a new task, which reads the current password, solves it."""
    await _set_password(store, "old")
    gateway = await start(VALKEY_USER="gateway", VALKEY_PASSWORD="old").ready()
    ports = (gateway.http_port, gateway.media_port)
    try:
        await _set_password(store, "new")
        await store.execute_command("CLIENT", "KILL", "USER", "gateway")  # type: ignore[no-untyped-call]
        await holds("it is unhealthy", lambda: [gateway.health(port, LIVENESS_PATH) for port in ports] == [503, 503])
        assert run(gateway.environment, "voice_runtime.healthcheck").returncode == 1
        await _set_password(store, "old")
        await holds("it is healthy again", lambda: gateway.health(path=LIVENESS_PATH) == 200)
    finally:
        gateway.kill()
        await store.execute_command("ACL", "DELUSER", "gateway")  # type: ignore[no-untyped-call]


async def _set_password(store: Redis, password: str) -> None:
    rules = ("reset", "on", f">{password}", "~*", "&*", "+@all")
    await store.execute_command("ACL", "SETUSER", "gateway", *rules)  # type: ignore[no-untyped-call]


def test_metrics_match_the_contract() -> None:
    lines: list[str] = []
    metrics = Metrics("prod", "gateway", lines.append)
    for _ in range(3):
        metrics.count("SessionsCreated")
    for value in range(250):
        metrics.observe("TimeToFinal", value)
    metrics.observe("OpenSockets", 0)
    metrics.flush()
    metrics.flush()
    found = [json.loads(line) for line in lines]
    values: dict[str, list[float]] = {}
    for line in found:
        assert (line["Deployment"], line["Fleet"]) == ("prod", "gateway")
        [directive] = line["_aws"]["CloudWatchMetrics"]
        [described] = directive["Metrics"]
        name = described["Name"]
        assert directive["Namespace"] == NAMESPACE
        assert directive["Dimensions"] == [list(METRICS[name].dimensions)]
        assert described == {"Name": name, "Unit": METRICS[name].unit, "StorageResolution": 1}
        each = line[name] if isinstance(line[name], list) else [line[name]]
        assert len(each) <= 100
        values.setdefault(name, []).extend(each)
    assert values == {"SessionsCreated": [3], "TimeToFinal": list(range(250)), "OpenSockets": [0]}


def test_settings_repr_does_not_contain_the_key(store_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GatewayProcess(store_server, 5004).environment.items():
        monkeypatch.setenv(name, value)
    assert TOKEN_KEY not in repr(GatewaySettings())


def test_image_pins_the_tested_versions() -> None:
    lines = (FOLDER / "gateway/requirements.in").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert len(pins) > 5
    assert {pin.name: str(pin.specifier) for pin in pins} == {pin.name: f"=={version(pin.name)}" for pin in pins}
