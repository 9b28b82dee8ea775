"""What befalls a VAD host besides `make rehearse-hosts`: what keeps it from booting, a spot notice, a reboot.

A host that cannot boot is abandoned, and the rehearsal says why in the host's own words. Faults of hardware have a
machine each. For all else one machine boots once: what follows begins at a snapshot of it, as another instance of its
group, right before what it is about.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import blueprint
from blueprint.aws import names
from ops.progress import Progress
from ops.sandbox.caller import Neighbours, speak
from ops.sandbox.hosts import LONG, surroundings
from sandbox.hosts.cloud import Cloud, Host
from sandbox.hosts.disk import HostsError
from sandbox.hosts.facts import vad_facts
from sandbox.hosts.machine import COMMON, Hardware, Line
from sandbox.hosts.rehearsal import (
    READY_S,
    balanced,
    detached,
    interrupt,
    launch,
    reboot,
    wait_for_growth,
    wait_until,
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
BOOTED = "booted"
"""Snapshot of a machine whose user data has not begun."""
RUNS_DOCKER = "images"
"""Snapshot of the same machine where its script comes to this step: Docker runs, and no image is there."""
HAS_IMAGES = "state_secret"
"""And where it comes to this one."""
_HOLD = "/run/hold"
_HELD_BACK = f"""touch {_HOLD}
folder=/run/systemd/system/cloud-final.service.d
mkdir -p $folder
printf '[Service]\\nExecStartPre=/bin/sh -c "while [ -e {_HOLD} ]; do sleep 0.1; done"\\n' >$folder/hold.conf
systemctl daemon-reload
until [ "$(systemctl show -P SubState cloud-final)" = start-pre ]; do sleep 1; done"""
"""cloud-init's last stage runs the user data."""
_BEGIN = {
    BOOTED: f"rm {_HOLD}",
    # systemd starts it anew; the new instance does again what is done, in seconds.
    RUNS_DOCKER: "systemctl kill --signal=KILL voice-host",
    HAS_IMAGES: "systemctl kill --signal=KILL voice-host",
}
"""What starts the script after each snapshot."""
_SHORT_SLEEPS = """printf '#!/bin/sh\\nexec /usr/bin/sleep 0.1\\n' >/usr/local/bin/sleep
chmod +x /usr/local/bin/sleep"""
"""A script counts the seconds that it has slept, and gives up after so many of them."""
_AS_INSTANCE_STORE = """printf '%-40s' 'Amazon EC2 NVMe Instance Storage' >/run/model
mount --bind /run/model /sys/block/nvme0n1/device/model"""
"""QEMU's disks have one model, which cannot be set; a script knows EC2's by theirs."""
Plant = Callable[[Cloud, Host], AbstractContextManager[None]]


@contextmanager
def image_gone(cloud: Cloud, _: Host) -> Iterator[None]:
    (revisions,) = cloud.folder.glob("registry/**/vad-dataplane/_manifests/revisions")
    aside = revisions.with_name("aside")
    revisions.rename(aside)
    try:
        yield
    finally:
        aside.rename(revisions)


@contextmanager
def secret_gone(cloud: Cloud, _: Host) -> Iterator[None]:
    client = cloud.aws.client("secretsmanager")
    (arn,) = [secret["ARN"] for secret in client.list_secrets()["SecretList"] if "StoreVad" in secret["Name"]]
    client.delete_secret(SecretId=arn, RecoveryWindowInDays=7)
    try:
        yield
    finally:
        client.restore_secret(SecretId=arn)


@contextmanager
def registry_silent(cloud: Cloud, _: Host) -> Iterator[None]:
    cloud.registry_refuses = 10**6
    try:
        yield
    finally:
        cloud.registry_refuses = 0


@contextmanager
def route_lost(cloud: Cloud, host: Host) -> Iterator[None]:
    cloud.network.reserve(host.mac, host.address, route=False)
    try:
        yield
    finally:
        cloud.network.reserve(host.mac, host.address, route=True)


