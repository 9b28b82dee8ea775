"""Rejections by Grafana, Azure Monitor and Cost Management."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    evaluate_each,
    require_range,
    require_unchanged,
)
from voice_sandbox.azure.refusals.sources import AZURERM_DOCS, AZURERM_FILES, AZURERM_URL

GRAFANA, RULES, SETTING = "dashboard:Grafana", "alertsmanagement:PrometheusRuleGroup", "monitor:DiagnosticSetting"
BUDGET, WORKSPACE = "consumption:Budget", "operationalinsights:Workspace"
_RULE_GROUP_SOURCE_URL = f"{AZURERM_FILES}/monitor/monitor_alert_prometheus_rule_group_resource.go"
_SETTING_SOURCE_URL = f"{AZURERM_FILES}/monitor/monitor_diagnostic_setting_resource.go"
_BUDGET_SOURCE_URL = f"{AZURERM_FILES}/consumption"
_ALERT_PROPERTIES = ("actions", "severity", "annotations", "for", "resolveConfiguration")
_MAX_ACTIONS, _MAX_SEVERITY = 5, 4
_CONTACT_FIELDS = ("contactEmails", "contactGroups", "contactRoles")


def _find_rule_kind_problems(rule: RequestPart) -> Iterator[str]:
    if bool(rule.get("alert")) == bool(rule.get("record")):
        alert, record = (rule.get_text(name) or "missing" for name in ("alert", "record"))
        yield f"{rule.path} has alert {alert} and record {record}"


def _find_recording_rule_problems(rule: RequestPart) -> Iterator[str]:
    if rule.get("record"):
        for name in _ALERT_PROPERTIES:
            if rule.get(name) is not None:
                yield f"{rule.to_full_path(name)} of {rule.get_text('record')} is not empty"


def _find_alert_limit_problems(rule: RequestPart) -> Iterator[str]:
    severity, actions = rule.get_number("severity"), len(rule.get_parts("actions"))
    if severity is not None and not 0 <= severity <= _MAX_SEVERITY:
        yield f"{rule.to_full_path('severity')} is {severity:g}; it must be at least 0 and at most {_MAX_SEVERITY}"
    if actions > _MAX_ACTIONS:
        yield f"{rule.to_full_path('actions')} has {actions} action groups; it must have at most {_MAX_ACTIONS}"


def _find_interval_problems(request: Request) -> Iterator[str]:
    interval = request.body.get_text("interval")
    if interval and not re.fullmatch(r"PT(1[0-5]|[1-9])M", interval):
        yield f"interval is {interval}"


def _find_empty_setting_problems(request: Request) -> Iterator[str]:
    kinds = [*request.body.get_parts("logs"), *request.body.get_parts("metrics")]
    if not any(kind.get("enabled") for kind in kinds):
        yield "no log category and no metric is enabled"


def _find_category_problems(log: RequestPart) -> Iterator[str]:
    if bool(log.get("category")) == bool(log.get("categoryGroup")):
        yield f"{log.path} has category {log.get_text('category') or 'missing'} and categoryGroup " + (
            log.get_text("categoryGroup") or "missing"
        )


def _find_duplicate_sink_problems(request: Request) -> Iterator[str]:
    def get_sink(setting: RequestPart) -> tuple[str, str]:
        return setting.get_text("resourceUri").lower(), setting.get_text("workspaceId").lower()

    def list_categories(setting: RequestPart) -> set[str]:
        return {
            log.get_text("category") or log.get_text("categoryGroup")
            for log in setting.get_parts("logs")
            if log.get("enabled")
        }

    for _, setting in request.iter_existing_resources(SETTING):
        shared = list_categories(setting) & list_categories(request.body)
        if get_sink(setting) == get_sink(request.body) and shared:
            yield f"setting {setting.get_text('name')} sends {', '.join(sorted(shared))} to the same workspace"


def _find_budget_start_problems(request: Request) -> Iterator[str]:
    start = request.body.get_text("timePeriod.startDate")
    if start and not start[:10].endswith("-01"):
        yield f"timePeriod.startDate is {start}"


def _find_past_month_problems(request: Request) -> Iterator[str]:
    start, now = request.body.get_text("timePeriod.startDate")[:7], f"{datetime.now(UTC):%Y-%m}"
    if request.previous_body is None and start and start < now and request.body.get_text("timeGrain") == "Monthly":
        yield f"timePeriod.startDate is in {start}, now is {now}"


def _find_notification_problems(notification: RequestPart) -> Iterator[str]:
    threshold = notification.get_number("threshold")
    if not any(notification.get_texts(name) for name in _CONTACT_FIELDS):
        yield f"{notification.path} has no {', '.join(_CONTACT_FIELDS)}"
    if threshold is not None and not 0 <= threshold <= 1000:  # noqa: PLR2004  the service's range
        yield f"{notification.to_full_path('threshold')} is {threshold:g}; it must be at least 0 and at most 1000"


REJECTION_RULES = (
    RejectionRule(
        "grafana-version", GRAFANA, "GrafanaMajorVersionNotSupported", "Only Grafana 12 and 13 are supported",
        allow_only("properties.grafanaMajorVersion", "12", "13"),
        "set grafanaMajorVersion to 12", "https://github.com/microsoft/physical-ai-toolchain/pull/1033",
    ),
    RejectionRule(
        "rule-kind", RULES, BAD_REQUEST, "A rule must have exactly one of alert and record",
        evaluate_each("rules", _find_rule_kind_problems), "remove one of the two", f"{_RULE_GROUP_SOURCE_URL}#L80-L82",
    ),
    RejectionRule(
        "recording-rule", RULES, BAD_REQUEST, "Properties of alerts must be empty in a recording rule",
        evaluate_each("rules", _find_recording_rule_problems), "remove " + ", ".join(_ALERT_PROPERTIES),
        f"{_RULE_GROUP_SOURCE_URL}#L85-L95",
    ),
    RejectionRule(
        "alert-limits", RULES, BAD_REQUEST, "An alert has a severity of 0 to 4 and at most five action groups",
        evaluate_each("rules", _find_alert_limit_problems), "choose a severity from 0 to 4, and at most five action "
            "groups", f"{_RULE_GROUP_SOURCE_URL}#L128-L216",
    ),
    RejectionRule(
        "rule-interval", RULES, BAD_REQUEST, "Rules are evaluated every 1 to 15 minutes",
        _find_interval_problems, "set interval to PT1M",
        "https://learn.microsoft.com/javascript/api/@azure/arm-prometheusrulegroups/prometheusrulegroupproperties",
    ),
    RejectionRule(
        "setting-is-empty", SETTING, BAD_REQUEST, "At least one type of log or metric must be enabled",
        _find_empty_setting_problems, "enable a category", f"{_SETTING_SOURCE_URL}#L200",
    ),
    RejectionRule(
        "log-category", SETTING, BAD_REQUEST, "Exactly one of category and categoryGroup must be specified",
        evaluate_each("logs", _find_category_problems), "remove one of the two", f"{_SETTING_SOURCE_URL}#L541",
    ),
    RejectionRule(
        "sink-twice", SETTING, "Conflict", "Data sinks can't be reused in different settings on the same category",
        _find_duplicate_sink_problems, "join the settings", "https://github.com/Azure/bicep-registry-modules/issues/3407",
    ),
    RejectionRule(
        "budget-start", BUDGET, BAD_REQUEST, "The start date must be first of the month",
        _find_budget_start_problems, "set the start date to the first of a month",
        f"{_BUDGET_SOURCE_URL}/validate/time_period.go#L28",
    ),
    RejectionRule(
        "budget-in-past", BUDGET, BAD_REQUEST, "The start date should not be prior to the current month",
        _find_past_month_problems, "set the start date to the first of this month", f"{AZURERM_URL}/pull/12121",
    ),
    RejectionRule(
        "budget-start-stays", BUDGET, BAD_REQUEST, "Start date of budgets cannot be updated",
        require_unchanged("timePeriod.startDate"),
        "ignore changes of timePeriod", "https://github.com/Azure/CanadaPubSecALZ/issues/317",
    ),
    RejectionRule(
        "budget-notification", BUDGET, BAD_REQUEST,
        "A notification must have a threshold of 0 to 1,000 percent and a contact",
        evaluate_each("notifications", _find_notification_problems), "name an action group",
        f"{AZURERM_DOCS}/consumption_budget_subscription.html.markdown#L137",
    ),
    RejectionRule(
        "budget-amount", BUDGET, BAD_REQUEST, "A budget is 1 at least",
        require_range("amount", 1), "raise observability.monthly_budget",
        f"{_BUDGET_SOURCE_URL}/consumption_budget_base.go#L97",
    ),
    RejectionRule(
        "log-retention", WORKSPACE, BAD_REQUEST, "Log retention must be between 30 and 730 days",
        require_range("retentionInDays", 30, 730), "set log_retention_days between them",
        f"{AZURERM_FILES}/loganalytics/log_analytics_workspace_resource.go#L155",
    ),
)  # fmt: skip
