"""CloudWatch: alarms, composite alarms and dashboards. Alarms are stored; nothing evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, without


class Alarm(Adapter):
    """A metric alarm."""

    resource_type = "AWS::CloudWatch::Alarm"
    service = "cloudwatch"
    name = "AlarmName"
    name_limit = 255
    operation = "put_metric_alarm"
    kind = "MetricAlarms"

    def create(self, properties: Properties) -> str:
        """Put the alarm."""
        self.call(self.operation, properties)
        return str(properties["AlarmName"])

    def update(self, new: Properties) -> None:
        """Put the alarm again; tags are not taken for an alarm that exists."""
        self.call(self.operation, without(new, "Tags"))

    def delete(self) -> None:
        """Delete the alarm."""
        self.call("delete_alarms", AlarmNames=[self.id])

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        found = self.call("describe_alarms", AlarmNames=[self.id], AlarmTypes=["MetricAlarm", "CompositeAlarm"])
        return {"Arn": found[self.kind][0]["AlarmArn"]}


class CompositeAlarm(Alarm):
    """An alarm over other alarms."""

    resource_type = "AWS::CloudWatch::CompositeAlarm"
    operation = "put_composite_alarm"
    kind = "CompositeAlarms"


class Dashboard(Adapter):
    """A dashboard."""

    resource_type = "AWS::CloudWatch::Dashboard"
    service = "cloudwatch"
    name = "DashboardName"

    def create(self, properties: Properties) -> str:
        """Put the dashboard."""
        self.call("put_dashboard", without(properties, "Tags"))
        return str(properties["DashboardName"])

    def update(self, new: Properties) -> None:
        """Put the dashboard again."""
        self.call("put_dashboard", without(new, "Tags"))

    def delete(self) -> None:
        """Delete the dashboard."""
        self.call("delete_dashboards", DashboardNames=[self.id])