@dataclass(frozen=True)
class Fault:
    """Something that keeps a host from service.

    Attributes:
        snapshot: Where it begins.
        reason: A part of the one that the host must give.
        plant: What is wrong around it meanwhile.
        breaks: Command that breaks it from inside.
        is_told: Whether the host reaches its group.
    """

    snapshot: str
    reason: str
    plant: Plant = lambda _, __: nullcontext()
    breaks: str = ":"
    is_told: bool = True


HARDWARE = {
    "too little memory": (Hardware(memory_mib=2400), "huge_pages: 1024 pages of 2 MiB are 2048 MiB"),
    "too few queues": (Hardware(queues=2), "af_xdp: ens5 has 1 queues for XDP"),
    "small frames": (Hardware(mtu=1500), "mtu: ens5 refuses an MTU of 3498"),
}
FAULTS = {
    "no AWS CLI": Fault(
        BOOTED, "need aws awscli-2: cannot install awscli-2", breaks="mv /usr/bin/aws /root", is_told=False
    ),
    "no Docker": Fault(BOOTED, "runtime: systemctl enable --now docker", breaks="systemctl mask docker"),
    "registry silent": Fault(RUNS_DOCKER, "images: cannot log in to 123456789012.dkr.ecr", registry_silent),
    "image gone": Fault(RUNS_DOCKER, "images: cannot pull 123456789012.dkr.ecr", image_gone),
    "no route": Fault(
        RUNS_DOCKER,
        "images: cannot log in to 123456789012.dkr.ecr",
        route_lost,
        # The AWS CLI tries each request five times, and the script each call as often.
        breaks=f"systemctl set-environment AWS_MAX_ATTEMPTS=1; networkctl reconfigure ens5\n{_SHORT_SLEEPS}",
        is_told=False,
    ),
    "secret gone": Fault(HAS_IMAGES, "state_secret: cannot read password of arn:aws:secretsmanager", secret_gone),
    "no container runtime": Fault(
        HAS_IMAGES, "serve: vad-dataplane cannot be started", breaks="mv /usr/sbin/runc /root"
    ),
    "health never green": Fault(
        HAS_IMAGES,
        "serve: not ready after 900 s: vad-dataplane",
        breaks="iptables --append INPUT --protocol tcp --dport 8081 --jump REJECT --reject-with tcp-reset\n"
        + _SHORT_SLEEPS,
    ),
}
"""A host writes its reason to the log group without commas, quotes and the like."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    deployment = blueprint.load(ROOT / "deployments/hosts.yaml")
    home = tmp_path_factory.mktemp("hosts")
    with surroundings(deployment, home, Progress(Console(stderr=True))) as cloud:
        yield cloud


def boot(cloud: Cloud, hardware: Hardware = COMMON, group: str | None = None) -> Host:
    """Switch on the host that a group waits for: the first of the VAD fleet's, unless another is named."""
    group = group or names.vad_groups(cloud.deployment)[0]
    return cloud.boot(cloud.launched(group), group, hardware)


def was_abandoned(cloud: Cloud, instance: str) -> bool:
    """Whether a host itself has answered its launch hook with ABANDON."""
    activities = cloud.aws.client("autoscaling").describe_scaling_activities()["Activities"]
    said = [each.get("StatusMessage", "") for each in activities if instance in each["Description"]]
    return any("Lifecycle Action Completed with ABANDON Result" in text for text in said)


@pytest.mark.parametrize(("hardware", "reason"), HARDWARE.values(), ids=HARDWARE.keys())
def test_a_host_whose_hardware_is_wrong_says_so(cloud: Cloud, hardware: Hardware, reason: str) -> None:
    host = boot(cloud, hardware)
    with pytest.raises(HostsError, match="was abandoned: ") as raised:
        launch(cloud, host)
    cloud.power_off(host)
    assert reason in str(raised.value)
    assert was_abandoned(cloud, host.instance)


def test_an_asr_host_formats_its_disk_and_gives_up_without_a_gpu(cloud: Cloud) -> None:
    group = names.group(cloud.deployment, cloud.deployment.aws.asr[0].name)
    host = boot(cloud, Hardware(disks=1), group)
    host.machine.run(_AS_INSTANCE_STORE)
    with pytest.raises(HostsError, match="gpu: nvidia-smi finds no usable GPU"):
        launch(cloud, host)
    mounted = host.machine.run("findmnt --noheadings --output FSTYPE,SOURCE,LABEL /mnt/nvme").split()
    cloud.power_off(host)
    assert mounted == ["xfs", "/dev/nvme0n1", "voice-store"]
    assert was_abandoned(cloud, host.instance)


