"""Instance refreshes of the local Auto Scaling: replacements, pauses and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from voice_sandbox.aws.adapters.autoscaling import StallDetector
from voice_sandbox.aws.process import LocalAws

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient

GROUP = "rolled"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """Start a local AWS with groups without hooks, whose hosts serve immediately."""
    with LocalAws(tmp_path_factory.mktemp("refresh") / "aws.log", real_hosts=True) as running:
        data = {"ImageId": _image(running), "InstanceType": "c8g.large"}
        running.client("ec2").create_launch_template(LaunchTemplateName="host", LaunchTemplateData=data)
        running.client("ec2").create_launch_template_version(LaunchTemplateName="host", LaunchTemplateData=data)
        running.client("cloudwatch").put_metric_alarm(
            AlarmName="callers", MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
            Threshold=1, ComparisonOperator="GreaterThanThreshold",
        )  # fmt: skip
        yield running


def _image(local: LocalAws) -> str:
    name = "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id"
    return str(local.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])


@pytest.fixture
def client(local: LocalAws) -> Iterator[AutoScalingClient]:
    """Create a group of four hosts with the first template version, and return a client."""
    api = local.client("autoscaling")
    api.create_auto_scaling_group(
        AutoScalingGroupName=GROUP, MinSize=1, MaxSize=6, DesiredCapacity=4, AvailabilityZones=["us-east-1a"],
        LaunchTemplate={"LaunchTemplateName": "host", "Version": "1"},
        VPCZoneIdentifier=local.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"],
    )  # fmt: skip
    yield api
    api.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    local.client("cloudwatch").set_alarm_state(AlarmName="callers", StateValue="OK", StateReason="over")


@pytest.fixture
def roll(local: LocalAws, client: AutoScalingClient) -> Callable[..., None]:
    template = local.client("ec2").describe_launch_templates()["LaunchTemplates"][0]["LaunchTemplateId"]

    def start(**preferences: object) -> None:
        wanted: Any = {"LaunchTemplate": {"LaunchTemplateId": template, "Version": "2"}}
        bounds = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 125}
        chosen: Any = {"SkipMatching": True, **bounds, **preferences}
        client.start_instance_refresh(AutoScalingGroupName=GROUP, DesiredConfiguration=wanted, Preferences=chosen)

    return start


def states(client: AutoScalingClient) -> list[str]:
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    return [host["LifecycleState"] for host in group["Instances"]]


def progress(client: AutoScalingClient) -> dict[str, Any]:
    return dict(client.describe_instance_refreshes(AutoScalingGroupName=GROUP)["InstanceRefreshes"][0])


def ids(client: AutoScalingClient) -> set[str]:
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    return {host["InstanceId"] for host in group["Instances"]}


def test_every_host_is_replaced_without_reducing_capacity(client: AutoScalingClient, roll: Callable[..., None]) -> None:
    before = ids(client)
    roll()
    seen = []
    while progress(client)["Status"] == "InProgress":
        seen.append(states(client).count("InService"))
    assert (progress(client)["Status"], progress(client)["PercentageComplete"]) == ("Successful", 100)
    assert min(seen) >= 4
    assert max(seen) <= 5
    assert before & ids(client) == set()


def test_without_spare_capacity_hosts_are_terminated_first(
    client: AutoScalingClient, roll: Callable[..., None]
) -> None:
    roll(MinHealthyPercentage=75, MaxHealthyPercentage=100)
    seen = []
    while progress(client)["Status"] == "InProgress":
        seen.append(len(states(client)))
    assert max(seen) == 4
    assert progress(client)["Status"] == "Successful"


def test_a_checkpoint_pauses_the_refresh_while_the_group_scales(
    client: AutoScalingClient, roll: Callable[..., None]
) -> None:
    roll(CheckpointPercentages=[25, 100], CheckpointDelay=3600)
    while progress(client)["PercentageComplete"] < 25:
        pass
    client.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=6)
    assert states(client).count("InService") == 6
    assert (progress(client)["Status"], progress(client)["PercentageComplete"]) == ("InProgress", 25)
    client.cancel_instance_refresh(AutoScalingGroupName=GROUP)
    assert progress(client)["Status"] == "Cancelled"
    with pytest.raises(ClientError, match="ActiveInstanceRefreshNotFound"):
        client.cancel_instance_refresh(AutoScalingGroupName=GROUP)


def test_an_alarm_fails_the_refresh_and_new_hosts_have_the_old_version(
    local: LocalAws, client: AutoScalingClient, roll: Callable[..., None]
) -> None:
    roll(CheckpointPercentages=[25, 100], CheckpointDelay=3600, AlarmSpecification={"Alarms": ["callers"]})
    with pytest.raises(ClientError, match="InstanceRefreshInProgress"):
        roll()
    local.client("cloudwatch").set_alarm_state(AlarmName="callers", StateValue="ALARM", StateReason="a drill")
    assert progress(client)["Status"] == "Failed"
    assert "callers went into the ALARM state" in progress(client)["StatusReason"].replace("(s)", "")
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    assert group["LaunchTemplate"]["Version"] == "1"


def test_a_missing_alarm_is_ignored(client: AutoScalingClient, roll: Callable[..., None]) -> None:
    roll(AlarmSpecification={"Alarms": ["gone"]})
    assert progress(client)["Status"] == "Failed"


def test_waiting_for_a_group_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal of two regions once waited silently for ten minutes at a pause."""
    now = 0.0
    monkeypatch.setattr("voice_sandbox.aws.adapters.autoscaling.time.monotonic", lambda: now)
    progress = StallDetector("small-vad-a")
    for percent in (0, 0, 25, 25):
        progress.raise_if_stalled(percent, "waiting", 10.0, "set it to 0")
        now += 6.0
    now += 1.0
    with pytest.raises(ValueError, match=r"small-vad-a: waiting; nothing has changed for 13 s.*waits for 10 s: set it"):
        progress.raise_if_stalled(25, "waiting", 10.0, "set it to 0")
