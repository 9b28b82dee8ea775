"""What befalls a VAD host besides `make rehearse-hosts`: what keeps it from booting, a spot notice, a reboot.

A host that cannot boot is abandoned, and the rehearsal says why in the host's own words. Faults of hardware have a
machine each. For all else one machine boots once: what follows begins at a snapshot of it, as the next instance of its
group.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
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
from sandbox.hosts.rehearsal import balanced, detached, interrupt, launch, reboot, wait_for_growth

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
BOOTED = "booted"
"""Snapshot of a machine whose user data has not begun."""
SERVED = "served"
"""Snapshot of the same machine after it has served: the images are there."""
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
    SERVED: "systemd-run --no-block bash /var/lib/cloud/instance/scripts/part-001",
}
"""What starts the user data after each snapshot."""
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
    "registry silent": Fault(BOOTED, "images: cannot log in to 123456789012.dkr.ecr", registry_silent),
    "image gone": Fault(BOOTED, "images: cannot pull 123456789012.dkr.ecr", image_gone),
    "no route": Fault(
        BOOTED,
        "images: cannot log in to 123456789012.dkr.ecr",
        route_lost,
        breaks="networkctl reconfigure ens5",
        is_told=False,
    ),
    "secret gone": Fault(SERVED, "state_secret: cannot read password of arn:aws:secretsmanager", secret_gone),
    "no container runtime": Fault(SERVED, "serve: vad-dataplane cannot be started", breaks="mv /usr/sbin/runc /root"),
    "health never green": Fault(
        SERVED,
        "serve: not ready after 900 s: vad-dataplane",
        breaks="iptables --append INPUT --protocol tcp --dport 8081 --jump REJECT --reject-with tcp-reset",
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


@pytest.fixture(scope="module")
def booted(cloud: Cloud) -> Iterator[Host]:
    host = boot(cloud)
    host.machine.run(_HELD_BACK)
    host.machine.save(BOOTED)
    yield host
    cloud.power_off(host)


def begin(cloud: Cloud, host: Host, snapshot: str, breaks: str = ":") -> None:
    """Let a machine run its user data as a new instance."""
    cloud.reuse(host, snapshot)
    host.machine.run(breaks)
    host.machine.run(_BEGIN[snapshot])


@dataclass(frozen=True)
class Served:
    """A machine that has served, and what it has been through.

    Attributes:
        lines: Of its console.
        asked_for: The instance that its fleet asked for while a call took its places.
        is_detached: Whether the XDP program was gone when a spot notice had drained the host.
    """

    host: Host
    lines: list[Line]
    asked_for: str
    is_detached: bool


@pytest.fixture(scope="module")
def served(cloud: Cloud, booted: Host) -> Served:
    """Launch a host whose registry fails twice, let a call ask for another one, and give it a spot notice."""
    begin(cloud, booted, BOOTED)
    cloud.registry_refuses = 2
    launch(cloud, booted)
    there = cloud.instances(booted.group)
    with Neighbours(cloud, cloud.folder) as neighbours:
        gateway = neighbours.start()
        balanced(cloud, booted)
        asyncio.run(speak(gateway, meanwhile=lambda: wait_for_growth(cloud, booted), times=LONG))
    (asked_for,) = cloud.instances(booted.group).keys() - there
    interrupt(cloud, booted)
    is_detached = detached(booted)
    booted.machine.run("while systemctl is-active voice-host; do sleep 1; done")
    booted.machine.save(SERVED)
    return Served(booted, booted.machine.lines, asked_for, is_detached)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_host_that_cannot_boot_says_why(cloud: Cloud, fault: Fault, request: pytest.FixtureRequest) -> None:
    host: Host = request.getfixturevalue("booted")
    if fault.snapshot == SERVED:
        request.getfixturevalue("served")
    with fault.plant(cloud, host):
        begin(cloud, host, fault.snapshot, fault.breaks)
        with pytest.raises(
            HostsError, match="was abandoned: " if fault.is_told else "could not tell its group: "
        ) as raised:
            launch(cloud, host)
    assert fault.reason in str(raised.value)
    assert was_abandoned(cloud, host.instance) == fault.is_told


def test_a_registry_that_fails_twice_is_asked_again(served: Served) -> None:
    assert [line.text for line in served.lines if "try 2 of 5 failed" in line.text]


def test_a_host_drains_after_a_spot_notice(served: Served) -> None:
    assert [line.text for line in served.lines if "voice-host: drained" in line.text]
    assert served.is_detached


def test_a_host_that_an_alarm_asks_for_serves_and_does_so_after_a_reboot(cloud: Cloud, served: Served) -> None:
    host = served.host
    begin(cloud, host, SERVED)
    assert host.instance == served.asked_for
    launch(cloud, host)
    served_s = host.machine.age_s
    reboot(host)
    assert [claim.text for claim in vad_facts(cloud.deployment, host) if not claim.holds] == []
    assert not host.machine.said("installing", since_s=served_s)
