"""Hosts in Auto Scaling groups: lifecycle hooks, replacements, and activities."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from voice_sandbox.aws.process import LocalAws

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient
    from types_boto3_autoscaling.type_defs import ActivityTypeDef

_numbers = itertools.count(1)
HOOKS = {"ready": "LAUNCHING", "drain": "TERMINATING"}
LIMIT_S = 60


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group with a launch and a termination hook."""

    client: AutoScalingClient
    name: str

    @property
    def states(self) -> dict[str, str]:
        """Return the lifecycle state of each host in the group."""
        (group,) = self.client.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])["AutoScalingGroups"]
        return {host["InstanceId"]: host["LifecycleState"] for host in group["Instances"]}

    @property
    def pool(self) -> dict[str, str]:
        """Return the lifecycle state of each host in the warm pool."""
        hosts = self.client.describe_warm_pool(AutoScalingGroupName=self.name)["Instances"]
        return {host["InstanceId"]: host["LifecycleState"] for host in hosts}

    @property
    def activities(self) -> list[ActivityTypeDef]:
        """Return the activities, newest first."""
        return self.client.describe_scaling_activities(AutoScalingGroupName=self.name)["Activities"]

    def answer(self, host: str, result: str = "CONTINUE", hook: str = "ready") -> None:
        self.client.complete_lifecycle_action(
            AutoScalingGroupName=self.name, LifecycleHookName=hook, InstanceId=host, LifecycleActionResult=result
        )

    def send_heartbeat(self, host: str, hook: str = "ready") -> None:
        self.client.record_lifecycle_action_heartbeat(
            AutoScalingGroupName=self.name, LifecycleHookName=hook, InstanceId=host
        )

    def resize(self, desired: int) -> None:
        self.client.set_desired_capacity(AutoScalingGroupName=self.name, DesiredCapacity=desired)

    def complete_launches(self) -> list[str]:
        """Complete the launch of every waiting host, and return all hosts."""
        for host, state in self.states.items():
            if state == "Pending:Wait":
                self.answer(host)
        assert set(self.states.values()) == {"InService"}
        return list(self.states)


@pytest.fixture(scope="module")
def aws_without_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """Start a local AWS whose hosts are not simulated."""
    with LocalAws(tmp_path_factory.mktemp("bare") / "aws.log", real_hosts=True) as local:
        local.client("ec2").create_launch_template(
            LaunchTemplateName="host", LaunchTemplateData={"ImageId": _image(local), "InstanceType": "c8g.large"}
        )
        local.client("ec2").create_launch_template(
            LaunchTemplateName="refused", LaunchTemplateData={"ImageId": _image(local), "InstanceType": "c8g.none"}
        )
        yield local


@pytest.fixture
def group(aws_without_hosts: LocalAws) -> Iterator[Group]:
    """Create a group of one host, which waits at its launch hook."""
    with _group(aws_without_hosts) as made:
        yield made


def _image(local: LocalAws) -> str:
    name = "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id"
    return str(local.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])


@contextmanager
def _group(local: LocalAws, template: str = "host", **more: object) -> Iterator[Group]:
    made = Group(local.client("autoscaling"), f"group-{next(_numbers)}")
    made.client.create_auto_scaling_group(
        AutoScalingGroupName=made.name,
        LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
        MinSize=1,
        MaxSize=4,
        VPCZoneIdentifier=local.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"],
        LifecycleHookSpecificationList=[
            {
                "LifecycleHookName": name,
                "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{side}",
                "HeartbeatTimeout": 900,
                "DefaultResult": "ABANDON",
            }
            for name, side in HOOKS.items()
        ],
        **more,  # type: ignore[arg-type]
    )
    yield made
    made.client.delete_auto_scaling_group(AutoScalingGroupName=made.name, ForceDelete=True)


def _until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def _ec2_state(local: LocalAws, host: str) -> str:
    found = local.client("ec2").describe_instances(InstanceIds=[host])["Reservations"][0]["Instances"][0]
    return str(found["State"]["Name"])


