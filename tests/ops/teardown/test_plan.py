"""Output and refusals of `voice teardown` before any deletion."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import edit_document
from tests.synthesized import ROOT, shipped
from voice_blueprint.file.model.aws import CapacityBlock, CapacityReservation
from voice_ops.cli import app
from voice_ops.cost.prices import load_price_book
from voice_ops.teardown.azure import plan_azure_teardown
from voice_ops.teardown.plan import RetainedResource, TeardownPlan, plan_teardown
from voice_ops.teardown.remaining_resources import SNAPSHOT_KIND, RemainingResource, is_expected
from voice_ops.teardown.removal import Resource

SANDBOX = ROOT / "tests/deployments/sandbox.yaml"
PRODUCTION = ROOT / "tests/deployments/production-us-east-1.yaml"
AZURE = ROOT / "tests/deployments/production-azure.yaml"
NAME = "production-us-east-1"

Sizes = dict[tuple[str, str], float]


@pytest.fixture(autouse=True)
def _without_sign_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def voice_teardown(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["teardown", *map(str, arguments)])


def teardown_plan(name: str, sizes: Sizes | None = None) -> TeardownPlan:
    templates = {f"{name}-{tier}": stack.template for tier, stack in shipped(name).items()}
    return plan_teardown(
        templates, voice_blueprint.load(ROOT / f"tests/deployments/{name}.yaml").aws, load_price_book(), sizes
    )


def kept_resources(teardown: TeardownPlan, kind: str) -> list[RetainedResource]:
    return [each for each in teardown.kept if each.kind == kind]


def test_a_sandbox_retains_only_the_role_of_api_logs() -> None:
    """Other deployments in the account may use the role."""
    found = teardown_plan("sandbox")
    assert [each.kind for each in found.kept] == ["AWS::IAM::Role", "AWS::ApiGateway::Account"]
    assert found.usd_per_month == 0
    assert found.deleted["sandbox-network"]["AWS::EC2::Subnet"] == 9


def test_production_retains_keys_logs_images_and_a_snapshot_with_their_cost() -> None:
    found = teardown_plan(NAME)
    assert [each.usd_per_month for each in kept_resources(found, "AWS::KMS::Key")] == [1.0] * 9
    assert [each.usd_per_month for each in kept_resources(found, "AWS::SecretsManager::Secret")] == [0.4] * 2
    assert found.usd_per_month == pytest.approx(9.8)
    assert len(kept_resources(found, "AWS::ECR::Repository")) == 7
    assert len(kept_resources(found, "snapshot of AWS::ElastiCache::ReplicationGroup")) == 1
    # The store and its secrets are deleted, and a snapshot is retained.
    assert found.deleted[f"{NAME}-state"]["AWS::ElastiCache::ReplicationGroup"] == 1
    assert found.deleted[f"{NAME}-state"]["AWS::SecretsManager::Secret"] == 5
    assert "AWS::KMS::Key" not in found.deleted[f"{NAME}-state"]


def test_size_based_prices_use_the_measured_size() -> None:
    artifacts, logs, *_ = kept_resources(teardown_plan(NAME), "AWS::S3::Bucket")
    assert (logs.usd, logs.usd_per_month) == (0.023, None)
    unknown, measured, *_ = kept_resources(teardown_plan(NAME, {(logs.stack, logs.name): 200.0}), "AWS::S3::Bucket")
    assert measured.usd_per_month == pytest.approx(4.6)
    assert unknown == artifacts


def test_capacity_reservations_are_retained() -> None:
    half = voice_blueprint.load(SANDBOX).aws
    purchases: list[Any] = [
        CapacityReservation(option="capacity-reservation", reservation_id="cr-0123456789abcdef0"),
        CapacityBlock(option="capacity-block", reservation_id="cr-0fedcba9876543210"),
    ]
    fleets = [fleet.model_copy(update={"purchase": bought}) for fleet, bought in zip(half.asr, purchases, strict=False)]
    found = plan_teardown({}, half.model_copy(update={"asr": tuple(fleets)}), load_price_book())
    assert [(each.name, each.usd_per_month) for each in found.kept] == [
        ("cr-0123456789abcdef0", None),
        ("cr-0fedcba9876543210", 0),
    ]


def test_production_is_refused_until_its_name_is_confirmed() -> None:
    result = voice_teardown(PRODUCTION, "--yes")
    assert result.exit_code == 2
    assert f"--name {NAME}" in result.stderr
    assert result.stdout == ""
    wrong = voice_teardown(PRODUCTION, "--name", "production")
    assert wrong.exit_code == 2
    assert "not production" in wrong.stderr
    assert voice_teardown(SANDBOX, "--name", "other").exit_code == 2


def test_protected_deployments_require_their_name(tmp_path: Path) -> None:
    protected = tmp_path / "protected.yaml"
    protected.write_text(edit_document({"aws.deletion_protection": True}, SANDBOX.read_text()))
    result = voice_teardown(protected, "--yes")
    assert (result.exit_code, "sandbox is protected: confirm with" in result.stderr) == (2, True)


def test_without_credentials_a_dry_run_shows_the_file_and_a_real_one_stops() -> None:
    dry = voice_teardown(PRODUCTION, "--dry-run", "--json")
    report = json.loads(dry.stdout)
    assert dry.exit_code == 0
    assert "no account was checked" in dry.stderr
    assert report["aws"]["deployed"] is False
    assert report["aws"]["kept_usd_per_month"] == pytest.approx(9.8)
    real = voice_teardown(PRODUCTION, "--name", NAME)
    assert real.exit_code == 1
    assert "credentials" in real.stderr
    assert "Traceback" not in real.output


def test_azure_teardown_lists_pulumi_commands_in_a_valid_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan_azure_teardown(voice_blueprint.load(AZURE))
    monkeypatch.setattr("voice_ops.teardown.command.plan_azure_teardown", lambda _: found)
    dry = voice_teardown(AZURE, "--dry-run", "--json")
    order = json.loads(dry.stdout)["azure"]
    assert dry.exit_code == 0
    first, second = order["commands"]
    assert "stacks/voice_stacks/azure/workloads destroy" in first
    assert "stacks/voice_stacks/azure/cluster destroy" in second
    assert {entry["why"] for entry in order["kept"]} & {"protected"}
    real = voice_teardown(AZURE, "--name", "production-azure")
    assert real.exit_code == 1  # it still exists
    assert "pulumi -C" in real.stdout


KEY = Resource("p-edge", "Key", "3648cf9f", "AWS::KMS::Key", is_retained=True)
LOGS = Resource("p-edge", "Logs", "/voice/p/gateway", "AWS::Logs::LogGroup", is_retained=True)
SECRET = Resource(
    "p-state", "Secret", "arn:aws:secretsmanager:r:1:secret:s", "AWS::SecretsManager::Secret", is_retained=False
)
RETAINED_KINDS = {"AWS::KMS::Key", "AWS::Logs::LogGroup"}


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (RemainingResource("kms key", "arn:aws:kms:us-east-1:1:key/3648cf9f", "us-east-1"), True),
        (RemainingResource("kms key", "arn:aws:kms:us-east-1:1:key/another", "us-east-1"), False),
        (
            RemainingResource("logs log-group", "arn:aws:logs:us-east-1:1:log-group:/voice/p/gateway:*", "us-east-1"),
            True,
        ),
        (RemainingResource("logs log-group", "/voice/p/gateway", "us-east-1"), True),
        (RemainingResource("logs log-group", "/voice/p/gateway-2", "us-east-1"), False),
        (RemainingResource("ecr repository", "voice/p/gateway", "us-east-1"), False),
        (
            RemainingResource("ecr repository", "arn:aws:ecr:us-east-1:1:repository//voice/p/gateway", "us-east-1"),
            False,
        ),
        (RemainingResource("secretsmanager secret", SECRET.physical_id, "us-east-1"), False),
        (RemainingResource(SNAPSHOT_KIND, "p-state-final", "us-east-1"), False),
    ],
)
def test_only_announced_resources_may_remain(left: RemainingResource, expected: bool) -> None:
    assert is_expected(left, [KEY, LOGS, SECRET], set()) is expected


def test_a_final_snapshot_is_expected_if_the_store_creates_one() -> None:
    left = RemainingResource(SNAPSHOT_KIND, "p-state-final", "us-east-1")
    assert is_expected(left, [KEY], RETAINED_KINDS | {"AWS::ElastiCache::ReplicationGroup"})


def test_a_second_attempt_expects_retained_resources_of_already_deleted_stacks() -> None:
    of_the_first = RemainingResource("logs log-group", "/voice/p/vad", "us-east-1")
    assert not is_expected(of_the_first, [KEY], set())
    assert is_expected(of_the_first, [KEY], RETAINED_KINDS)


def test_after_the_stacks_only_retained_kinds_are_expected() -> None:
    assert is_expected(RemainingResource("kms key", "arn:aws:kms:us-east-1:1:key/x", "us-east-1"), [], RETAINED_KINDS)
    assert not is_expected(
        RemainingResource("ec2 natgateway", "arn:aws:ec2:us-east-1:1:natgateway/x", "us-east-1"), [], RETAINED_KINDS
    )
