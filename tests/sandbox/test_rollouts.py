"""Changes of a fleet that serves, on the local AWS by the real CDK: images, an alarm that takes them back, the AMI."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

import blueprint
from blueprint import Deployment
from blueprint.aws.rollouts import guards
from blueprint.contract.network import Tier
from ops.cli import app
from ops.rollout import command, follow, plan
from ops.rotate import passwords
from sandbox.aws.cdk import ROOT, Cdk, CdkError
from sandbox.aws.rehearsal import Rehearsal
from tests.blueprint.documents import Edits, edited, load_text

if TYPE_CHECKING:
    from pathlib import Path

    from types_boto3_autoscaling import AutoScalingClient

FILE = ROOT / "deployments/sandbox.yaml"
GROUP, STACK = "sandbox-inf2", "sandbox-asr-inf2"
BENEATH = ("sandbox-network", "sandbox-registry", "sandbox-state", "sandbox-asr")
NEW, BAD = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"

pytestmark = [pytest.mark.sandbox]


class Fleet:
    """A fleet with a warm pool in an account of its own."""

    def __init__(self, rehearsal: Rehearsal, folder: Path) -> None:
        self.rehearsal, self._folder = rehearsal, folder

    def file(self, edits: Edits) -> Deployment:
        return load_text(edited(edits, FILE.read_text()), self._folder)

    def deploy(self, edits: Edits, *stacks: str) -> None:
        cdk = Cdk(self.rehearsal.aws, self.file(edits), self.rehearsal.home)
        cdk.synthesize()
        for stack in stacks:
            cdk.deploy_one(stack)

    @property
    def autoscaling(self) -> AutoScalingClient:
        return self.rehearsal.session.client("autoscaling", endpoint_url=self.rehearsal.aws.endpoint)

    def hosts(self) -> dict[str, tuple[str, str]]:
        """Return machine image and user data of the hosts in service and in the warm pool."""
        ec2 = self.rehearsal.session.client("ec2", endpoint_url=self.rehearsal.aws.endpoint)
        (group,) = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
        pool = self.autoscaling.describe_warm_pool(AutoScalingGroupName=GROUP)["Instances"]
        found = {}
        for host in [*group["Instances"], *pool]:
            name = host["InstanceId"]
            instance = ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
            script = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
            found[name] = (instance["ImageId"], base64.b64decode(script).decode())
        return found

    def status(self) -> str:
        client = self.rehearsal.session.client("cloudformation", endpoint_url=self.rehearsal.aws.endpoint)
        return client.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]


@pytest.fixture(autouse=True)
def _signed_in(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in the environment of somebody who is signed in there."""
    for name, value in fleet.rehearsal.aws.environment(fleet.rehearsal.home).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The fleet and what it needs, with its alarms; tests run in the order they are written in."""
    deployment = blueprint.load(FILE)
    with Rehearsal(deployment) as running:
        running.bootstrap()
        cloudwatch = running.session.client("cloudwatch", endpoint_url=running.aws.endpoint)
        for name in guards(deployment, Tier.ASR, "inf2"):
            cloudwatch.put_metric_alarm(
                AlarmName=name, MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
                Threshold=1, ComparisonOperator="GreaterThanThreshold",
            )  # fmt: skip
        made = Fleet(running, tmp_path_factory.mktemp("rollouts"))
        made.deploy({"aws.state.engine_version": "7.2"}, *BENEATH, STACK)
        yield made


def test_a_new_image_replaces_every_host_of_group_and_warm_pool(fleet: Fleet) -> None:
    before = fleet.hosts()
    assert len(before) == 2
    fleet.deploy({"images.asr-neuron": NEW}, STACK)
    after = fleet.hosts()
    assert len(after) == 2
    assert after.keys() & before.keys() == set()
    assert all(NEW in script for _, script in after.values())


def test_an_alarm_takes_a_rollout_back(fleet: Fleet) -> None:
    cloudwatch = fleet.rehearsal.session.client("cloudwatch", endpoint_url=fleet.rehearsal.aws.endpoint)
    alarm = "sandbox-alert-realtime-factor-high-inf2"
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a drill")
    with pytest.raises(CdkError, match=alarm):
        fleet.deploy({"images.asr-neuron": BAD}, STACK)
    assert fleet.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert len(fleet.hosts()) == 2
    assert all(NEW in script for _, script in fleet.hosts().values())
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="over")


def test_another_machine_image_reaches_every_host(fleet: Fleet) -> None:
    ec2 = fleet.rehearsal.session.client("ec2", endpoint_url=fleet.rehearsal.aws.endpoint)
    image = ec2.register_image(Name="baked", RootDeviceName="/dev/xvda")["ImageId"]
    fleet.deploy({"images.asr-neuron": NEW, "aws.asr.0.machine_image": image}, STACK)
    assert {booted for booted, _ in fleet.hosts().values()} == {image}


def test_rollout_says_what_a_deploy_replaces_and_a_bad_probe_takes_it_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image,) = {booted for booted, _ in fleet.hosts().values()}
    served = {"images.asr-neuron": NEW, "aws.asr.0.machine_image": image}
    file = fleet.file({**served, "images.asr-neuron": BAD, "aws.rollout": {"checkpoint_pause_s": 3600}}).source.file
    planned = json.loads(CliRunner().invoke(app, ["rollout", str(file), "--json"]).stdout)
    assert [(roll["group"], roll["hosts"], roll["changed"]) for roll in planned] == [(GROUP, 2, ["UserData"])]
    assert (planned[0]["more_vcpus"], planned[0]["room_vcpus"]) == (192, None)  # this AWS knows no EC2 quotas
    with monkeypatch.context() as short:
        short.setattr(plan, "vcpu_room", lambda *_, **__: 191)
        refused = CliRunner().invoke(app, ["rollout", str(file), "--deploy"])
    assert refused.exit_code == 1
    assert "192 vCPU more than run now, and the quota inf leaves 191" in " ".join(refused.output.split())

    monkeypatch.setattr(follow, "POLL_S", 0.5)
    monkeypatch.setattr(command, "_prober", lambda *_: lambda: "half of the words are wrong")
    result = CliRunner().invoke(app, ["rollout", str(file), "--deploy"])
    assert result.exit_code == 1, result.output
    assert "taken back: half of the words are wrong" in result.output
    assert fleet.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert all(NEW in script for _, script in fleet.hosts().values())
    nothing = CliRunner().invoke(app, ["rollout", str(fleet.file(served).source.file)])
    assert "replaces no host" in nothing.output


@pytest.mark.nightly
def test_the_data_path_goes_over_to_vfio_and_back_in_place(fleet: Fleet) -> None:
    """As docs/runbooks/procedures/patching.md says: the VAD tier, then the edge; back the same way."""
    session, endpoint = fleet.rehearsal.session, fleet.rehearsal.aws.endpoint
    elbv2 = session.client("elbv2", endpoint_url=endpoint)
    ec2 = session.client("ec2", endpoint_url=endpoint)
    cloudformation = session.client("cloudformation", endpoint_url=endpoint)
    cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
    for name in guards(fleet.file({}), Tier.VAD, "vad"):
        cloudwatch.put_metric_alarm(
            AlarmName=name, MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
            Threshold=1, ComparisonOperator="GreaterThanThreshold",
        )  # fmt: skip
    image = ec2.register_image(Name="with vfio", RootDeviceName="/dev/xvda")["ImageId"]
    af_xdp: Edits = {"aws.state.engine_version": "7.2"}
    vfio: Edits = {**af_xdp, "aws.vad.data_path.mode": "vfio", "aws.vad.machine_image": image}

    def resources() -> dict[str, str]:
        found = cloudformation.describe_stack_resources(StackName="sandbox-vad")["StackResources"]
        kinds = ("TargetGroup", "AutoScalingGroup", "LaunchTemplate")
        return {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in found if r["ResourceType"].endswith(kinds)}

    def reached() -> tuple[str, int]:
        """Return the kind of targets that get callers' packets, and how many Auto Scaling keeps in its own group."""
        groups = {each["TargetGroupArn"]: each for each in elbv2.describe_target_groups()["TargetGroups"]}
        rtp = {arn: each for arn, each in groups.items() if arn in resources().values()}
        (instances,) = (arn for arn, each in rtp.items() if each["TargetType"] == "instance")
        listeners = [
            listener
            for balancer in elbv2.describe_load_balancers()["LoadBalancers"]
            for listener in elbv2.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
        ]
        (used,) = (each["DefaultActions"][0]["TargetGroupArn"] for each in listeners if each["Port"] == 5004)
        serving = elbv2.describe_target_health(TargetGroupArn=instances)["TargetHealthDescriptions"]
        return rtp[used]["TargetType"], len(serving)

    fleet.deploy(af_xdp, "sandbox-vad", "sandbox-edge")
    deployed = resources()
    assert reached() == ("instance", 3)
    fleet.deploy(vfio, "sandbox-vad")
    assert reached() == ("instance", 3)  # nobody is taken from callers before the edge goes over
    fleet.deploy(vfio, "sandbox-edge")
    assert reached()[0] == "ip"
    fleet.deploy(af_xdp, "sandbox-vad")
    assert reached()[0] == "ip"
    fleet.deploy(af_xdp, "sandbox-edge")
    assert reached() == ("instance", 3)
    assert resources() == deployed


