"""Patched services return the errors of AWS, and support direct calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.samples import IMAGE_PARAMETER, balancer, fleet, state
from tests.sandbox.aws.stacks import Deployed
from voice_sandbox.aws.process import LocalAws


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "code"),
    [
        ("elasticache", "describe_user_groups", {"UserGroupId": "none"}, "UserGroupNotFound"),
        ("elasticache", "describe_cache_parameters", {"CacheParameterGroupName": "n"}, "CacheParameterGroupNotFound"),
        ("autoscaling", "delete_auto_scaling_group", {"AutoScalingGroupName": "none"}, "ValidationError"),
        ("cloudtrail", "lookup_events", {}, "UnsupportedOperationException"),
    ],
)
def test_missing_items_are_reported(
    aws: LocalAws, service: str, operation: str, arguments: dict[str, object], code: str
) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(aws.client(service), operation)(**arguments)
    assert refused.value.response["Error"]["Code"] == code


@pytest.mark.parametrize(
    ("operation", "arguments", "code"),
    [
        ("delete_user", {"UserId": "gateway"}, "InvalidUserState"),
        ("delete_user_group", {"UserGroupId": "callers"}, "InvalidUserGroupState"),
        (
            "create_user_group",
            {"UserGroupId": "callers", "Engine": "valkey", "UserIds": ["nobody"]},
            "UserGroupAlready",
        ),
        ("create_user_group", {"UserGroupId": "x", "Engine": "valkey", "UserIds": ["gateway"]}, "DefaultUserRequired"),
        ("modify_user_group", {"UserGroupId": "callers", "UserIdsToRemove": ["nobody"]}, "DefaultUserRequired"),
    ],
)
def test_users_and_groups_in_use_cannot_be_deleted(
    stack: Deployed, operation: str, arguments: dict[str, object], code: str
) -> None:
    stack.create(state())
    with pytest.raises(ClientError, match=code):
        getattr(stack.client("elasticache"), operation)(**arguments)


def test_security_groups_used_by_a_cache_cannot_be_deleted(stack: Deployed) -> None:
    stack.create(state())
    cache = stack.client("elasticache")
    with pytest.raises(ClientError, match="is in use by"):
        cache.delete_cache_subnet_group(CacheSubnetGroupName=stack["Subnets"])
    with pytest.raises(ClientError, match="is in use by"):
        cache.delete_cache_parameter_group(CacheParameterGroupName=stack["Parameters"])


def test_a_group_with_hosts_requires_a_forced_delete(stack: Deployed) -> None:
    stack.create(fleet(), Parameters=IMAGE_PARAMETER)
    with pytest.raises(ClientError, match="ResourceInUse"):
        stack.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=stack["Fleet"])


def test_changing_only_the_size_keeps_the_mixed_instances_policy(stack: Deployed) -> None:
    stack.create(fleet(), Parameters=IMAGE_PARAMETER)
    autoscaling, name = stack.client("autoscaling"), stack["Mixed"]
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=3)
    (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    assert group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"] == [{"InstanceType": "inf2.48xlarge"}]


def test_names_of_load_balancers_are_unique(stack: Deployed) -> None:
    stack.create(balancer())
    elbv2 = stack.client("elbv2")
    (shown,) = elbv2.describe_load_balancers(LoadBalancerArns=[stack["Balancer"]])["LoadBalancers"]
    with pytest.raises(ClientError, match="DuplicateLoadBalancerName"):
        elbv2.create_load_balancer(Name=shown["LoadBalancerName"], Subnets=[stack["SubnetA"]])


def test_listeners_of_a_network_load_balancer_can_change_targets(stack: Deployed) -> None:
    changed = balancer()
    stack.create(balancer())
    changed["Other"] = {**changed["Audio"], "Properties": {**changed["Audio"]["Properties"], "TargetType": "ip"}}
    changed["Udp"]["Properties"]["DefaultActions"][0]["TargetGroupArn"] = {"Ref": "Other"}
    changed["Tls"]["Properties"]["Port"] = 8443
    stack.update(changed)
    elbv2 = stack.client("elbv2")
    udp, tls = elbv2.describe_listeners(ListenerArns=[stack["Udp"], stack["Tls"]])["Listeners"]
    assert (udp["Protocol"], udp["DefaultActions"][0]["TargetGroupArn"]) == ("UDP", stack["Other"])
    assert (tls["Protocol"], tls["Port"], len(tls["Certificates"])) == ("TLS", 8443, 1)
    (group,) = elbv2.describe_target_groups(TargetGroupArns=[stack["Other"]])["TargetGroups"]
    assert group["LoadBalancerArns"] == [stack["Balancer"]]


def test_every_instance_type_of_the_project_can_be_launched(aws: LocalAws) -> None:
    kinds = ["c8g.12xlarge", "c8g.4xlarge", "inf2.48xlarge", "trn1.2xlarge", "p5.4xlarge"]
    found = aws.client("ec2").describe_instance_types(InstanceTypes=kinds)["InstanceTypes"]
    assert {item["InstanceType"] for item in found} == set(kinds)


@pytest.mark.parametrize(("family", "architecture"), [("arm64", "arm64"), ("neuron", "x86_64"), ("gpu", "x86_64")])
def test_public_image_parameters_refer_to_existing_images(aws: LocalAws, family: str, architecture: str) -> None:
    name = f"/aws/service/ecs/optimized-ami/amazon-linux-2023/{family}/recommended/image_id"
    image = aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    (shown,) = aws.client("ec2").describe_images(ImageIds=[image])["Images"]
    assert (shown["Architecture"], shown["RootDeviceName"]) == (architecture, "/dev/xvda")


@pytest.mark.parametrize(
    ("expression", "values"),
    [("MAX([m1,m2])", [4, 6]), ("SUM([m1,m2])", [5, 6]), ("100*m1/m2", [400]), ("AVG([m2])-1", [0])],
)
def test_metric_math_is_evaluated(aws: LocalAws, expression: str, values: list[float]) -> None:
    """The first expression resembles alarms over several fleets. Arithmetic has no value where a metric has none."""
    cloudwatch = aws.client("cloudwatch")
    start = datetime(2026, 11, 22, 12, tzinfo=UTC)
    for name, minute, value in (("First", 0, 4), ("Second", 0, 1), ("First", 1, 6)):
        datum = {"MetricName": name, "Value": value, "Timestamp": start + timedelta(minutes=minute)}
        cloudwatch.put_metric_data(Namespace=f"Math {expression}", MetricData=[datum])
    queries: list[dict[str, object]] = [
        {
            "Id": id_,
            "MetricStat": {"Metric": {"Namespace": f"Math {expression}", "MetricName": name}, "Period": 60,
                           "Stat": "Maximum"},
            "ReturnData": False,
        }
        for id_, name in (("m1", "First"), ("m2", "Second"))
    ]  # fmt: skip
    queries.append({"Id": "folded", "Expression": expression})
    asked = {"MetricDataQueries": queries, "StartTime": start, "EndTime": start + timedelta(minutes=5)}
    (told,) = cloudwatch.get_metric_data(**asked)["MetricDataResults"]
    assert told["Values"] == values
    queries[-1]["Expression"] = "ANOMALY_DETECTION_BAND(m1)"
    with pytest.raises(ClientError, match="does not support 'ANOMALY_DETECTION_BAND"):
        cloudwatch.get_metric_data(**asked)
