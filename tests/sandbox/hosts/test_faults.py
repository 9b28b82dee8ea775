"""Hosts that cannot boot: each is abandoned, and the rehearsal says why in the host's own words.

A machine boots for each of them, some minutes long.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

import blueprint
from blueprint.aws import names
from ops.progress import Progress
from ops.sandbox.hosts import surroundings
from sandbox.hosts.cloud import Cloud, Host
from sandbox.hosts.disk import HostsError
from sandbox.hosts.machine import COMMON, Hardware
from sandbox.hosts.rehearsal import launch

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]
Plant = Callable[[Cloud], AbstractContextManager[None]]


@contextmanager
def image_gone(cloud: Cloud) -> Iterator[None]:
    (revisions,) = cloud.folder.glob("registry/**/telemetry/_manifests/revisions")
    aside = revisions.with_name("aside")
    revisions.rename(aside)
    yield
    aside.rename(revisions)


@contextmanager
def secret_gone(cloud: Cloud) -> Iterator[None]:
    client = cloud.aws.client("secretsmanager")
    (arn,) = [secret["ARN"] for secret in client.list_secrets()["SecretList"] if "StoreVad" in secret["Name"]]
    client.delete_secret(SecretId=arn, RecoveryWindowInDays=7)
    yield
    client.restore_secret(SecretId=arn)


@contextmanager
def registry_silent(cloud: Cloud) -> Iterator[None]:
    cloud.registry_refuses = 10**6
    yield
    cloud.registry_refuses = 0


@dataclass(frozen=True)
class Fault:
    """Something that keeps a host from service.

    Attributes:
        reason: A part of the one that the host must give.
        plant: What is wrong around it meanwhile.
        breaks: Command that breaks it from inside, before its user data run.
    """

    reason: str
    hardware: Hardware = COMMON
    route: bool = True
    plant: Plant = lambda _: nullcontext()
    breaks: str = ":"


FAULTS = {
    "too little memory": Fault("huge_pages: 1024 pages of 2 MiB are 2048 MiB", Hardware(memory_mib=2400)),
    "too few queues": Fault("af_xdp: ens5 has 1 queues for XDP", Hardware(queues=2)),
    "small frames": Fault("mtu: ens5 refuses an MTU of 3498", Hardware(mtu=1500)),
    "image gone": Fault("images: cannot pull 123456789012.dkr.ecr", plant=image_gone),
    "registry silent": Fault("images: cannot log in to 123456789012.dkr.ecr", plant=registry_silent),
    "secret gone": Fault("state_secret: cannot read password of arn:aws:secretsmanager", plant=secret_gone),
    "no route": Fault("images: cannot log in to 123456789012.dkr.ecr", route=False),
    "no AWS CLI": Fault("need aws awscli-2: cannot install awscli-2", breaks="mv /usr/bin/aws /root"),
    "no Docker": Fault("runtime: systemctl enable --now docker", breaks="systemctl mask docker"),
    "no container runtime": Fault("serve: vad-dataplane cannot be started", breaks="mv /usr/sbin/runc /root"),
    "health never green": Fault(
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


def boot(cloud: Cloud, hardware: Hardware = COMMON, *, route: bool = True) -> Host:
    """Switch on the host that a group waits for."""
    group = names.vad_groups(cloud.deployment)[0]
    return cloud.boot(cloud.launched(group), group, hardware, route=route)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_host_that_cannot_boot_says_why(cloud: Cloud, fault: Fault) -> None:
    with fault.plant(cloud):
        host = boot(cloud, fault.hardware, route=fault.route)
        host.machine.run(fault.breaks)
        with pytest.raises(HostsError) as raised:
            launch(cloud, host)
    cloud.power_off(host)
    assert fault.reason in str(raised.value)


def test_a_registry_that_fails_twice_is_asked_again(cloud: Cloud) -> None:
    cloud.registry_refuses = 2
    host = boot(cloud)
    launch(cloud, host)
    assert host.machine.said("try 2 of 5 failed")
    assert cloud.registry_refuses == 0
    cloud.power_off(host)