def test_a_launch_waits_for_the_lifecycle_action(group: Group) -> None:
    ((host, state),) = group.states.items()
    assert state == "Pending:Wait"
    assert group.activities[0]["StatusCode"] == "MidLifecycleAction"
    group.answer(host)
    assert group.states == {host: "InService"}
    (activity,) = group.activities
    assert activity["StatusCode"] == "Successful"
    assert activity["Description"] == f"Launching a new EC2 instance: {host}"
    assert "increasing the capacity from 0 to 1" in activity["Cause"]
    with pytest.raises(ClientError, match=f"No active Lifecycle Action found with instance ID {host}"):
        group.answer(host)


def test_an_abandoned_launch_is_terminated_and_replaced(aws_without_hosts: LocalAws, group: Group) -> None:
    (first,) = group.states
    group.answer(first, "ABANDON")
    ((second, state),) = group.states.items()
    assert second != first
    assert state == "Pending:Wait"
    assert _ec2_state(aws_without_hosts, first) == "terminated"
    (failed,) = [each for each in group.activities if each["StatusCode"] == "Cancelled"]
    assert first in failed["Description"]
    assert "ABANDON" in failed["StatusMessage"]


@pytest.mark.parametrize(("result", "final_state"), [("ABANDON", "Pending:Wait"), ("CONTINUE", "InService")])
def test_a_hook_times_out_with_its_default_result(group: Group, result: str, final_state: str) -> None:
    _set_hook(group, "ready", 1, result)
    group.resize(2)
    _, host = group.states
    _until(lambda: group.states.get(host) != "Pending:Wait")
    assert group.states.get(host) == (final_state if result == "CONTINUE" else None)
    assert len(group.states) == 2


def test_a_heartbeat_extends_the_timeout(group: Group) -> None:
    _set_hook(group, "ready", 3, "ABANDON")
    group.resize(2)
    _, host = group.states
    since = time.monotonic()
    while time.monotonic() < since + 4:
        group.send_heartbeat(host)
        time.sleep(0.1)
    assert group.states[host] == "Pending:Wait"
    _until(lambda: host not in group.states)
    with pytest.raises(ClientError, match="No active Lifecycle Action"):
        group.send_heartbeat(host)


def _set_hook(group: Group, name: str, timeout_s: int, result: str) -> None:
    group.client.put_lifecycle_hook(
        AutoScalingGroupName=group.name,
        LifecycleHookName=name,
        LifecycleTransition=f"autoscaling:EC2_INSTANCE_{HOOKS[name]}",
        HeartbeatTimeout=timeout_s,
        DefaultResult=result,
    )


def test_scale_in_waits_for_the_terminating_host(aws_without_hosts: LocalAws, group: Group) -> None:
    group.resize(2)
    hosts = group.complete_launches()
    group.resize(1)
    (leaving,) = [host for host, state in group.states.items() if state == "Terminating:Wait"]
    assert leaving in hosts
    assert _ec2_state(aws_without_hosts, leaving) == "running"
    assert "shrinking the capacity from 2 to 1" in group.activities[0]["Cause"]
    group.answer(leaving, hook="drain")
    assert leaving not in group.states
    assert _ec2_state(aws_without_hosts, leaving) == "terminated"
    assert [each["StatusCode"] for each in group.activities] == ["Successful"] * 3


def test_a_termination_below_the_minimum_is_refused(group: Group) -> None:
    (host,) = group.complete_launches()
    with pytest.raises(ClientError, match="min size constraint"):
        group.client.terminate_instance_in_auto_scaling_group(InstanceId=host, ShouldDecrementDesiredCapacity=True)
    group.client.terminate_instance_in_auto_scaling_group(InstanceId=host, ShouldDecrementDesiredCapacity=False)
    assert sorted(group.states.values()) == ["Pending:Wait", "Terminating:Wait"]


def test_an_unhealthy_host_drains_and_is_replaced(aws_without_hosts: LocalAws, group: Group) -> None:
    (host,) = group.complete_launches()
    group.client.set_instance_health(InstanceId=host, HealthStatus="Unhealthy")
    assert group.states == {host: "InService"}, "the grace period was to be respected"
    group.client.set_instance_health(InstanceId=host, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False)
    assert sorted(group.states.values()) == ["Pending:Wait", "Terminating:Wait"]
    started, stopped = group.activities[:2]
    assert "unhealthy instance needing to be replaced" in started["Cause"]
    assert "health" in stopped["Cause"]
    group.answer(host, hook="drain")
    assert host not in group.states
    assert _ec2_state(aws_without_hosts, host) == "terminated"


