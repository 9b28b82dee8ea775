"""Alerts in managed Prometheus and Azure Monitor, a budget, and the action group that they notify."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pulumi
from pulumi_azure_native import alertsmanagement, consumption, monitor

from voice_blueprint.azure import names
from voice_blueprint.observability.azure.alerts import (
    MAX_BUDGET_FORECAST_PERCENT,
    MAX_BUDGET_SPENT_PERCENT,
    Alert,
    RecordingRule,
    build_recording_rules,
    group_alerts,
)
from voice_blueprint.observability.azure.platform import MonitoredService, PlatformAlert, build_platform_alerts
from voice_constructs.azure.scope import Scope

_EVALUATION_INTERVAL = "PT1M"
"""Evaluation interval of rules, which is Azure's minimum."""
_ERROR_SEVERITY, _WARNING_SEVERITY = 1, 2
"""Severities in Azure Monitor, 0 to 4."""


class PrometheusAlerts(pulumi.ComponentResource):
    """Rule groups for the cluster and for each service, and a group of recording rules for start-up times.

    Args:
        metrics: Id of the Azure Monitor workspace that the rules read.
        cluster_name: Name of the cluster. The rules read only this cluster's metrics in the workspace.

    Attributes:
        operator_group_id: Id of the action group that alerts notify.
    """

    def __init__(self, name: str, *, scope: Scope, metrics: pulumi.Input[str], cluster_name: pulumi.Input[str]) -> None:
        super().__init__("voice:azure:Alerts", name)
        self._scope, self._metrics, self._cluster_name = scope, metrics, cluster_name
        self._child = pulumi.ResourceOptions(parent=self)
        self.operator_group_id = self._build_action_group().id
        for group, alerts in group_alerts(scope.deployment).items():
            self._build_rules(group, [self._build_alert_rule(alert) for alert in alerts])
        self._build_rules("starts", [_build_recording_rule(each) for each in build_recording_rules()])
        if scope.deployment.azure.observability.monthly_budget:
            self._build_budget(scope.deployment.azure.observability.monthly_budget)
        self.register_outputs({})

    def _build_action_group(self) -> monitor.ActionGroup:
        email = self._scope.deployment.azure.observability.email
        return monitor.ActionGroup(
            "operators",
            resource_group_name=self._scope.group,
            action_group_name=self._scope.build_name("operators"),
            group_short_name="voice-serve",
            location="Global",
            enabled=True,
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(
                    name="operators", email_address=email, use_common_alert_schema=True
                )
            ]
            if email
            else [],
            tags=self._scope.tags,
            opts=self._child,
        )

    def _build_rules(self, group: str, rules: list[alertsmanagement.PrometheusRuleArgs]) -> None:
        alertsmanagement.PrometheusRuleGroup(
            f"rules-{group}",
            resource_group_name=self._scope.group,
            rule_group_name=self._scope.build_name(f"rules-{group}"),
            location=self._scope.location,
            cluster_name=self._cluster_name,
            scopes=[self._metrics],
            interval=_EVALUATION_INTERVAL,
            enabled=True,
            rules=rules,
            tags=self._scope.tags,
            opts=self._child,
        )

    def _build_alert_rule(self, alert: Alert) -> alertsmanagement.PrometheusRuleArgs:
        return alertsmanagement.PrometheusRuleArgs(
            alert=alert.name,
            expression=alert.expression,
            for_=f"PT{alert.minutes}M",
            severity=_ERROR_SEVERITY if alert.affects_callers else _WARNING_SEVERITY,
            enabled=True,
            annotations={
                "description": alert.meaning,
                "runbook": names.build_runbook_url(self._scope.deployment, alert.id),
            },
            actions=[alertsmanagement.PrometheusRuleGroupActionArgs(action_group_id=self.operator_group_id)],
            resolve_configuration=alertsmanagement.PrometheusRuleResolveConfigurationArgs(
                auto_resolved=True, time_to_resolve="PT5M"
            ),
        )

    def _build_budget(self, amount: int) -> None:
        """Create a budget that covers the deployment's resource group and the group in which AKS creates nodes."""
        deployment = self._scope.deployment
        groups = [names.build_resource_group_name(deployment), names.build_node_resource_group_name(deployment)]
        consumption.Budget(
            "budget",
            budget_name=self._scope.build_name("monthly"),
            scope=f"/subscriptions/{self._scope.subscription}",
            amount=amount,
            category=consumption.CategoryType.COST,
            time_grain=consumption.TimeGrainType.MONTHLY,
            time_period=consumption.BudgetTimePeriodArgs(start_date=f"{datetime.now(UTC):%Y-%m}-01T00:00:00Z"),
            filter=consumption.BudgetFilterArgs(
                dimensions=consumption.BudgetComparisonExpressionArgs(
                    name="ResourceGroupName", operator=consumption.BudgetOperatorType.IN_, values=groups
                )
            ),
            notifications=dict(self._build_notifications()),
            # Azure only accepts the current month as the start date, and does not allow the date to be changed later.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["timePeriod"]),
        )

    def _build_notifications(self) -> Iterator[tuple[str, consumption.NotificationArgs]]:
        limits: Mapping[consumption.ThresholdType, int] = {
            consumption.ThresholdType.ACTUAL: MAX_BUDGET_SPENT_PERCENT,
            consumption.ThresholdType.FORECASTED: MAX_BUDGET_FORECAST_PERCENT,
        }
        for kind, percent in limits.items():
            yield (
                f"{kind.value.lower()}-above-{percent}",
                consumption.NotificationArgs(
                    enabled=True,
                    operator=consumption.OperatorType.GREATER_THAN,
                    threshold=percent,
                    threshold_type=kind,
                    contact_emails=[],
                    contact_groups=[self.operator_group_id],
                ),
            )


