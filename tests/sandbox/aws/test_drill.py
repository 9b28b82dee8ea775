"""The scaling drill while hosts publish metrics."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS
from voice_blueprint.aws import names
from voice_blueprint.contract.metrics import METRICS, NAMESPACE
from voice_sandbox.rehearsals.drill import Drill
from voice_sandbox.rehearsals.live_alarm import LiveAlarm

HOSTS = voice_blueprint.load(DEPLOYMENTS / "hosts.yaml")
(RULE,) = HOSTS.aws.vad.scaling
GROUP = names.list_vad_group_names(HOSTS)[0]
ALARM = names.build_scaling_alarm_name(HOSTS, names.VAD_FLEET, RULE)
AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drill]:
    """Return a drill for a group with one host, and an alarm whose policy adds another."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", HOSTS.aws.region)
    with mock_aws():
        autoscaling, cloudwatch = boto3.client("autoscaling"), boto3.client("cloudwatch")
        image: Any = {"ImageId": "ami-12c6146b", "InstanceType": "c8g.large"}
        autoscaling.create_launch_configuration(LaunchConfigurationName="hosts", **image)
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchConfigurationName="hosts",
            MinSize=1,
            MaxSize=3,
            AvailabilityZones=["us-east-1a"],
        )
        autoscaling.put_scaling_policy(
            AutoScalingGroupName=GROUP,
            PolicyName="add",
            PolicyType="StepScaling",
            AdjustmentType="ChangeInCapacity",
            StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        )
        (policy,) = autoscaling.describe_policies()["ScalingPolicies"]
        cloudwatch.put_metric_alarm(
            AlarmName=ALARM,
            AlarmActions=[policy["PolicyARN"]],
            Namespace=NAMESPACE,
            MetricName=METRICS[RULE.metric].name,
            Statistic="Average",
            Period=RULE.period_s,
            DatapointsToAlarm=RULE.datapoints_to_alarm,
            EvaluationPeriods=RULE.evaluation_periods,
            Threshold=RULE.threshold,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
        )
        yield Drill(HOSTS, cloudwatch=cloudwatch, autoscaling=autoscaling)


@pytest.mark.parametrize(("breaches", "late", "fires"), [(3, 0, True), (3, 1, True), (3, 2, True), (2, 0, False)])
def test_a_late_sample_does_not_prevent_scale_out(drill: Drill, breaches: int, late: int, *, fires: bool) -> None:
    """CloudWatch reads more periods than it needs, and uses the newest that have data."""
    alarm = LiveAlarm(boto3.client("cloudwatch"), ALARM)
    for period in range(breaches):
        alarm.publish(RULE.threshold + 5, AT + period * alarm.period)
    assert drill.fire_if_breached(names.VAD_FLEET, RULE, AT + (breaches + late) * alarm.period) is fires
    (group,) = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])[
        "AutoScalingGroups"
    ]
    assert group["DesiredCapacity"] == 1 + fires


def test_old_data_fires_no_alarm(drill: Drill) -> None:
    alarm = LiveAlarm(boto3.client("cloudwatch"), ALARM)
    for period in range(RULE.datapoints_to_alarm):
        alarm.publish(RULE.threshold + 5, AT + period * alarm.period)
    assert not drill.fire_if_breached(names.VAD_FLEET, RULE, AT + timedelta(hours=1))
