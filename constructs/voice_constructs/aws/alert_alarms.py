"""Alerts as CloudWatch alarms.

The L1 resources are used: an alert holds every value already, and one L1 alarm is one call into jsii's Node process
(2 ms) where the L2 with its metric, duration and actions is ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from blueprint.aws import names
from blueprint.aws.alarms import COMPARISON_OPERATOR, TREAT_MISSING_DATA
from blueprint.aws.alerts import CALLERS_AFFECTED, Alert
from blueprint.aws.series import Resource, Series
from blueprint.file.model.deployment import Deployment


@dataclass(frozen=True)
class AlertAlarmsProps:
    """What ``AlertAlarms`` is made from.

    Attributes:
        resources: Values of the dimensions that only a deploy knows.
        topic_arn: Told when an alarm fires and when it is over.
    """

    deployment: Deployment
    alerts: Sequence[Alert]
    resources: Mapping[Resource, str]
    topic_arn: str


class AlertAlarms(Construct):
    """One alarm for each alert, and a composite one that fires while callers notice anything.

    A standard alarm costs 0.10 USD a month, one with a 10 s period 0.30, the composite 0.50
    (https://aws.amazon.com/cloudwatch/pricing/).
    """

    def __init__(self, scope: Construct, id_: str, *, props: AlertAlarmsProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        alarms = {alert.alarm_name(props.deployment): self._build_alarm(alert) for alert in props.alerts}
        self._build_composite(
            {
                name: alarms[name]
                for alert in props.alerts
                if alert.callers_affected
                for name in [alert.alarm_name(props.deployment)]
            }
        )

    def _build_alarm(self, alert: Alert) -> cloudwatch.CfnAlarm:
        rule = alert.rule
        return cloudwatch.CfnAlarm(
            self,
            "".join(word.capitalize() for word in "-".join(filter(None, (alert.id, alert.target))).split("-")),
            alarm_name=alert.alarm_name(self._props.deployment),
            alarm_description=self._describe(alert.id, alert.meaning),
            comparison_operator=COMPARISON_OPERATOR[rule.comparison],
            threshold=rule.threshold,
            datapoints_to_alarm=rule.datapoints_to_alarm,
            evaluation_periods=rule.evaluation_periods,
            treat_missing_data=TREAT_MISSING_DATA[rule.missing_data],
            alarm_actions=[self._props.topic_arn],
            ok_actions=[self._props.topic_arn],
            **(self._one(alert) if len(alert.series) == 1 else self._several(alert)),  # type: ignore[arg-type]
        )

    def _one(self, alert: Alert) -> dict[str, object]:
        (series,) = alert.series
        percentile = series.statistic.startswith("p")
        return {
            "namespace": series.namespace,
            "metric_name": series.metric.name,
            "dimensions": self._dimensions(series),
            "period": alert.period_s,
            "extended_statistic" if percentile else "statistic": series.statistic,
            # A percentile of a handful of callers says nothing.
            "evaluate_low_sample_count_percentile": "ignore" if percentile else None,
        }

    def _several(self, alert: Alert) -> dict[str, object]:
        ids = [f"m{number}" for number in range(len(alert.series))]
        data = cloudwatch.CfnAlarm.MetricDataQueryProperty
        return {
            "metrics": [
                data(id="folded", expression=f"{alert.fold}([{','.join(ids)}])", label=alert.id, return_data=True),
                *(
                    data(id=id_, metric_stat=self._metric_stat(series, alert.period_s), return_data=False)
                    for id_, series in zip(ids, alert.series, strict=True)
                ),
            ]
        }

    def _metric_stat(self, series: Series, period_s: int) -> cloudwatch.CfnAlarm.MetricStatProperty:
        return cloudwatch.CfnAlarm.MetricStatProperty(
            metric=cloudwatch.CfnAlarm.MetricProperty(
                namespace=series.namespace, metric_name=series.metric.name, dimensions=self._dimensions(series)
            ),
            period=period_s,
            stat=series.statistic,
        )

    def _dimensions(self, series: Series) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
        return [
            cloudwatch.CfnAlarm.DimensionProperty(name=name, value=resolve(value, self._props.resources))
            for name, value in series.dimensions.items()
        ]

    def _build_composite(self, alarms: Mapping[str, cloudwatch.CfnAlarm]) -> None:
        composite = cloudwatch.CfnCompositeAlarm(
            self,
            "CallersAffected",
            alarm_name=names.alert_alarm(self._props.deployment, CALLERS_AFFECTED),
            alarm_description=self._describe(CALLERS_AFFECTED, "Callers notice: see which of its alarms fire."),
            alarm_rule=" OR ".join(f'ALARM("{name}")' for name in alarms),
            alarm_actions=[self._props.topic_arn],
            ok_actions=[self._props.topic_arn],
        )
        composite.node.add_dependency(*alarms.values())

    def _describe(self, id_: str, meaning: str) -> str:
        return f"{meaning} Runbook: {names.runbook_url(self._props.deployment, id_)}"


def resolve(value: str | Resource, resources: Mapping[Resource, str]) -> str:
    """Return a dimension's value, looked up where only a deploy knows it."""
    return resources[value] if isinstance(value, Resource) else value
