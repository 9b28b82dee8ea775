"""Hosts whose containers run but are unhealthy."""

import shlex
import subprocess
from dataclasses import replace
from importlib.resources import files

import pytest

from tests.userdata import hosts
from tests.userdata.machine import Machine
from voice_userdata import HostUserDataConfig, PortReadinessCheck, render_user_data

LIFECYCLE = files("voice_userdata") / "steps" / "lifecycle.sh"


@pytest.mark.parametrize(("polls", "unhealthy"), [(59, False), (70, True)])
def test_a_host_whose_engine_hangs_is_replaced_in_five_minutes(
    machine: Machine, ready_port: int, unhealthy_port: int, polls: int, unhealthy: bool
) -> None:
    """Its health check fails. A start, which takes longer, continues while the port is closed."""
    boot = hosts.asr_vllm(ready_port)
    machine.launch(boot)
    hung = replace(boot.containers[0], health=PortReadinessCheck(unhealthy_port, "/healthz"))
    _serve_until(machine, replace(boot, containers=(hung, *boot.containers[1:])), polls)
    assert any("set-instance-health" in line for line in machine.transcript) is unhealthy
    assert any("not ready for 300 s: engine" in line for line in machine.transcript) is unhealthy


def test_a_restarting_vllm_has_the_start_timeout(
    machine: Machine, ready_port: int, unhealthy_port: int, silent_port: int
) -> None:
    """Meanwhile the Whisper engine reports that it works without vLLM."""
    boot = hosts.asr_vllm(ready_port)
    boot = replace(boot, hooks=replace(boot.hooks, ready_budget_s=500))
    machine.launch(boot)
    engine, vllm, telemetry = boot.containers
    engine = replace(engine, health=PortReadinessCheck(unhealthy_port, "/healthz"))
    vllm = replace(vllm, health=PortReadinessCheck(silent_port, "/health"))
    _serve_until(machine, replace(boot, containers=(engine, vllm, telemetry)), 90)
    assert not any("set-instance-health" in line for line in machine.transcript)
    _serve_until(machine, replace(boot, containers=(engine, vllm, telemetry)), 110)
    assert any("not ready for 500 s: engine asr-vllm" in line for line in machine.transcript)


def _serve_until(machine: Machine, boot: HostUserDataConfig, polls: int) -> None:
    """Continue as a host in service, whose containers have changed, for this many polls."""
    machine.installed_script.write_text(
        render_user_data(boot).replace('main "$@"', "identify; touch $RUN/serving; watch")
    )
    (machine.fake / "stopping").unlink(missing_ok=True)
    machine.targets(*["InService"] * polls, "Terminated")
    assert machine.run(machine.installed_script).returncode == 0


@pytest.mark.parametrize(
    ("port", "path", "status"),
    [
        ("ready_port", "/healthz", 0),
        ("ready_port", "", 0),
        ("unresponsive_port", "", 0),
        ("unresponsive_port", "/healthz", 2),
        ("unhealthy_port", "/healthz", 2),
        ("silent_port", "/healthz", 1),
        ("silent_port", "", 1),
    ],
)
def test_a_container_is_ready_when_its_health_port_responds(
    request: pytest.FixtureRequest, port: str, path: str, status: int
) -> None:
    number = request.getfixturevalue(port)
    script = (
        f"set -Eeuo pipefail; declare -A HEALTH_PORT=([x]={number}{path}); CONTAINERS=(x)\n"
        f". {shlex.quote(str(LIFECYCLE))}\n"
        "status=0; is_ready x || status=$?; exit $status"
    )
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
