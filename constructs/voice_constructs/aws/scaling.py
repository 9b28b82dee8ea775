"""Scaling rules as CloudWatch alarms and step policies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from blueprint.file.model.scaling import Comparison, ScalingRule, Statistic

_STATISTIC = {
    Statistic.AVERAGE: cloudwatch.Stats.AVERAGE,
    Statistic.MAXIMUM: cloudwatch.Stats.MAXIMUM,
    Statistic.MINIMUM: cloudwatch.Stats.MINIMUM,
    Statistic.SUM: cloudwatch.Stats.SUM,
}
_COMPARISON = {
    Comparison.ABOVE: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
    Comparison.BELOW: cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
}


def fleet_metric(metric: str, *, deployment: str, fleet: str, statistic: Statistic, period_s: int) -> cloudwatch.Metric:
    """Return a metric of the contract with the exact dimension set that its publisher uses."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric,
        dimensions_map={DEPLOYMENT_DIMENSION: deployment, FLEET_DIMENSION: fleet},
        statistic=_STATISTIC[statistic],
        period=Duration.seconds(period_s),
    )


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
        self.alarm = cloudwatch.Alarm(
            self,
            "Alarm",
            alarm_name=props.alarm_name,
            alarm_description=(
                f"Fleet {props.fleet} {verb}: {rule.metric} {rule.comparison} {rule.threshold:g}. "
                f"Runbook: {props.runbook_url}"
            ),
            metric=fleet_metric(
                rule.metric,
                deployment=props.deployment,
                fleet=props.fleet,
                statistic=rule.statistic,
                period_s=rule.period_s,
            ),
            comparison_operator=_COMPARISON[rule.comparison],
            threshold=rule.threshold,
            datapoints_to_alarm=rule.datapoints_to_alarm,
            evaluation_periods=rule.evaluation_periods,
            treat_missing_data=cloudwatch.TreatMissingData[rule.missing_data.name],
        )
        for number, group in enumerate(props.groups):
            self.alarm.add_alarm_action(actions.AutoScalingAction(self._build_policy(f"Policy{number}", rule, group)))

    def _build_policy(
        self, id_: str, rule: ScalingRule, group: autoscaling.AutoScalingGroup
    ) -> autoscaling.StepScalingAction:
        policy = autoscaling.StepScalingAction(
            self,
            id_,
            auto_scaling_group=group,
            adjustment_type=autoscaling.AdjustmentType.CHANGE_IN_CAPACITY,
            metric_aggregation_type=autoscaling.MetricAggregationType.MAXIMUM
            if rule.statistic is Statistic.MAXIMUM
            else autoscaling.MetricAggregationType.AVERAGE,
        )
        for band in rule.bands:
            policy.add_adjustment(
                adjustment=band.adjustment,
                lower_bound=None if math.isinf(band.lower) else band.lower,
                upper_bound=None if math.isinf(band.upper) else band.upper,
            )
        return policy
