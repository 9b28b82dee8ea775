"""Scaling rules as CloudWatch alarms and step policies.

L1 resources are used, since a rule already contains the value of every property.
"""

import math
from collections.abc import Sequence

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import COMPARISON_OPERATORS, MISSING_DATA_TREATMENTS
from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import ScalingRule, Statistic
from voice_blueprint.observability.aws.alerts import format_scaling_runbook_url

L1_CHILD_ID = "Resource"
"""Id of an L1 resource in its L2. At another path, a deployed alarm would be recreated with a name that already
exists."""


class StepScalingRule(Construct):
    """A scaling rule: one alarm, and one step policy for each Auto Scaling group.

    Attributes:
        alarm: The alarm.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        deployment: Deployment,
        fleet: str,
        rule: ScalingRule,
        groups: Sequence[str],
    ) -> None:
        super().__init__(scope, id_)
        verb = "grows" if rule.adds_hosts else "shrinks"
        self.alarm = cloudwatch.CfnAlarm(
            Construct(self, "Alarm"),
            L1_CHILD_ID,
            alarm_name=names.build_scaling_alarm_name(deployment, fleet, rule),
            alarm_description=(
                f"Fleet {fleet} {verb}: {rule.metric} {rule.comparison} {rule.threshold:g}. "
                f"Runbook: {format_scaling_runbook_url(deployment, rule)}"
            ),
            namespace=NAMESPACE,
            metric_name=rule.metric,
            dimensions=[
                cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
                for name, value in ((DEPLOYMENT_DIMENSION, deployment.name), (FLEET_DIMENSION, fleet))
            ],
            statistic=rule.statistic.capitalize(),
            period=rule.period_s,
            comparison_operator=COMPARISON_OPERATORS[rule.comparison],
            threshold=rule.threshold,
            datapoints_to_alarm=rule.datapoints_to_alarm,
            evaluation_periods=rule.evaluation_periods,
            treat_missing_data=MISSING_DATA_TREATMENTS[rule.missing_data],
            alarm_actions=[
                self._build_policy(f"Policy{number}", rule, group).ref for number, group in enumerate(groups)
            ],
        )

    def _build_policy(self, id_: str, rule: ScalingRule, group: str) -> autoscaling.CfnScalingPolicy:
        return autoscaling.CfnScalingPolicy(
            Construct(self, id_),
            L1_CHILD_ID,
            auto_scaling_group_name=group,
            policy_type="StepScaling",
            adjustment_type="ChangeInCapacity",
            metric_aggregation_type="Maximum" if rule.statistic is Statistic.MAXIMUM else "Average",
            step_adjustments=[
                autoscaling.CfnScalingPolicy.StepAdjustmentProperty(
                    scaling_adjustment=band.adjustment,
                    metric_interval_lower_bound=None if math.isinf(band.lower) else band.lower,
                    metric_interval_upper_bound=None if math.isinf(band.upper) else band.upper,
                )
                for band in rule.step_adjustments
            ],
        )


def create_fleet_scaling(
    scope: Construct,
    deployment: Deployment,
    fleet: str,
    rules: Sequence[ScalingRule],
    groups: Sequence[autoscaling.AutoScalingGroup],
) -> list[StepScalingRule]:
    """Create an alarm and step policies for each scaling rule of a fleet.

    Each group of the fleet gets the full adjustment of a rule, so that "+2 in every zone" is exact.
    """
    group_names = [group.auto_scaling_group_name for group in groups]
    return [
        StepScalingRule(
            scope,
            rule.construct_id,
            deployment=deployment,
            fleet=fleet,
            rule=rule,
            groups=group_names,
        )
        for rule in rules
    ]
