"""Alerts as CloudWatch alarms.

L1 resources are used, since an alert already contains the value of every property. One L1 alarm is a single call into
jsii's Node process (2 ms); an L2 alarm with metric, duration and actions requires ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import COMPARISON_OPERATORS, MISSING_DATA_TREATMENTS
from voice_blueprint.file.model.base import format_construct_id
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import CALLERS_AFFECTED_ALARM, Alert
from voice_blueprint.observability.aws.series import Resource, Series


@dataclass(frozen=True)
class AlertAlarmsProps:
    """Properties of ``AlertAlarms``.

    Attributes:
        resources: Dimension values that are only known at deployment.
        topic_arn: Topic that is notified when an alarm fires and when it ends.
    """

    deployment: Deployment
    alerts: Sequence[Alert]
    resources: Mapping[Resource, str]
    topic_arn: str


class AlertAlarms(Construct):
    """An alarm for each alert, and a composite alarm that fires while callers are affected.

    An alert with two windows is a composite alarm over one alarm per window.

    A standard alarm costs 0.10 USD per month, an alarm with a period of 10 s 0.30 USD, and a composite alarm 0.50 USD
    (https://aws.amazon.com/cloudwatch/pricing/).
    """

    def __init__(self, scope: Construct, id_: str, *, props: AlertAlarmsProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        alarms = {alert.format_alarm_name(props.deployment): self._build_alarm(alert) for alert in props.alerts}
        alarm_names = [alert.format_alarm_name(props.deployment) for alert in props.alerts if alert.affects_callers]
        if not alarm_names:
            return
        self._build_composite(
            "CallersAffected",
            names.build_alert_alarm_name(props.deployment, CALLERS_AFFECTED_ALARM),
            self._format_alarm_description(
                CALLERS_AFFECTED_ALARM, "Callers are affected: see which of its alarms fire."
            ),
            " OR ".join(f'ALARM("{name}")' for name in alarm_names),
            [alarms[name] for name in alarm_names],
        )

    def _build_alarm(self, alert: Alert) -> cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm:
        if alert.short_window_s is None:
            return self._build_metric_alarm(alert, actions=[self._props.topic_arn])
        # Only the composite alarm sends notifications.
        parts = [self._build_metric_alarm(alert, ending, actions=[]) for ending in alert.period_s_by_window]
        return self._build_composite(
            _build_logical_id(alert),
            alert.format_alarm_name(self._props.deployment),
            self._format_alarm_description(alert.id, alert.meaning),
            " AND ".join(f'ALARM("{part.alarm_name}")' for part in parts),
            parts,
        )

    def _build_metric_alarm(self, alert: Alert, ending: str = "", *, actions: list[str]) -> cloudwatch.CfnAlarm:
        rule, period_s = alert.rule, alert.period_s_by_window[ending]
        watched = (
            self._build_alarm_properties(alert)
            if len(alert.series) == 1
            else self._build_combined_properties(alert, period_s)
        )
        return cloudwatch.CfnAlarm(
            self,
            _build_logical_id(alert, ending),
            alarm_name="-".join(filter(None, (alert.format_alarm_name(self._props.deployment), ending))),
            alarm_description=self._format_alarm_description(alert.id, alert.meaning),
            comparison_operator=COMPARISON_OPERATORS[rule.comparison],
            threshold=rule.threshold,
            datapoints_to_alarm=rule.datapoints_to_alarm,
            evaluation_periods=rule.evaluation_periods,
            treat_missing_data=MISSING_DATA_TREATMENTS[rule.missing_data],
            alarm_actions=actions or None,
            ok_actions=actions or None,
            **watched,  # type: ignore[arg-type]
        )

    def _build_alarm_properties(self, alert: Alert) -> dict[str, object]:
        (series,) = alert.series
        return {
            "namespace": series.namespace,
            "metric_name": series.metric.name,
            "dimensions": self._build_dimensions(series),
            "period": alert.period_s,
            "statistic": series.statistic,
        }

    def _build_combined_properties(self, alert: Alert, period_s: int) -> dict[str, object]:
        ids = [f"m{number}" for number in range(len(alert.series))]
        query_property = cloudwatch.CfnAlarm.MetricDataQueryProperty
        return {
            "metrics": [
                query_property(id="folded", expression=alert.format_expression(ids), label=alert.id, return_data=True),
                *(
                    query_property(id=id_, metric_stat=self._build_metric_stat(series, period_s), return_data=False)
                    for id_, series in zip(ids, alert.series, strict=True)
                ),
            ]
        }

    def _build_metric_stat(self, series: Series, period_s: int) -> cloudwatch.CfnAlarm.MetricStatProperty:
        return cloudwatch.CfnAlarm.MetricStatProperty(
            metric=cloudwatch.CfnAlarm.MetricProperty(
                namespace=series.namespace, metric_name=series.metric.name, dimensions=self._build_dimensions(series)
            ),
            period=period_s,
            stat=series.statistic,
        )

    def _build_dimensions(self, series: Series) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
        return [
            cloudwatch.CfnAlarm.DimensionProperty(name=name, value=resolve_dimension(value, self._props.resources))
            for name, value in series.dimensions.items()
        ]

    def _build_composite(
        self,
        id_: str,
        name: str,
        description: str,
        rule: str,
        parts: Sequence[cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm],
    ) -> cloudwatch.CfnCompositeAlarm:
        composite = cloudwatch.CfnCompositeAlarm(
            self,
            id_,
            alarm_name=name,
            alarm_description=description,
            alarm_rule=rule,
            alarm_actions=[self._props.topic_arn],
            ok_actions=[self._props.topic_arn],
        )
        composite.node.add_dependency(*parts)
        return composite

    def _format_alarm_description(self, id_: str, meaning: str) -> str:
        return f"{meaning} Runbook: {names.build_runbook_url(self._props.deployment, id_)}"


def _build_logical_id(alert: Alert, ending: str = "") -> str:
    return format_construct_id("-".join(filter(None, (alert.id, alert.target, ending))))


def resolve_dimension(value: str | Resource, resources: Mapping[Resource, str]) -> str:
    """Return the value of a dimension. Values that are only known at deployment are CloudFormation tokens."""
    return resources[value] if isinstance(value, Resource) else value