def test_passwords_rotate_in_two_steps(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    elasticache = fleet.rehearsal.session.client("elasticache", endpoint_url=fleet.rehearsal.aws.endpoint)

    def counts() -> dict[str, int]:
        users = elasticache.describe_users()["Users"]
        return {user["UserName"]: user["Authentication"].get("PasswordCount", 0) for user in users}  # default has none

    def rotated() -> Result:
        return CliRunner().invoke(app, ["rotate", str(FILE)])

    tiers = ("gateway", "vad", "asr")
    assert "begun for 3 users" in rotated().output
    assert [counts()[tier] for tier in tiers] == [2, 2, 2]
    early = rotated()
    assert (early.exit_code, "run this again after" in early.output) == (1, True)
    monkeypatch.setattr(passwords, "SETTLES", timedelta())
    assert "ended for 3 users" in rotated().output
    assert [counts()[tier] for tier in tiers] == [1, 1, 1]


def test_valkey_is_upgraded_in_place(fleet: Fleet) -> None:
    elasticache = fleet.rehearsal.session.client("elasticache", endpoint_url=fleet.rehearsal.aws.endpoint)

    def found() -> tuple[str, str, str]:
        (group,) = elasticache.describe_replication_groups()["ReplicationGroups"]
        (node, *_) = elasticache.describe_cache_clusters()["CacheClusters"]
        name = node["CacheParameterGroup"]["CacheParameterGroupName"]
        (parameters,) = elasticache.describe_cache_parameter_groups(CacheParameterGroupName=name)[
            "CacheParameterGroups"
        ]
        return group["ReplicationGroupId"], node["EngineVersion"], parameters["CacheParameterGroupFamily"]

    assert found() == ("sandbox-state", "7.2", "valkey7")
    fleet.deploy({"aws.state.engine_version": "8.1"}, "sandbox-state")
    assert found() == ("sandbox-state", "8.1", "valkey8")
