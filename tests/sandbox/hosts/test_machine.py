"""Boot failures, a spot notice and a reboot of a VAD host, in addition to `make rehearse-hosts`.

A host that cannot boot is abandoned, and the rehearsal reports the host's own reason. Hardware faults have one machine
each. For all other tests one machine boots once: each starts from a snapshot of it, as another instance of its group,
directly before the tested step.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import voice_blueprint
from voice_blueprint.aws import names
from voice_ops.progress import Progress
from voice_ops.sandbox.caller import PeerServices, transcribe_call
from voice_ops.sandbox.hosts import LONG_CALL_REPEATS, deploy_host_environment
from voice_sandbox.hosts.cloud import Host, SimulatedCloud
from voice_sandbox.hosts.disk import HostRehearsalError
from voice_sandbox.hosts.facts import verify_vad_host
from voice_sandbox.hosts.machine import DEFAULT_HARDWARE, ConsoleLine, Hardware
from voice_sandbox.hosts.rehearsal import (
    READY_TIMEOUT_S,
    interrupt_host,
    is_xdp_detached,
    reboot_host,
    wait_for_scale_out,
    wait_until,
    wait_until_in_service,
    wait_until_target_healthy,
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
BOOT_STEP = "booted"
"""Snapshot of a machine whose user data has not started."""
IMAGES_STEP = "images"
"""Snapshot of the same machine at this step: Docker runs, and no image is present."""
SECRET_STEP = "state_secret"
"""Snapshot of the same machine at this later step."""
_PAUSE_FILE = "/run/hold"
_PAUSE_USER_DATA = f"""touch {_PAUSE_FILE}
folder=/run/systemd/system/cloud-final.service.d
mkdir -p $folder
printf '[Service]\\nExecStartPre=/bin/sh -c "while [ -e {_PAUSE_FILE} ]; do sleep 0.1; done"\\n' >$folder/hold.conf
systemctl daemon-reload
until [ "$(systemctl show -P SubState cloud-final)" = start-pre ]; do sleep 1; done"""
"""cloud-init's last stage runs the user data."""
_CONTINUE = {
    BOOT_STEP: f"rm {_PAUSE_FILE}",
    # systemd restarts it; the new instance repeats completed steps in seconds.
    IMAGES_STEP: "systemctl kill --signal=KILL voice-host",
    SECRET_STEP: "systemctl kill --signal=KILL voice-host",
}
"""Commands that continue the boot after each snapshot."""
_SHORT_SLEEPS = """printf '#!/bin/sh\\nexec /usr/bin/sleep 0.1\\n' >/usr/local/bin/sleep
chmod +x /usr/local/bin/sleep"""
"""Scripts count the seconds of their sleeps and abort after a limit."""
_AS_INSTANCE_STORE = """printf '%-40s' 'Amazon EC2 NVMe Instance Storage' >/run/model
mount --bind /run/model /sys/block/nvme0n1/device/model"""
"""QEMU's disks have a fixed model; scripts recognize disks of EC2 by their model."""
Plant = Callable[[SimulatedCloud, Host], AbstractContextManager[None]]


@contextmanager
def missing_image(cloud: SimulatedCloud, _: Host) -> Iterator[None]:
    (revisions,) = cloud.folder.glob("registry/**/vad-dataplane/_manifests/revisions")
    aside = revisions.with_name("aside")
    revisions.rename(aside)
    try:
        yield
    finally:
        aside.rename(revisions)


@contextmanager
def missing_secret(cloud: SimulatedCloud, _: Host) -> Iterator[None]:
    client = cloud.aws.client("secretsmanager")
    (arn,) = [secret["ARN"] for secret in client.list_secrets()["SecretList"] if "StoreVad" in secret["Name"]]
    client.delete_secret(SecretId=arn, RecoveryWindowInDays=7)
    try:
        yield
    finally:
        client.restore_secret(SecretId=arn)


@contextmanager
def unresponsive_registry(cloud: SimulatedCloud, _: Host) -> Iterator[None]:
    cloud.registry_refusals = 10**6
    try:
        yield
    finally:
        cloud.registry_refusals = 0


@contextmanager
def missing_route(cloud: SimulatedCloud, host: Host) -> Iterator[None]:
    cloud.network.reserve_address(host.mac, host.address, route=False)
    try:
        yield
    finally:
        cloud.network.reserve_address(host.mac, host.address, route=True)


