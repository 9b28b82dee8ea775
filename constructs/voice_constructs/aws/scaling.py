"""Scaling rules as CloudWatch alarms and step policies, in L1 resources: a rule holds every value already."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from blueprint.aws.alarms import COMPARISON_OPERATOR, TREAT_MISSING_DATA
from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from blueprint.file.model.scaling import ScalingRule, Statistic

IN_L2 = "Resource"
"""Id of an L1 in its L2: at another path a deployed alarm would be made anew, under the name that it has already."""


@dataclass(frozen=True)
class ScalingProps:
    """What ``RuleScaling`` is made from.

    Attributes:
        deployment: Dimension of the metric.
        fleet: Dimension of the metric.
        alarm_name: Name of the alarm.
        runbook_url: Where a person who sees the alarm reads on.
        groups: Each gets the rule's whole change, so that "+2 in every zone" is exact.
    """

    deployment: str
    fleet: str
    rule: ScalingRule
    alarm_name: str
    runbook_url: str
    groups: Sequence[autoscaling.AutoScalingGroup]


class RuleScaling(Construct):
    """One scaling rule: one alarm, and one step policy for each Auto Scaling group.

    Attributes:
        alarm: The alarm.
    """

    def __init__(self, scope: Construct, id_: str, *, props: ScalingProps) -> None:
        super().__init__(scope, id_)
        rule = props.rule
        verb = "grows" if rule.adds_hosts else "shrinks"
        self.alarm = cloudwatch.CfnAlarm(
            Construct(self, "Alarm"),
            IN_L2,
            alarm_name=props.alarm_name,
            alarm_description=(
                f"Fleet {props.fleet} {verb}: {rule.metric} {rule.comparison} {rule.threshold:g}. "
                f"Runbook: {props.runbook_url}"
            ),
            namespace=NAMESPACE,
            metric_name=rule.metric,
            dimensions=[
                cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
                for name, value in ((DEPLOYMENT_DIMENSION, props.deployment), (FLEET_DIMENSION, props.fleet))
            ],
            statistic=rule.statistic.capitalize(),
            period=rule.period_s,
            comparison_operator=COMPARISON_OPERATOR[rule.comparison],
            threshold=rule.threshold,
            datapoints_to_alarm=rule.datapoints_to_alarm,
            evaluation_periods=rule.evaluation_periods,
            treat_missing_data=TREAT_MISSING_DATA[rule.missing_data],
            alarm_actions=[
                self._build_policy(f"Policy{number}", rule, group).ref for number, group in enumerate(props.groups)
            ],
        )

    def _build_policy(
        self, id_: str, rule: ScalingRule, group: autoscaling.AutoScalingGroup
    ) -> autoscaling.CfnScalingPolicy:
        return autoscaling.CfnScalingPolicy(
            Construct(self, id_),
            IN_L2,
            auto_scaling_group_name=group.auto_scaling_group_name,
            policy_type="StepScaling",
            adjustment_type="ChangeInCapacity",
            metric_aggregation_type="Maximum" if rule.statistic is Statistic.MAXIMUM else "Average",
            step_adjustments=[
                autoscaling.CfnScalingPolicy.StepAdjustmentProperty(
                    scaling_adjustment=band.adjustment,
                    metric_interval_lower_bound=None if math.isinf(band.lower) else band.lower,
                    metric_interval_upper_bound=None if math.isinf(band.upper) else band.upper,
                )
                for band in rule.bands
            ],
        )
