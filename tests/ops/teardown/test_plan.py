"""What `voice teardown` announces and refuses before anything is deleted."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import blueprint
from blueprint.file.model.aws import CapacityBlock, CapacityReservation
from ops.cli import app
from ops.cost.prices import price_book
from ops.teardown.azure import azure_order
from ops.teardown.plan import Kept, Plan, plan
from ops.teardown.remains import SNAPSHOT, Left, is_expected
from ops.teardown.removal import Resource
from tests.blueprint.documents import edited
from tests.synthesized import ROOT, shipped

SANDBOX = ROOT / "deployments/sandbox.yaml"
PRODUCTION = ROOT / "deployments/production-us-east-1.yaml"
AZURE = ROOT / "deployments/production-azure.yaml"
NAME = "production-us-east-1"

Sizes = dict[tuple[str, str], float]


@pytest.fixture(autouse=True)
def _nobody_is_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def voice_teardown(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["teardown", *map(str, arguments)])


def planned(name: str, sizes: Sizes | None = None) -> Plan:
    templates = {f"{name}-{tier}": stack.template for tier, stack in shipped(name).items()}
    return plan(templates, blueprint.load(ROOT / f"deployments/{name}.yaml").aws, price_book(), sizes)


def kept_of(found: Plan, kind: str) -> list[Kept]:
    return [each for each in found.kept if each.kind == kind]


def test_a_sandbox_keeps_nothing() -> None:
    found = planned("sandbox")
    assert found.kept == ()
    assert found.usd_per_month == 0
    assert found.deleted["sandbox-network"]["AWS::EC2::Subnet"] == 9


def test_production_keeps_keys_logs_images_and_a_snapshot_at_their_price() -> None:
    found = planned(NAME)
    assert [each.usd_per_month for each in kept_of(found, "AWS::KMS::Key")] == [1.0] * 8
    assert [each.usd_per_month for each in kept_of(found, "AWS::SecretsManager::Secret")] == [0.4] * 2
    assert found.usd_per_month == pytest.approx(8.8)
    assert len(kept_of(found, "AWS::ECR::Repository")) == 7
    assert len(kept_of(found, "snapshot of AWS::ElastiCache::ReplicationGroup")) == 1
    # The store itself goes, its snapshot stays; the state's own secrets go.
    assert found.deleted[f"{NAME}-state"]["AWS::ElastiCache::ReplicationGroup"] == 1
    assert found.deleted[f"{NAME}-state"]["AWS::SecretsManager::Secret"] == 5
    assert "AWS::KMS::Key" not in found.deleted[f"{NAME}-state"]


def test_what_is_charged_by_size_costs_its_size_once_that_is_known() -> None:
    artifacts, logs, _ = kept_of(planned(NAME), "AWS::S3::Bucket")
    assert (logs.usd, logs.usd_per_month) == (0.023, None)
    unknown, measured, _ = kept_of(planned(NAME, {(logs.stack, logs.name): 200.0}), "AWS::S3::Bucket")
    assert measured.usd_per_month == pytest.approx(4.6)
    assert unknown == artifacts


def test_reservations_outlive_the_fleet_that_used_them() -> None:
    half = blueprint.load(SANDBOX).aws
    purchases: list[Any] = [
        CapacityReservation(option="capacity-reservation", reservation_id="cr-0123456789abcdef0"),
        CapacityBlock(option="capacity-block", reservation_id="cr-0fedcba9876543210"),
    ]
    fleets = [fleet.model_copy(update={"purchase": bought}) for fleet, bought in zip(half.asr, purchases, strict=False)]
    found = plan({}, half.model_copy(update={"asr": tuple(fleets)}), price_book())
    assert [(each.name, each.usd_per_month) for each in found.kept] == [
        ("cr-0123456789abcdef0", None),
        ("cr-0fedcba9876543210", 0),
    ]


def test_production_is_refused_until_its_name_is_typed_back() -> None:
    result = voice_teardown(PRODUCTION, "--yes")
    assert result.exit_code == 2
    assert f"--name {NAME}" in result.stderr
    assert result.stdout == ""
    wrong = voice_teardown(PRODUCTION, "--name", "production")
    assert wrong.exit_code == 2
    assert "not production" in wrong.stderr
    assert voice_teardown(SANDBOX, "--name", "other").exit_code == 2


def test_what_is_protected_asks_for_its_name_too(tmp_path: Path) -> None:
    protected = tmp_path / "protected.yaml"
    protected.write_text(edited({"aws.deletion_protection": True}, SANDBOX.read_text()))
    result = voice_teardown(protected, "--yes")
    assert (result.exit_code, "sandbox is protected: type its name back" in result.stderr) == (2, True)


def test_without_credentials_a_dry_run_shows_the_file_and_a_real_one_stops() -> None:
    dry = voice_teardown(PRODUCTION, "--dry-run", "--json")
    report = json.loads(dry.stdout)
    assert dry.exit_code == 0
    assert "no account was asked" in dry.stderr
    assert report["aws"]["deployed"] is False
    assert report["aws"]["kept_usd_per_month"] == pytest.approx(8.8)
    real = voice_teardown(PRODUCTION, "--name", NAME)
    assert real.exit_code == 1
    assert "credentials" in real.stderr
    assert "Traceback" not in real.output


def test_azure_is_left_to_the_pulumi_cli_in_an_order_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = azure_order(blueprint.load(AZURE))
    monkeypatch.setattr("ops.teardown.command.azure_order", lambda _: found)
    dry = voice_teardown(AZURE, "--dry-run", "--json")
    order = json.loads(dry.stdout)["azure"]
    assert dry.exit_code == 0
    first, second = order["commands"]
    assert "stacks/azure/workloads destroy" in first
    assert "stacks/azure/cluster destroy" in second
    assert {entry["why"] for entry in order["kept"]} & {"protected"}
    real = voice_teardown(AZURE, "--name", "production-azure")
    assert real.exit_code == 1  # it is still there
    assert "pulumi -C" in real.stdout


KEY = Resource("p-edge", "Key", "3648cf9f", "AWS::KMS::Key", kept=True)
LOGS = Resource("p-edge", "Logs", "/voice/p/gateway", "AWS::Logs::LogGroup", kept=True)
SECRET = Resource("p-state", "Secret", "arn:aws:secretsmanager:r:1:secret:s", "AWS::SecretsManager::Secret", kept=False)
KINDS = {"AWS::KMS::Key", "AWS::Logs::LogGroup"}


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (Left("kms key", "arn:aws:kms:us-east-1:1:key/3648cf9f", "us-east-1"), True),
        (Left("kms key", "arn:aws:kms:us-east-1:1:key/another", "us-east-1"), False),
        (Left("logs log-group", "arn:aws:logs:us-east-1:1:log-group:/voice/p/gateway:*", "us-east-1"), True),
        (Left("logs log-group", "/voice/p/gateway", "us-east-1"), True),
        (Left("logs log-group", "/voice/p/gateway-2", "us-east-1"), False),
        (Left("ecr repository", "voice/p/gateway", "us-east-1"), False),
        (Left("ecr repository", "arn:aws:ecr:us-east-1:1:repository//voice/p/gateway", "us-east-1"), False),
        (Left("secretsmanager secret", SECRET.physical_id, "us-east-1"), False),
        (Left(SNAPSHOT, "p-state-final", "us-east-1"), False),
    ],
)
def test_only_what_was_announced_may_be_left(left: Left, expected: bool) -> None:
    assert is_expected(left, [KEY, LOGS, SECRET], KINDS) is expected


def test_a_snapshot_is_expected_of_a_store_that_takes_one() -> None:
    left = Left(SNAPSHOT, "p-state-final", "us-east-1")
    assert is_expected(left, [KEY], KINDS | {"AWS::ElastiCache::ReplicationGroup"})


def test_after_the_stacks_only_the_kinds_that_they_keep_are_expected() -> None:
    assert is_expected(Left("kms key", "arn:aws:kms:us-east-1:1:key/x", "us-east-1"), [], KINDS)
    assert not is_expected(Left("ec2 natgateway", "arn:aws:ec2:us-east-1:1:natgateway/x", "us-east-1"), [], KINDS)