@dataclass(frozen=True)
class Fault:
    """A fault that prevents a host from entering service.

    Attributes:
        snapshot: Snapshot to start from.
        reason: Expected part of the reported reason.
        plant: Context manager that injects the fault into the environment.
        breaks: Command that injects the fault on the machine.
        is_told: Whether the host reaches its group.
    """

    snapshot: str
    reason: str
    plant: Plant = lambda _, __: nullcontext()
    breaks: str = ":"
    is_told: bool = True


HARDWARE = {
    "too little memory": (Hardware(memory_mib=2400), "huge_pages: 1024 pages of 2 MiB are 2048 MiB"),
    "too few queues": (Hardware(queue_count=2), "af_xdp: ens5 has 1 queues for XDP"),
    "small frames": (Hardware(mtu=1500), "mtu: ens5 does not support an MTU of 3498"),
}
FAULTS = {
    "no AWS CLI": Fault(
        BOOT_STEP, "need aws awscli-2: cannot install awscli-2", breaks="mv /usr/bin/aws /root", is_told=False
    ),
    "no Docker": Fault(BOOT_STEP, "runtime: systemctl enable --now docker", breaks="systemctl mask docker"),
    "registry silent": Fault(IMAGES_STEP, "images: cannot log in to 123456789012.dkr.ecr", unresponsive_registry),
    "image gone": Fault(IMAGES_STEP, "images: cannot pull 123456789012.dkr.ecr", missing_image),
    "no route": Fault(
        IMAGES_STEP,
        "images: cannot log in to 123456789012.dkr.ecr",
        missing_route,
        # The AWS CLI tries each request five times, and the script tries each call five times.
        breaks=f"systemctl set-environment AWS_MAX_ATTEMPTS=1; networkctl reconfigure ens5\n{_SHORT_SLEEPS}",
        is_told=False,
    ),
    "secret gone": Fault(SECRET_STEP, "state_secret: cannot read password of arn:aws:secretsmanager", missing_secret),
    # No container can be started; the reason is of the first that was restarted five times.
    "no container runtime": Fault(
        SECRET_STEP, " cannot be started  docker: Error response from daemon", breaks="mv /usr/sbin/runc /root"
    ),
    "health never green": Fault(
        SECRET_STEP,
        "serve: not ready after 900 s: vad-dataplane",
        breaks="iptables --append INPUT --protocol tcp --dport 8081 --jump REJECT --reject-with tcp-reset\n"
        + _SHORT_SLEEPS,
    ),
}
"""A host writes its reason to the log group without commas, quotes and similar characters."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedCloud]:
    deployment = voice_blueprint.load(ROOT / "tests/deployments/hosts.yaml")
    home = tmp_path_factory.mktemp("hosts")
    with deploy_host_environment(deployment, home, Progress(Console(stderr=True))) as cloud:
        yield cloud


def boot(cloud: SimulatedCloud, hardware: Hardware = DEFAULT_HARDWARE, group: str | None = None) -> Host:
    """Boot the host that a group waits for, by default the first of the VAD fleet's."""
    group = group or names.list_vad_group_names(cloud.deployment)[0]
    return cloud.boot(cloud.find_or_launch_instance(group), group, hardware)


def was_abandoned(cloud: SimulatedCloud, instance: str) -> bool:
    """Return True if the host has completed its launch hook with ABANDON."""
    activities = cloud.aws.client("autoscaling").describe_scaling_activities()["Activities"]
    messages = [each.get("StatusMessage", "") for each in activities if instance in each["Description"]]
    return any("Lifecycle Action Completed with ABANDON Result" in text for text in messages)


@pytest.mark.parametrize(("hardware", "reason"), HARDWARE.values(), ids=HARDWARE.keys())
def test_a_host_reports_unexpected_hardware(cloud: SimulatedCloud, hardware: Hardware, reason: str) -> None:
    host = boot(cloud, hardware)
    with pytest.raises(HostRehearsalError, match="was abandoned: ") as raised:
        wait_until_in_service(cloud, host)
    cloud.power_off(host)
    assert reason in str(raised.value)
    assert was_abandoned(cloud, host.instance)


def test_an_asr_host_formats_its_disk_and_gives_up_without_a_gpu(cloud: SimulatedCloud) -> None:
    group = names.build_group_name(cloud.deployment, cloud.deployment.aws.asr[0].name)
    host = boot(cloud, Hardware(disk_count=1), group)
    host.machine.run(_AS_INSTANCE_STORE)
    with pytest.raises(HostRehearsalError, match="gpu: nvidia-smi finds no usable GPU"):
        wait_until_in_service(cloud, host)
    mounted = host.machine.run("findmnt --noheadings --output FSTYPE,SOURCE,LABEL /mnt/nvme").split()
    cloud.power_off(host)
    assert mounted == ["xfs", "/dev/nvme0n1", "voice-store"]
    assert was_abandoned(cloud, host.instance)