@pytest.mark.parametrize("operation", ["terminate_instances", "stop_instances"])
def test_a_host_that_ec2_stopped_or_terminated_is_replaced(
    aws_without_hosts: LocalAws, group: Group, operation: str
) -> None:
    (host,) = group.complete_launches()
    getattr(aws_without_hosts.client("ec2"), operation)(InstanceIds=[host])
    assert sorted(group.states.values()) == ["Pending:Wait", "Terminating:Wait"]
    assert "EC2 health check" in group.activities[1]["Cause"]


def test_a_load_balancer_only_has_hosts_in_service(aws_without_hosts: LocalAws) -> None:
    elbv2 = aws_without_hosts.client("elbv2")
    vpc = aws_without_hosts.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    (made,) = elbv2.create_target_group(Name="targets", Protocol="TCP", Port=80, VpcId=vpc)["TargetGroups"]

    def targets() -> set[str]:
        shown = elbv2.describe_target_health(TargetGroupArn=made["TargetGroupArn"])["TargetHealthDescriptions"]
        return {item["Target"]["Id"] for item in shown}

    with _group(aws_without_hosts, TargetGroupARNs=[made["TargetGroupArn"]]) as group:
        (host,) = group.states
        assert targets() == set()
        group.complete_launches()
        assert targets() == {host}
        group.client.terminate_instance_in_auto_scaling_group(InstanceId=host, ShouldDecrementDesiredCapacity=False)
        assert targets() == set()


def test_warm_pool_hosts_wait_for_two_lifecycle_actions(aws_without_hosts: LocalAws, group: Group) -> None:
    group.complete_launches()
    group.client.put_warm_pool(AutoScalingGroupName=group.name, PoolState="Stopped", MaxGroupPreparedCapacity=3)
    assert list(group.pool.values()) == ["Warmed:Pending:Wait"] * 2
    for host in group.pool:
        group.answer(host)
    assert list(group.pool.values()) == ["Warmed:Stopped"] * 2
    assert _ec2_state(aws_without_hosts, next(iter(group.pool))) == "stopped"
    assert len(group.states) == 1
    warm = set(group.pool)
    group.resize(2)
    (host,) = [host for host, state in group.states.items() if state == "Pending:Wait"]
    assert host in warm
    assert _ec2_state(aws_without_hosts, host) == "running"
    assert set(group.pool) == warm - {host}
    group.answer(host)
    assert set(group.states.values()) == {"InService"}
    shown = group.client.describe_auto_scaling_instances()["AutoScalingInstances"]
    assert {item["InstanceId"] for item in shown} >= {*group.states, *group.pool}
    group.client.delete_warm_pool(AutoScalingGroupName=group.name)
    assert list(group.pool.values()) == ["Warmed:Terminating:Wait"]
    (left,) = group.pool
    group.answer(left, hook="drain")
    assert group.pool == {}


def test_a_pool_without_a_prepared_capacity_fills_up_to_the_maximum(group: Group) -> None:
    group.client.put_warm_pool(AutoScalingGroupName=group.name, MinSize=1)
    assert len(group.pool) == 3


def test_a_launch_that_ec2_rejects_is_a_failed_activity(aws_without_hosts: LocalAws) -> None:
    with _group(aws_without_hosts, template="refused") as group:
        assert group.states == {}
        (activity,) = group.activities
        assert activity["StatusCode"] == "Failed"
        assert "c8g.none" in activity["StatusMessage"]


def test_simulated_hosts_complete_their_lifecycle_actions(aws: LocalAws) -> None:
    ec2 = aws.client("ec2")
    ec2.create_launch_template(
        LaunchTemplateName="host", LaunchTemplateData={"ImageId": _image(aws), "InstanceType": "c8g.large"}
    )
    with _group(aws) as group:
        _until(lambda: set(group.states.values()) == {"InService"})
        (host,) = group.states
        group.client.terminate_instance_in_auto_scaling_group(InstanceId=host, ShouldDecrementDesiredCapacity=False)
        _until(lambda: host not in group.states)
        _until(lambda: set(group.states.values()) == {"InService"})
    ec2.delete_launch_template(LaunchTemplateName="host")
