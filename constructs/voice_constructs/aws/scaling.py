"""Scaling rules as CloudWatch alarms and step policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from aws_cdk import Duration
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic, Step

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
_MISSING_DATA = {
    MissingData.NOT_BREACHING: cloudwatch.TreatMissingData.NOT_BREACHING,
    MissingData.BREACHING: cloudwatch.TreatMissingData.BREACHING,
    MissingData.IGNORE: cloudwatch.TreatMissingData.IGNORE,
    MissingData.MISSING: cloudwatch.TreatMissingData.MISSING,
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
            datapoints_to_alarm=rule.breaching_datapoints,
            evaluation_periods=rule.evaluated_datapoints,
            treat_missing_data=_MISSING_DATA[rule.missing_data],
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
        for step, following in pairwise((*rule.steps, None)):
            assert step is not None  # noqa: S101  only the last of a pair can be None
            lower, upper = _bounds(rule.comparison, step, following)
            policy.add_adjustment(adjustment=step.change, lower_bound=lower, upper_bound=upper)
        return policy


def _bounds(comparison: Comparison, step: Step, following: Step | None) -> tuple[float | None, float | None]:
    """Return a band's bounds relative to the alarm's threshold, as step policies count them."""
    far = following.beyond if following else None
    if comparison is Comparison.ABOVE:
        return step.beyond, far
    return None if far is None else -far, -step.beyond
