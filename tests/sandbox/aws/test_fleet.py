"""Auto Scaling groups: launched hosts, dependent resources, and complete deletion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.sandbox.aws.samples import IMAGE_PARAMETER, att, fleet, ref
from tests.sandbox.aws.stacks import Deployed

IN_SERVICE_WITHIN_S = 60
"""Stacks wait for the minimum size of their groups; additional hosts enter service later."""


@pytest.fixture
def deployed_fleet(stack: Deployed) -> Deployed:
    stack.create(fleet(), Parameters=IMAGE_PARAMETER)
    return stack


def instances(stack: Deployed, group: str = "Fleet") -> list[dict[str, Any]]:
    mine = [{"Name": "tag:aws:autoscaling:groupName", "Values": [stack[group]]}]
    found = stack.client("ec2").describe_instances(Filters=mine)["Reservations"]
    return [item for reservation in found for item in reservation["Instances"] if item["State"]["Name"] == "running"]


def targets(stack: Deployed, name: str) -> set[str]:
    health = stack.client("elbv2").describe_target_health(TargetGroupArn=stack[name])["TargetHealthDescriptions"]
    return {item["Target"]["Id"] for item in health}


def group(stack: Deployed, name: str = "Fleet") -> dict[str, Any]:
    found = stack.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[stack[name]])
    shown: dict[str, Any] = found["AutoScalingGroups"][0]
    return shown


def test_hosts_are_launched_from_the_launch_template(deployed_fleet: Deployed) -> None:
    hosts = instances(deployed_fleet)
    assert {host["SubnetId"] for host in hosts} == {deployed_fleet["SubnetA"], deployed_fleet["SubnetB"]}
    for host in hosts:
        assert (host["InstanceType"], host["Architecture"]) == ("c8g.12xlarge", "arm64")
        assert host["MetadataOptions"]["HttpTokens"] == "required"
        assert [item["GroupId"] for item in host["SecurityGroups"]] == [deployed_fleet["Group"]]
        assert host["IamInstanceProfile"]["Arn"].endswith(deployed_fleet["Profile"])
        assert [item["DeviceName"] for item in host["BlockDeviceMappings"]] == ["/dev/xvda"]
        assert {"Key": "team", "Value": "voice"} in host["Tags"]
    (mixed,) = instances(deployed_fleet, "Mixed")
    assert mixed["InstanceType"] == "inf2.48xlarge"


def test_a_group_has_all_its_settings(deployed_fleet: Deployed) -> None:
    shown = group(deployed_fleet)
    assert shown["NewInstancesProtectedFromScaleIn"] is True
    assert (shown["DefaultInstanceWarmup"], shown["MaxInstanceLifetime"]) == (120, 604800)
    assert all(host["ProtectedFromScaleIn"] for host in shown["Instances"])
    overrides = group(deployed_fleet, "Mixed")["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert overrides == [{"InstanceType": "inf2.48xlarge"}]


def test_hooks_policies_and_pool_belong_to_the_group(deployed_fleet: Deployed) -> None:
    autoscaling = deployed_fleet.client("autoscaling")
    name = deployed_fleet["Fleet"]
    hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
    assert {hook["LifecycleTransition"]: hook["HeartbeatTimeout"] for hook in hooks} == {
        "autoscaling:EC2_INSTANCE_LAUNCHING": 600,
        "autoscaling:EC2_INSTANCE_TERMINATING": 900,
    }
    assert not any("NotificationTargetARN" in hook for hook in hooks)
    (policy,) = autoscaling.describe_policies(AutoScalingGroupName=name)["ScalingPolicies"]
    assert policy["PolicyARN"] == deployed_fleet["Policy"]
    assert policy["StepAdjustments"] == [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 2}]
    assert autoscaling.describe_warm_pool(AutoScalingGroupName=name)["WarmPoolConfiguration"]["PoolState"] == "Stopped"


def test_a_new_template_version_reaches_the_group(stack: Deployed) -> None:
    template = fleet()
    del template["Warm"]  # its hosts have the first version, and would be used first
    stack.create(template, Parameters=IMAGE_PARAMETER)
    template["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "c8g.16xlarge"
    template["Fleet"]["Properties"] |= {"MaxSize": "6", "DesiredCapacity": "3", "DefaultInstanceWarmup": 60}
    hook = template["Fleet"]["Properties"]["LifecycleHookSpecificationList"][0]
    hook["HeartbeatTimeout"] = 300
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "team", "Value": "asr"}]}]
    template["Template"]["Properties"]["TagSpecifications"] = tags
    template["Policy"]["Properties"]["StepAdjustments"] = [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 4}]
    before = {name: stack[name] for name in ("Fleet", "Template", "Policy")}
    version = {"Version": {"Value": att("Template", "LatestVersionNumber")}}
    stack.update(template, Parameters=IMAGE_PARAMETER, Outputs=version)
    assert {name: stack[name] for name in before} == before
    assert stack.outputs["Version"] == "2"
    (shown,) = stack.client("ec2").describe_launch_templates(LaunchTemplateIds=[stack["Template"]])["LaunchTemplates"]
    assert shown["Tags"] == [{"Key": "team", "Value": "asr"}]
    shown = group(stack)
    assert (shown["LaunchTemplate"]["Version"], shown["MaxSize"], shown["DefaultInstanceWarmup"]) == ("2", 6, 60)
    assert sorted(host["InstanceType"] for host in instances(stack)) == ["c8g.12xlarge"] * 2 + ["c8g.16xlarge"]
    autoscaling = stack.client("autoscaling")
    hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=stack["Fleet"])["LifecycleHooks"]
    assert {hook["HeartbeatTimeout"] for hook in hooks} == {300, 900}
    (policy,) = autoscaling.describe_policies(AutoScalingGroupName=stack["Fleet"])["ScalingPolicies"]
    assert policy["StepAdjustments"][0]["ScalingAdjustment"] == 4


def test_target_groups_are_attached_and_detached(stack: Deployed) -> None:
    template = fleet()
    template["Audio"] = {
        "Type": "AWS::ElasticLoadBalancingV2::TargetGroup",
        "Properties": {"Protocol": "UDP", "Port": 5004, "VpcId": ref("Vpc")},
    }
    template["Fleet"]["Properties"]["TargetGroupARNs"] = [ref("Audio")]
    stack.create(template, Parameters=IMAGE_PARAMETER)
    end = time.monotonic() + IN_SERVICE_WITHIN_S
    while targets(stack, "Audio") != {host["InstanceId"] for host in instances(stack)}:
        assert time.monotonic() < end, "hosts in service are no targets"
        time.sleep(0.1)
    del template["Fleet"]["Properties"]["TargetGroupARNs"]
    stack.update(template, Parameters=IMAGE_PARAMETER)
    assert group(stack)["TargetGroupARNs"] == []


def test_no_fleet_resource_remains(deployed_fleet: Deployed) -> None:
    deployed_fleet.delete()
    ec2, autoscaling = deployed_fleet.client("ec2"), deployed_fleet.client("autoscaling")
    states = [
        item["State"]["Name"] for found in ec2.describe_instances()["Reservations"] for item in found["Instances"]
    ]
    assert set(states) == {"terminated"}
    assert not ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert not ec2.describe_volumes()["Volumes"]
    assert not ec2.describe_launch_templates()["LaunchTemplates"]
    assert not autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert not autoscaling.describe_policies()["ScalingPolicies"]


def test_a_group_that_cannot_reach_its_size_fails_its_stack(stack: Deployed) -> None:
    template = fleet()
    template["Template"]["Properties"]["LaunchTemplateData"]["InstanceType"] = "c8g.none"
    assert stack.try_create(template, Parameters=IMAGE_PARAMETER) == "ROLLBACK_COMPLETE"
    assert any("did not stabilize. {current/minimum/desired group size} = {0/2/2}" in each for each in stack.reasons)
