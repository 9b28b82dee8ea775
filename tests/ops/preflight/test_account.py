"""Preflight checks of images, AMIs, reservations and the state store; each test breaks one precondition."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response
from moto.elasticache.responses import ElastiCacheResponse

from tests.blueprint.documents import ABSENT, BASE, Edits, parse_yaml
from tests.ops.preflight.conftest import REGION, AwsAccount, load_edited, push
from voice_blueprint import Deployment
from voice_blueprint.aws import names
from voice_ops.preflight.report import CheckStatus

RESERVATION = {"option": "capacity-reservation", "reservation_id": "cr-0123456789abcdef0"}
RESERVATION_REQUEST: dict[str, str | int] = {
    "InstanceType": "inf2.48xlarge",
    "AvailabilityZone": "us-east-1b",
    "State": "active",
    "TotalInstanceCount": 4,
    "ReservationType": "default",
}


# --- container images -----------------------------------------------------------------------------------------


def test_a_digest_that_was_never_pushed_blocks(account: AwsAccount, tmp_path: Path) -> None:
    missing = f"sha256:{'9' * 64}"
    row = account.answer(load_edited({"images.gateway": missing}, tmp_path), "image gateway sha256:99999")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "sandbox/gateway in us-east-1 has no such digest")
    assert "voice images publish" in row.remedy


def test_a_registry_without_the_repository_blocks(account: AwsAccount, sandbox: Deployment) -> None:
    boto3.client("ecr").delete_repository(repositoryName="sandbox/gateway", force=True)
    row = account.answer(sandbox, "image gateway")
    assert (row.status, row.remedy[:25]) == (CheckStatus.BLOCKING, "deploy the stack registry")


def test_an_image_of_another_platform_blocks(account: AwsAccount, sandbox: Deployment) -> None:
    digest = next(value for image, value in sandbox.images.items() if image == "telemetry")
    push("sandbox", "telemetry", digest, "linux/arm64")
    row = account.answer(sandbox, "image telemetry")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "pushed, linux/arm64")
    assert "linux/amd64" in row.remedy


def test_an_unsigned_image_blocks_if_hosts_require_signatures(account: AwsAccount, tmp_path: Path) -> None:
    signing: Edits = {"image_signing": parse_yaml(BASE)["image_signing"]}
    deployment = load_edited(signing, tmp_path)
    row = account.answer(deployment, "image gateway")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "pushed, linux/amd64, linux/arm64, without a signature")
    digest = next(value for image, value in deployment.images.items() if image == "gateway")
    push("sandbox", "gateway", digest, "linux/arm64", signed=True)
    assert account.answer(deployment, "image gateway").result == "pushed, linux/arm64, signed"


# --- machine images -------------------------------------------------------------------------------------------


def ami(account: AwsAccount, architecture: str, gib: int = 30) -> str:
    """Register an AMI with a root volume size and an architecture, which moto does not store."""
    made = account.session.client("ec2").register_image(Name=f"{architecture}-{gib}", RootDeviceName="/dev/xvda")
    kept = ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[made["ImageId"]]
    kept.architecture, kept.root_device_name = architecture, "/dev/xvda"
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": gib, "SnapshotId": kept.ebs_snapshot.id}}
    kept.__class__ = type("Ami", (type(kept),), {"block_device_mappings": property(lambda _: [disk])})
    return made["ImageId"]


@pytest.mark.parametrize(("architecture", "status"), [("x86_64", CheckStatus.BLOCKING), ("arm64", CheckStatus.PASSED)])
def test_a_machine_image_of_another_architecture_blocks(
    account: AwsAccount, tmp_path: Path, architecture: str, status: CheckStatus
) -> None:
    image = ami(account, architecture)
    row = account.answer(load_edited({"aws.vad.machine_image": image}, tmp_path), f"machine image {image}")
    assert row.status is status, row
    assert f"{image}, {architecture}, available" in row.result


def test_types_of_parameters_are_described(account: AwsAccount, tmp_path: Path) -> None:
    image = ami(account, "arm64")
    account.session.client("ssm").put_parameter(Name="/voice/inf2", Value=image, Type="String")
    row = account.answer(load_edited({"aws.asr.0.machine_image": "/voice/inf2"}, tmp_path), "machine image /voice/inf2")
    assert (row.status, row.remedy) == (
        CheckStatus.BLOCKING,
        "the hosts of inf2 are x86_64: specify an image for x86_64",
    )


@pytest.mark.parametrize(("gib", "status"), [(41, CheckStatus.BLOCKING), (40, CheckStatus.PASSED)])
def test_a_root_volume_smaller_than_the_snapshot_blocks(
    account: AwsAccount, tmp_path: Path, gib: int, status: CheckStatus
) -> None:
    image = ami(account, "arm64", gib)
    row = account.answer(load_edited({"aws.vad.machine_image": image}, tmp_path), f"machine image {image}")
    assert row.status is status, row
    assert (f"set root_volume_gib of vad to {gib} or more" in row.remedy) == (status is CheckStatus.BLOCKING)


# --- reservations ---------------------------------------------------------------------------------------------


def reserve(monkeypatch: pytest.MonkeyPatch, **held: str | int) -> None:
    """Add capacity reservations to EC2, which moto does not support: one, or none without arguments."""
    found = [held] if held else []
    monkeypatch.setattr(
        EC2Response,
        "describe_capacity_reservations",
        lambda _: ActionResult({"CapacityReservations": found}),
        raising=False,
    )


def with_reservation(tmp_path: Path, zone: str = "us-east-1b", **purchase: str) -> Deployment:
    edits: Edits = {
        "aws.asr.0.purchase": {**RESERVATION, **purchase},
        "aws.asr.0.availability_zones": [zone],
        "aws.asr.0.warm_pool": ABSENT,
    }
    return load_edited(edits, tmp_path)


@pytest.mark.parametrize(
    ("reservation", "status", "message"),
    [
        ({}, CheckStatus.PASSED, ""),
        ({"AvailabilityZone": "us-east-1a"}, CheckStatus.BLOCKING, "availability_zones of inf2 to [us-east-1a]"),
        ({"InstanceType": "inf2.24xlarge"}, CheckStatus.BLOCKING, "it is for inf2.24xlarge"),
        ({"State": "expired"}, CheckStatus.BLOCKING, "it is expired"),
        ({"TotalInstanceCount": 0}, CheckStatus.BLOCKING, "it has 0 of the minimum of 1 hosts"),
        ({"TotalInstanceCount": 3}, CheckStatus.WARNING, "set hosts.max to 3"),
        ({"ReservationType": "capacity-block"}, CheckStatus.BLOCKING, "purchase.option to capacity-block"),
    ],
)
def test_a_reservation_is_compared_with_the_fleet(  # noqa: PLR0917  fixtures and parameters
    account: AwsAccount,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reservation: dict[str, str | int],
    status: CheckStatus,
    message: str,
) -> None:
    reserve(monkeypatch, **RESERVATION_REQUEST | reservation)
    row = account.answer(with_reservation(tmp_path), "reservation cr-")
    assert row.status is status, row
    assert message in row.remedy


def test_a_reservation_that_does_not_exist_blocks(
    account: AwsAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(monkeypatch)
    row = account.answer(with_reservation(tmp_path), "reservation cr-")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "it does not exist in us-east-1")


# --- the store ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "status"),
    [
        ("8.1", CheckStatus.PASSED),
        ("7.2", CheckStatus.PASSED),
        ("8.2", CheckStatus.BLOCKING),
        ("9.0", CheckStatus.BLOCKING),
    ],
)
def test_a_store_with_a_newer_engine_version_than_the_file_blocks(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch, running: str, status: CheckStatus
) -> None:
    stack = names.build_stack_name(sandbox, "state")
    monkeypatch.setattr("voice_ops.aws.account.Account.fetch_stack_statuses", lambda _: {stack: "CREATE_COMPLETE"})
    monkeypatch.setattr("voice_ops.aws.account.Account.fetch_physical_ids", lambda *_: {"Store": "sandbox-state"})
    member = {"CacheClusterId": "a-001", "ReplicationGroupId": "sandbox-state", "EngineVersion": running}
    other = {"CacheClusterId": "b-001", "ReplicationGroupId": "of-others", "EngineVersion": "9.9"}
    answered = ActionResult({"CacheClusters": [member, other]})
    monkeypatch.setattr(ElastiCacheResponse, "describe_cache_clusters", lambda _: answered)
    row = account.answer(sandbox, "version of the state store")
    assert (row.status, row.result) == (status, f"Valkey {running}")
    assert (f"engine_version to {running}" in row.remedy) == (status is CheckStatus.BLOCKING)