def begin(cloud: Cloud, host: Host, snapshot: str, *, breaks: str = ":", instance: str | None = None) -> None:
    """Let a machine go on from a snapshot as a new instance, the newest of its group unless another is named."""
    cloud.reuse(host, snapshot, instance or cloud.launched(host.group))
    host.machine.run(breaks)
    host.machine.run(_BEGIN[snapshot])


@dataclass(frozen=True)
class Prepared:
    """A machine with its snapshots, and what it said until the last one."""

    host: Host
    lines: list[Line]


@pytest.fixture(scope="module")
def prepared(cloud: Cloud) -> Iterator[Prepared]:
    """Boot a host whose registry fails twice, and keep what it was on the way."""
    host = boot(cloud)
    host.machine.run(_HELD_BACK)
    host.machine.save(BOOTED)
    cloud.registry_refuses = 2
    host.machine.run(_BEGIN[BOOTED])
    for step in (RUNS_DOCKER, HAS_IMAGES):
        comes = partial(host.machine.said, f"voice-host: {step}")
        wait_until(f"it comes to {step}", comes, host, READY_S)
        host.machine.save(step)
    yield Prepared(host, host.machine.lines)
    cloud.power_off(host)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_host_that_cannot_boot_says_why(cloud: Cloud, prepared: Prepared, fault: Fault) -> None:
    host = prepared.host
    with fault.plant(cloud, host):
        begin(cloud, host, fault.snapshot, breaks=fault.breaks)
        with pytest.raises(
            HostsError, match="was abandoned: " if fault.is_told else "could not tell its group: "
        ) as raised:
            launch(cloud, host)
    assert fault.reason in str(raised.value)
    assert was_abandoned(cloud, host.instance) == fault.is_told


def test_a_registry_that_fails_twice_is_asked_again(prepared: Prepared) -> None:
    assert [line.text for line in prepared.lines if "try 2 of 5 failed" in line.text]


@dataclass(frozen=True)
class Interrupted:
    """What a host has been through that a spot notice ended.

    Attributes:
        asked_for: The instance that its fleet asked for while a call took its places.
        is_detached: Whether the XDP program was gone then.
    """

    lines: list[Line]
    asked_for: str
    is_detached: bool


@pytest.fixture(scope="module")
def interrupted(cloud: Cloud, prepared: Prepared) -> Interrupted:
    """Launch a host, let a call ask for another one, and give it a spot notice."""
    host = prepared.host
    begin(cloud, host, HAS_IMAGES)
    launch(cloud, host)
    there = cloud.instances(host.group)
    with Neighbours(cloud, cloud.folder) as neighbours:
        gateway = neighbours.start()
        balanced(cloud, host)
        asyncio.run(speak(gateway, meanwhile=lambda: wait_for_growth(cloud, host), times=LONG))
    (asked_for,) = cloud.instances(host.group).keys() - there
    interrupt(cloud, host)
    return Interrupted(host.machine.lines, asked_for, detached(host))


def test_a_host_drains_after_a_spot_notice(interrupted: Interrupted) -> None:
    assert [line.text for line in interrupted.lines if "voice-host: drained" in line.text]
    assert interrupted.is_detached


def test_a_host_that_an_alarm_asks_for_serves_and_does_so_after_a_reboot(
    cloud: Cloud, prepared: Prepared, interrupted: Interrupted
) -> None:
    host = prepared.host
    begin(cloud, host, HAS_IMAGES, instance=interrupted.asked_for)
    launch(cloud, host)
    assert cloud.instances(host.group)[interrupted.asked_for] == "InService"
    served_s = host.machine.age_s
    reboot(host)
    assert [claim.text for claim in vad_facts(cloud.deployment, host) if not claim.holds] == []
    assert not host.machine.said("installing", since_s=served_s)
