"""Lifecycle of a deployment's hosts, from launch to termination, as controlled by Auto Scaling."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_connection

import yaml

from voice_blueprint.aws import names
from voice_blueprint.contract import network as contract
from voice_blueprint.contract.images import Image
from voice_sandbox.hosts.balancer import Target
from voice_sandbox.hosts.cloud import Host, SimulatedCloud
from voice_sandbox.hosts.disk import HostRehearsalError
from voice_sandbox.rehearsals.drill import Drill

READY_TIMEOUT_S = 2700
"""Timeout from power-on to in service, which usually takes 300 s when two idle cores emulate the machine. A host itself
waits 900 s."""
DRAIN_TIMEOUT_S = 600
METRICS_TIMEOUT_S = 300
HEALTHY_TIMEOUT_S = 120
_POLL_INTERVAL_S = 2


def write_pinned_deployment(file: Path, digests: Mapping[Image, str], folder: Path) -> Path:
    """Write a copy of a deployment file with the digests of pushed images, and return its path."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["images"] = {**document["images"], **{image.value: digest for image, digest in digests.items()}}
    written = folder / file.name
    written.write_text(yaml.safe_dump(document), encoding="utf-8")
    return written


def wait_until(condition_name: str, condition: Callable[[], object], host: Host, within_s: float) -> None:
    """Wait until a running host satisfies a condition.

    Raises:
        HostRehearsalError: The condition is not satisfied in time, or the machine stops.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if not host.machine.is_running or time.monotonic() > deadline:
            reason = f"not within {within_s:.0f} s" if host.machine.is_running else "the machine went off"
            raise HostRehearsalError(f"{host.instance}: {condition_name}: {reason}\n{host.machine.read_last_lines()}")
        time.sleep(_POLL_INTERVAL_S)


def wait_until_in_service(cloud: SimulatedCloud, host: Host) -> None:
    """Wait until a started machine is in service.

    Raises:
        HostRehearsalError: The host abandons its launch; the message is the first reason.
    """
    wait_until("it is in service", lambda: _is_in_service(cloud, host), host, READY_TIMEOUT_S)


def _is_in_service(cloud: SimulatedCloud, host: Host) -> bool:
    failure_line = host.machine.find_line("voice-host: FAILED: ")
    # The console is read before the group's state, so that the state includes everything that the host reported before.
    is_unreachable = host.machine.find_line("voice-host: Auto Scaling is unreachable") is not None
    state = cloud.list_instance_states(host.group).get(host.instance)
    if state is None or state.startswith("Terminat"):
        reason = cloud.find_first_failure(host)
        raise HostRehearsalError(f"{host.instance} was abandoned: {reason or 'its log group contains no reason'}")
    if failure_line and is_unreachable:
        reason = failure_line.text.partition("FAILED: ")[2]
        raise HostRehearsalError(f"{host.instance} failed and could not report it to its group: {reason}")
    return state == "InService"


def wait_until_target_healthy(cloud: SimulatedCloud, host: Host) -> Target:
    """Wait until the load balancer sends callers to a host in service."""
    healthy = lambda: (target := cloud.balancer.find_target(host.address)) is not None and target.is_healthy  # noqa: E731
    wait_until("its target is healthy", healthy, host, HEALTHY_TIMEOUT_S)
    target = cloud.balancer.find_target(host.address)
    if target is None:
        raise HostRehearsalError(f"{host.instance} was removed from its target group")
    return target


def reboot_host(host: Host) -> None:
    """Reboot a host from inside, and wait until its programs are ready again."""
    before_s = host.machine.uptime_s
    host.machine.run_in_background("systemctl reboot")
    ready = lambda: host.machine.find_line("voice-host: containers", since_s=before_s) is not None and _is_ready(host)  # noqa: E731
    wait_until("it serves after a reboot", ready, host, READY_TIMEOUT_S)


def _is_ready(host: Host) -> bool:
    try:
        create_connection((host.address, contract.VAD_HEALTH.number), 5).close()
    except OSError:
        return False
    return True


def terminate_host(cloud: SimulatedCloud, host: Host) -> None:
    """Terminate a host through its group, and wait until the host has completed its termination."""
    before_s = host.machine.uptime_s
    cloud.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=host.instance, ShouldDecrementDesiredCapacity=True
    )
    wait_until(
        "it drains",
        lambda: host.machine.find_line("voice-host: drained", since_s=before_s) is not None,
        host,
        DRAIN_TIMEOUT_S,
    )
    wait_until(
        "the drain hook is answered",
        lambda: host.instance not in cloud.list_instance_states(host.group),
        host,
        DRAIN_TIMEOUT_S,
    )


def interrupt_host(cloud: SimulatedCloud, host: Host) -> None:
    """Send a spot interruption notice to a host two minutes in advance, and wait until the host has drained."""
    before_s = host.machine.uptime_s
    end = datetime.now(UTC) + timedelta(minutes=2)
    host.spot_notice = {"action": "terminate", "time": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
    wait_until(
        "it drains",
        lambda: host.machine.find_line("voice-host: drained", since_s=before_s) is not None,
        host,
        DRAIN_TIMEOUT_S,
    )
    cloud.aws.client("ec2").terminate_instances(InstanceIds=[host.instance])


def is_xdp_detached(host: Host) -> bool:
    """Return True if no XDP program is attached to the interface."""
    (interface,) = json.loads(host.machine.run("ip -json -details link show dev ens5"))
    return "xdp" not in interface


def wait_for_scale_out(cloud: SimulatedCloud, host: Host) -> None:
    """Wait until a host's own metrics trigger its fleet's alarm, and scale the fleet out.

    Raises:
        HostRehearsalError: The alarm did not fire.
    """
    client = cloud.aws.client
    drill = Drill(cloud.deployment, cloudwatch=client("cloudwatch"), autoscaling=client("autoscaling"))
    (rule,) = cloud.deployment.aws.vad.scaling

    def is_alarm_firing() -> bool:
        now = int(time.time())
        return drill.fire_if_breached(names.VAD_FLEET, rule, datetime.fromtimestamp(now - now % rule.period_s, UTC))

    wait_until(f"{rule.name} fires", is_alarm_firing, host, METRICS_TIMEOUT_S)
