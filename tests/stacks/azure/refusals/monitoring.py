"""Refusal cases of Grafana, Azure Monitor and Cost Management."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.stacks.azure.refusals.planted import REMOVED, Case, Damage, changed, copy_resource
from voice_sandbox.azure.graph import Resource

RULES, SETTING, BUDGET = "alertsmanagement:PrometheusRuleGroup", "monitor:DiagnosticSetting", "consumption:Budget"
START = "timePeriod.startDate"
THIS_MONTH = datetime.now(UTC).replace(day=1)
ACTION = {"actionGroupId": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Insights/actionGroups/a"}
NOTIFICATION = "notifications.actual-above-80"


def first_day(of_month: datetime) -> str:
    return f"{of_month:%Y-%m}-01T00:00:00Z"


def change_start_date(start: str) -> Damage:
    """Change the start date of the budget, in a program that does not ignore it."""

    def damage(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
        moved = changed(BUDGET, "budget", timePeriod={"startDate": start})(resources)
        return tuple(replace(each, ignore_changes=()) if each.name == "budget" else each for each in moved)

    return damage


CASES = (
    Case("grafana-version", "dashboard:Grafana", "grafana", {"properties.grafanaMajorVersion": "11"},
         {"properties.grafanaMajorVersion": "13"}, 'grafanaMajorVersion is "11"; it must be "12" or "13"'),
    Case("rule-kind", RULES, "rules-cluster", {"rules.0.record": "voice:down"}),
    Case("rule-kind", RULES, "rules-starts", {"rules.0.record": REMOVED}),
    Case("recording-rule", RULES, "rules-starts", {"rules.0.severity": 1}, {"rules.0.labels": {}}),
    Case("alert-limits", RULES, "rules-cluster", {"rules.0.severity": 5}, {"rules.0.severity": 4}),
    Case("alert-limits", RULES, "rules-cluster", {"rules.0.actions": [ACTION] * 6}, {"rules.0.actions": [ACTION] * 5}),
    Case("rule-interval", RULES, "rules-cluster", {"interval": "PT30S"}, {"interval": "PT15M"}, "interval is PT30S"),
    Case("rule-interval", RULES, "rules-cluster", {"interval": "PT16M"}),
    Case("setting-is-empty", SETTING, "vault-audit", {"logs.0.enabled": False},
         {"logs.0.enabled": False, "metrics": [{"category": "AllMetrics", "enabled": True}]}),
    Case("log-category", SETTING, "vault-audit", {"logs.0.category": "AuditEvent"},
         {"logs.0.category": "AuditEvent", "logs.0.categoryGroup": REMOVED}),
    Case("sink-twice", SETTING, "registry-audit", copy_resource(SETTING, "registry-audit", "more"),
         copy_resource(SETTING, "registry-audit", "more", workspaceId="/other"), "setting audit sends audit"),
    Case("budget-start", BUDGET, "budget", {START: f"{THIS_MONTH:%Y-%m}-02T00:00:00Z"}, {START: first_day(THIS_MONTH)}),
    Case("budget-in-past", BUDGET, "budget", {START: first_day(THIS_MONTH - timedelta(days=1))},
         {START: first_day(THIS_MONTH + timedelta(days=40))}),
    Case("budget-start-stays", BUDGET, "budget", change_start_date(first_day(THIS_MONTH + timedelta(days=40))),
         change_start_date(first_day(THIS_MONTH)),
         update=True),
    Case("budget-start-stays", BUDGET, "budget", change_start_date(first_day(THIS_MONTH + timedelta(days=40))),
         {START: first_day(THIS_MONTH + timedelta(days=40))}, update=True),
    Case("budget-notification", BUDGET, "budget", {f"{NOTIFICATION}.contactGroups": []},
         {f"{NOTIFICATION}.contactGroups": [], f"{NOTIFICATION}.contactEmails": ["operators@example.com"]}),
    Case("budget-notification", BUDGET, "budget", {f"{NOTIFICATION}.threshold": 1001},
         {f"{NOTIFICATION}.threshold": 1000}),
    Case("budget-amount", BUDGET, "budget", {"amount": 0.5}, {"amount": 1}),
    Case("log-retention", "operationalinsights:Workspace", "logs", {"retentionInDays": 731}, {"retentionInDays": 730}),
)  # fmt: skip
