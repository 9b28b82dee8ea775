"""Notifications, budgets and retention of logs."""

from typing import Literal

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.file.model.text import EmailAddress, RunbookUrl, SecretPath

LogRetentionDays = Literal[1, 3, 7, 14, 30, 60, 90, 180, 365, 400, 731]


RUNBOOKS_URL = "https://github.com/voice-serve/voice-serve/blob/main/docs/runbooks"


LatencyThresholdMs = Literal[300, 500, 750, 1000, 1500, 2000, 2500, 3000, 5000]
"""Bucket bounds of the histograms of gateways and agents (``voice_blueprint.contract.metrics.LATENCY_BUCKETS_MS``)."""


class ObjectiveSettings(Model):
    """Service level objectives over 30 days. The error budget is the difference between an objective and 100 %.

    Operators are paged at a burn rate of 14 over one hour, or 6 over six hours. At a burn rate of 1, the budget lasts
    30 days.
    """

    admitted_percent: float = Field(default=99.5, ge=90, le=99.99)
    """Percentage of calls that are not refused for lack of capacity."""
    final_percent: float = Field(default=98, ge=90, le=99.99)
    """Percentage of calls whose first final transcript arrives in time."""
    final_within_ms: LatencyThresholdMs = 1000
    """Time from the end of a call's first speech to its final transcript, milliseconds."""
    turn_percent: float = Field(default=98, ge=90, le=99.99)
    """Percentage of turns whose answer begins in time. Applies if the file has `agents`."""
    turn_within_ms: LatencyThresholdMs = 2500
    """Time from the end of a question to the first sound of its answer, milliseconds."""


class AzureObservability(Model):
    """Alerts, objectives and budget of an Azure section."""

    objectives: ObjectiveSettings = ObjectiveSettings()

    email: EmailAddress | None = None
    """E-mail address that receives all alerts and budget notifications. By default, they appear only in the Azure
    portal."""
    monthly_budget: int | None = Field(default=None, gt=0)
    """Monthly budget for the deployment's two resource groups, in the billing currency of the subscription. Azure sends
    a notification when 80 % is spent, and when the forecast reaches 100 %. By default, there is no budget."""
    runbook_url: RunbookUrl = RUNBOOKS_URL
    """Base URL of the runbook links in alerts."""


class Observability(Model):
    """Dashboards, alarms, objectives, logs and budget."""

    objectives: ObjectiveSettings = ObjectiveSettings()

    monthly_budget_usd: int = Field(gt=0)
    """Monthly budget for all regions, USD. AWS Budgets sends a notification when 80 % is spent, and when the forecast
    reaches 100 %."""
    email: EmailAddress | None = None
    """E-mail address that receives all alarms, after its subscription is confirmed."""
    chat_webhook_secret: SecretPath | None = None
    """Name of the Secrets Manager secret that contains the URL of an HTTPS webhook.

    The webhook must confirm its SNS subscription, as those of PagerDuty and Opsgenie do. For Slack and Teams, whose
    webhooks do not, use Amazon Q Developer in chat applications (formerly AWS Chatbot) or a relay."""
    log_retention_days: LogRetentionDays = 30
    """Retention of the logs of hosts and services, days."""
    runbook_url: RunbookUrl = RUNBOOKS_URL
    """Base URL of the runbook links in alarms."""