def _build_recording_rule(recording: RecordingRule) -> alertsmanagement.PrometheusRuleArgs:
    return alertsmanagement.PrometheusRuleArgs(
        record=recording.record, expression=recording.query, labels=recording.labels, enabled=True
    )


class PlatformAlerts(pulumi.ComponentResource):
    """A metric alert for each alert on an Azure service.

    Args:
        operators: Id of the action group to notify.
        services: Ids of the services, by resource type.
    """

    def __init__(
        self,
        name: str,
        *,
        scope: Scope,
        operators: pulumi.Input[str],
        services: Mapping[MonitoredService, pulumi.Input[str]],
    ) -> None:
        super().__init__("voice:azure:PlatformAlerts", name)
        self._scope, self._operators = scope, operators
        for alert in build_platform_alerts(scope.deployment):
            self._build_alert(alert, services[alert.service])
        self.register_outputs({})

    def _build_alert(self, alert: PlatformAlert, service: pulumi.Input[str]) -> None:
        runbook = names.build_runbook_url(self._scope.deployment, alert.id)
        monitor.MetricAlert(
            alert.id,
            resource_group_name=self._scope.group,
            rule_name=self._scope.build_name(alert.id),
            # A rule on a single resource is global.
            location="global",
            description=f"{alert.meaning} Runbook: {runbook}",
            severity=_ERROR_SEVERITY if alert.affects_callers else _WARNING_SEVERITY,
            enabled=True,
            auto_mitigate=True,
            scopes=[service],
            evaluation_frequency=f"PT{alert.evaluation_interval_minutes}M",
            window_size=f"PT{alert.window_minutes}M",
            criteria=monitor.MetricAlertSingleResourceMultipleMetricCriteriaArgs(
                odata_type="Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                all_of=[_build_metric_criteria(alert)],
            ),
            actions=[monitor.MetricAlertActionArgs(action_group_id=self._operators)],
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def _build_metric_criteria(alert: PlatformAlert) -> monitor.MetricCriteriaArgs:
    return monitor.MetricCriteriaArgs(
        criterion_type="StaticThresholdCriterion",
        name=alert.id,
        metric_namespace=alert.service,
        metric_name=alert.metric,
        time_aggregation=alert.aggregation,
        operator=monitor.Operator.GREATER_THAN,
        threshold=alert.threshold,
        dimensions=[
            monitor.MetricDimensionArgs(name=alert.dimension[0], operator="Include", values=[alert.dimension[1]])
        ]
        if alert.dimension
        else [],
    )
