"""Resources outside the stacks that `voice teardown` removes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

import voice_blueprint
from tests.synthesized import ROOT
from voice_ops.aws.account import Account
from voice_ops.aws.deletion import DeletionError
from voice_ops.rollout.resume import load_rollout, record_rollout_start
from voice_ops.teardown import external_resources, remaining_resources, removal
from voice_ops.teardown.removal import Resource

SANDBOX = voice_blueprint.load(ROOT / "tests/deployments/sandbox.yaml")
TAGS = [{"Key": "voice-serve:deployment", "Value": "sandbox"}]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    monkeypatch.setattr(external_resources, "POLL_INTERVAL_S", 0.0)
    with mock_aws():
        yield Account(SANDBOX, {}, boto3.Session("key", "secret", region_name="us-east-1"))


def launch(account: Account, *tags: dict[str, str]) -> str:
    client: Any = account.session.client("ec2")
    asked = [{"ResourceType": "instance", "Tags": list(tags)}] if tags else []
    made = client.run_instances(ImageId="ami-0abc", MinCount=1, MaxCount=1, TagSpecifications=asked)
    return str(made["Instances"][0]["InstanceId"])


def test_only_hosts_of_jobs_are_terminated(account: Account) -> None:
    job = launch(account, *TAGS)
    hosts = [
        launch(account, *TAGS, {"Key": "aws:autoscaling:groupName", "Value": "sandbox-p5"}),
        launch(account, {"Key": "voice-serve:deployment", "Value": "sandbox-2"}),
        launch(account),
    ]
    told: list[str] = []
    external_resources.terminate_job_hosts(account, told.append)
    client: Any = account.session.client("ec2")
    found = client.describe_instances()["Reservations"]
    states = {each["InstanceId"]: each["State"]["Name"] for made in found for each in made["Instances"]}
    assert states == {job: "terminated", **dict.fromkeys(hosts, "running")}
    assert [line.split(":")[0] for line in told] == [f"terminate {job}"]


def test_logs_created_by_services_are_deleted_with_their_resource(account: Account) -> None:
    logs: Any = account.session.client("logs")
    own = ["/aws/ecs/containerinsights/sandbox-edge-Cluster1-x7/performance", "/aws/imagebuilder/sandbox-vad-0a1b2c3d"]
    others = [
        "/aws/ecs/containerinsights/sandbox-edge-2-Cluster1-x7/performance",
        "/aws/imagebuilder/sandbox-p5-0a1b2c3d",
        "/voice/sandbox/gateway",
    ]
    for name in own + others:
        logs.create_log_group(logGroupName=name)
    cluster = {"Type": "AWS::ECS::Cluster", "Properties": {}}
    recipe = {"Type": "AWS::ImageBuilder::ImageRecipe", "Properties": {"Name": "sandbox-vad-0a1b2c3d"}}
    made = {
        "sandbox-edge": {"Resources": {"Cluster1": cluster}},
        "sandbox-host-images": {"Resources": {"Recipe": recipe}},
    }
    external_resources.delete_log_groups(account, made)
    assert sorted(each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]) == sorted(others)


def test_machine_images_are_retained_and_listed(account: Account) -> None:
    client: Any = account.session.client("ec2")
    image = client.register_image(Name="baked", RootDeviceName="/dev/xvda")["ImageId"]
    client.create_tags(Resources=[image], Tags=[*TAGS, {"Key": "voice-serve:fleet", "Value": "vad"}])
    client.register_image(Name="of-another", RootDeviceName="/dev/xvda")
    (kept,) = external_resources.find_machine_images(account)
    assert (kept.name, kept.kind) == (image, "machine image")
    assert kept.why.startswith("baked for vad; `aws ec2 deregister-image")


def test_already_deleted_resources_are_skipped(account: Account) -> None:
    """An earlier teardown was interrupted while CloudFormation continued, so the list of resources is outdated."""
    arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/gone/0"
    gone = [
        Resource("sandbox-edge", "Logs", "gone-bucket", "AWS::S3::Bucket", is_retained=False),
        Resource("sandbox-edge", "Balancer", arn, "AWS::ElasticLoadBalancingV2::LoadBalancer", is_retained=False),
    ]
    assert removal.empty_log_buckets(account, gone) == 0
    removal.disable_deletion_protection(account, [], gone)


class UpdatingStacks:
    """Fake CloudFormation with stacks in update: each call returns the next state."""

    def __init__(self, session: boto3.Session, *looks: dict[str, str]) -> None:
        self.session, self._looks, self.cancelled = self, iter(looks), list[str]()
        self._ssm = session.client("ssm")
        self.deployment = SANDBOX
        self.templates: dict[str, dict[str, Any]] = {}

    def client(self, service: str) -> Any:  # noqa: ANN401
        return self._ssm if service == "ssm" else SimpleNamespace(cancel_update_stack=self._cancel)

    def _cancel(self, *, StackName: str) -> None:  # noqa: N803
        self.cancelled.append(StackName)

    def fetch_stack_statuses(self) -> dict[str, str]:
        return next(self._looks)


def test_a_running_rollout_is_cancelled_and_rolled_back_first(account: Account) -> None:
    rolling = UpdatingStacks(
        account.session,
        {"sandbox-vad": "UPDATE_IN_PROGRESS", "sandbox-asr": "CREATE_IN_PROGRESS"},
        {"sandbox-vad": "UPDATE_ROLLBACK_IN_PROGRESS", "sandbox-asr": "CREATE_COMPLETE"},
        {"sandbox-vad": "UPDATE_ROLLBACK_COMPLETE", "sandbox-asr": "CREATE_COMPLETE"},
    )
    as_account, told = cast("Account", rolling), list[str]()
    record_rollout_start(as_account, "one two", datetime(2026, 11, 26, tzinfo=UTC))
    external_resources.cancel_rollout(as_account, told.append)
    assert load_rollout(as_account) is None
    assert rolling.cancelled == ["sandbox-vad"]
    assert "the rollout one two is cancelled" in told[0]
    assert told[1] == "sandbox-vad is UPDATE_IN_PROGRESS: waiting at most 2 h for its end"
    assert len(told) == 2


def test_an_update_that_does_not_end_is_reported(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_resources, "MAX_UPDATE_WAIT_S", -1.0)
    rolling = cast("Account", UpdatingStacks(account.session, {"sandbox-vad": "UPDATE_ROLLBACK_IN_PROGRESS"}))
    with pytest.raises(DeletionError, match=r"sandbox-vad is UPDATE_ROLLBACK_IN_PROGRESS after 0 s \(limit: -1 s\)"):
        external_resources.cancel_rollout(rolling, lambda _: None)


def test_without_a_rollout_nothing_is_changed(account: Account) -> None:
    external_resources.cancel_rollout(cast("Account", UpdatingStacks(account.session, {})), lambda _: None)
    with pytest.raises(ClientError, match="ParameterNotFound"):
        account.session.client("ssm").get_parameter(Name="/voice/sandbox/rollout")


def test_a_log_group_of_an_earlier_api_is_retained(account: Account) -> None:
    """Its name ends with the stage's name, which is the complete id of the present API's stage."""
    name = "API-Gateway-Execution-Logs_{}/live"
    logs: Any = account.session.client("logs")
    for api in ("earlier", "present"):
        logs.create_log_group(logGroupName=name.format(api), tags={each["Key"]: each["Value"] for each in TAGS})
    resources = [
        Resource("edge", "Stage", "live", "AWS::ApiGateway::Stage", is_retained=False),
        Resource("edge", "Log", name.format("present"), "AWS::Logs::LogGroup", is_retained=True),
    ]
    (kept,) = remaining_resources.find_earlier_retained_resources(account, resources, {"AWS::Logs::LogGroup"})
    assert kept.has_id(name.format("earlier"))
