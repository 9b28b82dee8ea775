"""The real CDK changes a serving fleet on the local AWS: images, a rollback by an alarm, and the AMI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError
from redis import Redis
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import Edits
from tests.left_out import require
from tests.sandbox.fleet import Fleet
from voice_blueprint.contract.network import Tier
from voice_blueprint.observability.aws.rollouts import list_rollback_alarms
from voice_blueprint.shipped import ROOT
from voice_ops.cli import app
from voice_ops.rollout import aws as command
from voice_ops.rollout import follow, plan
from voice_ops.rotate import passwords
from voice_ops.sandbox.month import REDIS_SERVER_EXECUTABLE
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import CdkError

FILE = ROOT / "tests/deployments/sandbox.yaml"
GROUP, STACK = "sandbox-inf2", "sandbox-asr-inf2"
LOWER_STACKS = ("sandbox-network", "sandbox-registry", "sandbox-state", "sandbox-asr")
NEW, BAD = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"

pytestmark = [pytest.mark.sandbox]


@pytest.fixture(autouse=True)
def _signed_in(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in the environment of a signed-in user."""
    for name, value in fleet.rehearsal.aws.build_environment(fleet.rehearsal.home).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Deploy the fleet with its dependencies and alarms; tests run in order."""
    deployment = voice_blueprint.load(FILE)
    require(REDIS_SERVER_EXECUTABLE)
    with Rehearsal(deployment, real_stores=True) as running:
        running.bootstrap()
        cloudwatch = running.session.client("cloudwatch", endpoint_url=running.aws.endpoint)
        for name in list_rollback_alarms(deployment, Tier.ASR, "inf2"):
            cloudwatch.put_metric_alarm(
                AlarmName=name, MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
                Threshold=1, ComparisonOperator="GreaterThanThreshold",
            )  # fmt: skip
        made = Fleet(running, FILE, group=GROUP, stack=STACK, folder=tmp_path_factory.mktemp("rollouts"))
        made.deploy({"aws.state.engine_version": "7.2"}, *LOWER_STACKS, STACK)
        yield made


def test_new_images_replace_every_host_of_group_and_warm_pool(fleet: Fleet) -> None:
    """Changes a container image and an AMI together; the nightly rehearsal covers an AMI alone."""
    ec2 = fleet.rehearsal.session.client("ec2", endpoint_url=fleet.rehearsal.aws.endpoint)
    image = ec2.register_image(Name="baked", RootDeviceName="/dev/xvda")["ImageId"]
    before = fleet.hosts()
    assert len(before) == 2
    fleet.deploy({"images.asr-neuron": NEW, "aws.asr.0.machine_image": image}, STACK)
    after = fleet.hosts()
    assert len(after) == 2
    assert after.keys() & before.keys() == set()
    assert {booted for booted, _ in after.values()} == {image}
    assert all(NEW in script for _, script in after.values())


def test_an_alarm_rolls_back_a_rollout(fleet: Fleet) -> None:
    cloudwatch = fleet.rehearsal.session.client("cloudwatch", endpoint_url=fleet.rehearsal.aws.endpoint)
    alarm = "sandbox-alert-realtime-factor-high-inf2"
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a drill")
    (image,) = {booted for booted, _ in fleet.hosts().values()}
    with pytest.raises(CdkError, match=alarm):
        fleet.deploy({"images.asr-neuron": BAD, "aws.asr.0.machine_image": image}, STACK)
    assert fleet.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert len(fleet.hosts()) == 2
    assert all(NEW in script for _, script in fleet.hosts().values())
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="over")


def test_rollout_lists_replacements_and_a_failed_probe_rolls_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image,) = {booted for booted, _ in fleet.hosts().values()}
    served = {"images.asr-neuron": NEW, "aws.asr.0.machine_image": image}
    unprepared = fleet.file({**served, "aws.asr.0.artifacts": True}).source.file
    refused = CliRunner().invoke(app, ["rollout", str(unprepared), "--deploy"])
    assert refused.exit_code == 1
    assert "is not complete, so no new host of inf2 would start" in " ".join(refused.output.split())

    deployment = fleet.file({**served, "images.asr-neuron": BAD, "aws.rollout": {"checkpoint_pause_s": 3600}})
    file, settings = deployment.source.file, deployment.aws.asr[0]
    each_s = 2 * settings.warm_up_s + settings.drain_timeout_s
    planned = json.loads(CliRunner().invoke(app, ["rollout", str(file), "--json"]).stdout)["rolls"]
    assert [(roll["group"], roll["hosts"], roll["changed"]) for roll in planned] == [(GROUP, 2, ["UserData"])]
    assert (planned[0]["at_a_time"], planned[0]["longest_s"]) == (1, 2 * each_s + 3 * 3600 + 600)
    assert (planned[0]["more_vcpus"], planned[0]["room_vcpus"]) == (192, None)  # this AWS has no EC2 quotas
    with monkeypatch.context() as short:
        short.setattr(plan, "calculate_available_vcpus", lambda *_, **__: 191)
        refused = CliRunner().invoke(app, ["rollout", str(file), "--deploy"])
    assert refused.exit_code == 1
    assert "192 additional vCPU, but the quota inf has 191 left" in " ".join(refused.output.split())

    monkeypatch.setattr(follow, "POLL_INTERVAL_S", 0.5)
    monkeypatch.setattr(command, "create_probe", lambda *_: lambda: "half of the words are wrong")
    result = CliRunner().invoke(app, ["rollout", str(file), "--deploy"])
    assert result.exit_code == 1, result.output
    assert "rolled back: half of the words are wrong" in result.output
    assert fleet.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert all(NEW in script for _, script in fleet.hosts().values())
    nothing = CliRunner().invoke(app, ["rollout", str(fleet.file(served).source.file)])
    assert "replaces no host" in nothing.output


@pytest.mark.nightly
def test_vad_tier_and_edge_migrate_to_vfio_and_back(fleet: Fleet) -> None:
    """The commands of docs/runbooks/procedures/patching.md: no exported resource is replaced."""
    session, endpoint = fleet.rehearsal.session, fleet.rehearsal.aws.endpoint
    elbv2 = session.client("elbv2", endpoint_url=endpoint)
    ec2 = session.client("ec2", endpoint_url=endpoint)
    cloudformation = session.client("cloudformation", endpoint_url=endpoint)
    cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
    for name in list_rollback_alarms(fleet.file({}), Tier.VAD, "vad"):
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

    def registered_targets() -> tuple[str, int]:
        """Return the type of the targets of callers' packets, and the number registered by Auto Scaling."""
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
    assert registered_targets() == ("instance", 3)
    before = resources()
    fleet.deploy(vfio, "sandbox-vad")
    assert registered_targets() == ("instance", 3)  # all hosts serve callers until the edge is switched
    fleet.deploy(vfio, "sandbox-edge")
    assert registered_targets() == ("ip", 3)
    fleet.deploy(af_xdp, "sandbox-vad")
    assert registered_targets() == ("ip", 3)
    fleet.deploy(af_xdp, "sandbox-edge")
    assert registered_targets() == ("instance", 3)
    assert resources() == before