def continue_machine(
    cloud: SimulatedCloud, host: Host, snapshot: str, *, breaks: str = ":", instance: str | None = None
) -> None:
    """Continue a machine from a snapshot as a new instance, by default the newest of its group."""
    cloud.reuse(host, snapshot, instance or cloud.find_or_launch_instance(host.group))
    host.machine.run(breaks)
    host.machine.run(_CONTINUE[snapshot])


@dataclass(frozen=True)
class PreparedHost:
    """A machine with its snapshots, and its output until the last one."""

    host: Host
    lines: list[ConsoleLine]


@pytest.fixture(scope="module")
def prepared_host(cloud: SimulatedCloud) -> Iterator[PreparedHost]:
    """Boot a host whose registry fails twice, and take snapshots on the way."""
    host = boot(cloud)
    host.machine.run(_PAUSE_USER_DATA)
    host.machine.save_snapshot(BOOT_STEP)
    cloud.registry_refusals = 2
    host.machine.run(_CONTINUE[BOOT_STEP])
    for step in (IMAGES_STEP, SECRET_STEP):
        comes = partial(host.machine.find_line, f"voice-host: {step}")
        wait_until(f"it comes to {step}", comes, host, READY_TIMEOUT_S)
        host.machine.save_snapshot(step)
    yield PreparedHost(host, host.machine.console_lines)
    cloud.power_off(host)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_host_that_cannot_boot_reports_the_reason(
    cloud: SimulatedCloud, prepared_host: PreparedHost, fault: Fault
) -> None:
    host = prepared_host.host
    with fault.plant(cloud, host):
        continue_machine(cloud, host, fault.snapshot, breaks=fault.breaks)
        with pytest.raises(
            HostRehearsalError, match="was abandoned: " if fault.is_told else "could not report it to its group: "
        ) as raised:
            wait_until_in_service(cloud, host)
    assert fault.reason in str(raised.value)
    assert was_abandoned(cloud, host.instance) == fault.is_told


def test_a_registry_that_fails_twice_is_retried(prepared_host: PreparedHost) -> None:
    assert [line.text for line in prepared_host.lines if "try 2 of 5 failed" in line.text]


@dataclass(frozen=True)
class InterruptedHost:
    """Events of a host that was terminated by a spot interruption.

    Attributes:
        asked_for: Instance that the fleet launched while a call used the slots.
        is_detached: Whether the XDP program was detached afterwards.
    """

    lines: list[ConsoleLine]
    asked_for: str
    is_detached: bool


@pytest.fixture(scope="module")
def interrupted_host(cloud: SimulatedCloud, prepared_host: PreparedHost) -> InterruptedHost:
    """Launch a host, cause scale-out with a call, and send a spot interruption notice."""
    host = prepared_host.host
    continue_machine(cloud, host, SECRET_STEP)
    wait_until_in_service(cloud, host)
    there = cloud.list_instance_states(host.group)
    with PeerServices(cloud, cloud.folder) as neighbours:
        gateway = neighbours.start()
        wait_until_target_healthy(cloud, host)
        asyncio.run(
            transcribe_call(gateway, during_stream=lambda: wait_for_scale_out(cloud, host), times=LONG_CALL_REPEATS)
        )
    (asked_for,) = cloud.list_instance_states(host.group).keys() - there
    interrupt_host(cloud, host)
    return InterruptedHost(host.machine.console_lines, asked_for, is_xdp_detached(host))


def test_a_host_drains_after_a_spot_notice(interrupted_host: InterruptedHost) -> None:
    assert [line.text for line in interrupted_host.lines if "voice-host: drained" in line.text]
    assert interrupted_host.is_detached


def test_a_host_launched_by_an_alarm_serves_before_and_after_a_reboot(
    cloud: SimulatedCloud, prepared_host: PreparedHost, interrupted_host: InterruptedHost
) -> None:
    host = prepared_host.host
    continue_machine(cloud, host, SECRET_STEP, instance=interrupted_host.asked_for)
    wait_until_in_service(cloud, host)
    assert cloud.list_instance_states(host.group)[interrupted_host.asked_for] == "InService"
    served_s = host.machine.uptime_s
    reboot_host(host)
    assert [claim.text for claim in verify_vad_host(cloud.deployment, host) if not claim.passed] == []
    assert not host.machine.find_line("installing", since_s=served_s)
