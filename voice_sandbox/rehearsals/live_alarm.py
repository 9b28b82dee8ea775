"""A deployed metric alarm that is evaluated as in CloudWatch, since moto stores alarms without evaluating them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from voice_blueprint.aws.alarms import (
    COMPARISON_OPERATORS,
    MISSING_DATA_TREATMENTS,
    AlarmRule,
    AlarmState,
    count_evaluated_periods,
    evaluate_alarm,
)
from voice_blueprint.contract.metrics import METRICS, STORAGE_RESOLUTION_S

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient

_COMPARISON_BY_OPERATOR = {operator: comparison for comparison, operator in COMPARISON_OPERATORS.items()}
_MISSING_DATA_RULE_BY_TREATMENT = {word: rule for rule, word in MISSING_DATA_TREATMENTS.items()}


class LiveAlarm:
    """A metric alarm as described by the local AWS.

    Attributes:
        name: Name of the alarm.
        rule: Rule that determines the state of the alarm.
        period: Period of a datapoint.
        actions: ARNs of the actions for the state ALARM.
    """

    def __init__(self, cloudwatch: CloudWatchClient, name: str) -> None:
        self._cloudwatch = cloudwatch
        self._alarm = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]
        self.name = name
        self.period = timedelta(seconds=self._alarm["Period"])
        self.actions = self._alarm["AlarmActions"]
        self.rule = AlarmRule(
            comparison=_COMPARISON_BY_OPERATOR[self._alarm["ComparisonOperator"]],
            threshold=self._alarm["Threshold"],
            datapoints_to_alarm=self._alarm["DatapointsToAlarm"],
            evaluation_periods=self._alarm["EvaluationPeriods"],
            missing_data=_MISSING_DATA_RULE_BY_TREATMENT[self._alarm["TreatMissingData"]],
        )

    def publish(self, value: float, at: datetime) -> None:
        """Publish a sample of the alarm's metric, as the actual publisher would."""
        metric = METRICS[self._alarm["MetricName"]]
        self._cloudwatch.put_metric_data(
            Namespace=self._alarm["Namespace"],
            MetricData=[
                {
                    "MetricName": metric.name,
                    "Dimensions": self._alarm["Dimensions"],
                    "Timestamp": at,
                    "Value": value,
                    "Unit": metric.unit,
                    "StorageResolution": STORAGE_RESOLUTION_S,
                }
            ],
        )

    def evaluate_state(self, at: datetime, current: AlarmState) -> AlarmState:
        """Return the state at the end of a period, as calculated from CloudWatch statistics."""
        return evaluate_alarm(self.rule, self.fetch_datapoints(at), current)

    def fetch_datapoints(self, at: datetime) -> list[float | None]:
        """Return the datapoints of the evaluation range that ends at a time, oldest first."""
        ages = range(count_evaluated_periods(self.rule), 0, -1)
        return [self._fetch_datapoint(at - age * self.period) for age in ages]

    def _fetch_datapoint(self, start: datetime) -> float | None:
        statistic = self._alarm["Statistic"]
        statistics = self._cloudwatch.get_metric_statistics(
            Namespace=self._alarm["Namespace"],
            MetricName=self._alarm["MetricName"],
            Dimensions=self._alarm["Dimensions"],
            StartTime=start,
            EndTime=start + self.period,
            Period=self._alarm["Period"],
            Statistics=[statistic],
        )["Datapoints"]
        return float(statistics[0][statistic]) if statistics else None
