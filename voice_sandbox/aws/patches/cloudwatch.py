"""CloudWatch: composite alarms, metric math, and alarms that start without data and keep their state when changed."""

from __future__ import annotations

from typing import Any

from moto.cloudwatch import models, urls
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult

from voice_sandbox.aws.patches.base import get_action_result, replace_response_class, store_parameters
from voice_sandbox.aws.patches.metric_math import evaluate_expression


class PatchedCloudWatch(CloudWatchResponse):
    """moto's CloudWatch API, extended with the operations that moto lacks."""

    def put_metric_alarm(self) -> ActionResult:
        """Handle PutMetricAlarm; moto would set the state to OK on every change."""
        alarms = self.cloudwatch_backend.alarms
        before = alarms.get(self._get_param("AlarmName"))
        answer = super().put_metric_alarm()
        alarm = alarms[self._get_param("AlarmName")]
        if before is None:
            alarm.state_value = "INSUFFICIENT_DATA"
        else:
            alarm.state_value, alarm.state_reason = before.state_value, before.state_reason
            alarm.state_updated_timestamp, alarm.history = before.state_updated_timestamp, before.history
        return answer

    def put_composite_alarm(self) -> ActionResult:
        """Handle PutCompositeAlarm; the rule is stored, not evaluated."""
        answer = self.put_metric_alarm()
        alarm = self.cloudwatch_backend.alarms[self._get_param("AlarmName")]
        names = ("AlarmRule", "ActionsSuppressor", "ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
        store_parameters(alarm, self._get_params(), *names)
        return answer

    def describe_alarms(self) -> ActionResult:
        """Handle DescribeAlarms; as in AWS, composite alarms are only returned on request."""
        answer = super().describe_alarms()
        kinds = self._get_param("AlarmTypes", None) or ["MetricAlarm"]
        for kind in ("MetricAlarm", "CompositeAlarm"):
            if kind not in kinds:
                get_action_result(answer)[f"{kind}s"] = []
        return answer


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, CloudWatchResponse, PatchedCloudWatch)
    module: Any = models
    module.parse_expression = evaluate_expression