def test_passwords_rotate_in_two_steps(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    elasticache = fleet.rehearsal.session.client("elasticache", endpoint_url=fleet.rehearsal.aws.endpoint)

    def password_counts() -> dict[str, int]:
        users = elasticache.describe_users()["Users"]
        return {user["UserName"]: user["Authentication"].get("PasswordCount", 0) for user in users}  # default has none

    def rotate() -> Result:
        return CliRunner().invoke(app, ["rotate", str(FILE)])

    tiers = ("gateway", "vad", "asr", "agent")
    assert "started for 4 users" in rotate().output
    assert [password_counts()[tier] for tier in tiers] == [2, 2, 2, 2]
    early = rotate()
    assert (early.exit_code, "run this command again after" in " ".join(early.output.split())) == (1, True)
    monkeypatch.setattr(passwords, "PASSWORD_SETTLE_TIME", timedelta())
    assert "ended for 4 users" in rotate().output
    assert [password_counts()[tier] for tier in tiers] == [1, 1, 1, 1]


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
    with pytest.raises(ClientError, match=r"from 8\.1 to 7\.2: downgrades are not supported"):
        elasticache.modify_replication_group(ReplicationGroupId="sandbox-state", EngineVersion="7.2")


def test_a_store_is_restored_from_the_configured_snapshot_with_its_sessions(fleet: Fleet) -> None:
    """Hosts read the name of the new group from a parameter, so no host is replaced and no export changes."""
    hosts, home = fleet.hosts(), fleet.rehearsal.home

    def voice(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["restore", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout if "--json" in arguments else result.output

    with Redis(unix_socket_path=str(home / "sandbox-state.sock")) as store:
        store.hset("session:7", mapping={"state": "open"})
        taken = json.loads(voice(str(FILE), "--take", "before-the-loss", "--json"))["taken"]
        assert (taken["name"], taken["status"]) == ("before-the-loss", "available")
        store.flushall()
    images = {"images.asr-neuron": NEW, "aws.asr.0.machine_image": next(iter(hosts.values()))[0]}
    file = str(fleet.file({**images, "aws.state.restore_from": "before-the-loss"}).source.file)
    said = voice(file)
    assert "sandbox-state creates sandbox-state-" in said
    assert "lost is what was written to sandbox-state since" in said
    assert json.loads(voice(file, "--deploy", "--json"))["live"] == "sandbox-state"

    elasticache = fleet.rehearsal.session.client("elasticache", endpoint_url=fleet.rehearsal.aws.endpoint)
    ssm = fleet.rehearsal.session.client("ssm", endpoint_url=fleet.rehearsal.aws.endpoint)
    (group,) = elasticache.describe_replication_groups()["ReplicationGroups"]
    found = ssm.get_parameter(Name="/voice/sandbox/state-host")["Parameter"]["Value"]
    assert found == group["NodeGroups"][0]["PrimaryEndpoint"]["Address"]
    with Redis(unix_socket_path=str(home / f"{group['ReplicationGroupId']}.sock")) as store:
        assert store.hgetall("session:7") == {b"state": b"open"}
    assert fleet.hosts() == hosts
    assert "is already restored from before-the-loss" in voice(file)

    missing = CliRunner().invoke(app, ["restore", str(fleet.file({"aws.state.restore_from": "nothing"}).source.file)])
    assert (missing.exit_code, "available: before-the-loss" in missing.output) == (1, True)
