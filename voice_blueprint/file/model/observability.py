"""Notifications, budgets and retention of logs."""

from typing import Literal

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.file.model.text import EmailAddress, RunbookUrl, SecretPath

LogRetentionDays = Literal[1, 3, 7, 14, 30, 60, 90, 180, 365, 400, 731]


RUNBOOKS_URL = "https://github.com/voice-serve/voice-serve/blob/main/docs/runbooks"


LatencyThresholdMs = Literal[300, 500, 750, 1000, 1500, 2000, 2500, 3000, 5000]
"""Bounds of the histograms of gateways and agents (``voice_blueprint.contract.metrics.LATENCY_BUCKETS_MS``)."""


class ObjectiveSettings(Model):
    """Service level objectives over 30 days. The part up to 100 % is the error budget.

    Operators are paged when an hour or six hours spend the budget 14 or 6 times as fast as 30 days would.
    """

    admitted_percent: float = Field(default=99.5, ge=90, le=99.99)
    """Share of the calls that are not refused for lack of capacity, percent."""
    final_percent: float = Field(default=98, ge=90, le=99.99)
    """Share of the calls whose first final transcript arrives in time, percent."""
    final_within_ms: LatencyThresholdMs = 1000
    """Time from the end of a call's first speech to its final transcript, milliseconds."""
    turn_percent: float = Field(default=98, ge=90, le=99.99)
    """Share of the turns whose answer begins in time, percent. Applies if the file has `agents`."""
    turn_within_ms: LatencyThresholdMs = 2500
    """Time from the end of a question to the first sound of its answer, milliseconds."""


class AzureObservability(Model):
    """Alerts, objectives and budget of an Azure section."""

    objectives: ObjectiveSettings = ObjectiveSettings()

    email: EmailAddress | None = None
    """Receives every alert and the notifications of the budget. By default they only appear in the Azure portal."""
    monthly_budget: int | None = Field(default=None, gt=0)
    """Monthly budget for the deployment's two resource groups, in the billing currency of the subscription. Azure
    notifies at 80 % spent and at 100 % forecast. By default there is no budget."""
    runbook_url: RunbookUrl = RUNBOOKS_URL
    """Base URL of the links to runbooks in alerts."""


class Observability(Model):
    """Dashboards, alarms, objectives, logs, budget."""

    objectives: ObjectiveSettings = ObjectiveSettings()

    monthly_budget_usd: int = Field(gt=0)
    """Monthly budget for all regions, USD. AWS Budgets notifies at 80 % spent and at 100 % forecast."""
    email: EmailAddress | None = None
    """Receives every alarm, after it has confirmed the subscription."""
    chat_webhook_secret: SecretPath | None = None
    """Name of the Secrets Manager secret that contains the URL of an HTTPS webhook.

    The webhook must confirm its SNS subscription, as those of PagerDuty and Opsgenie do. Those of Slack and Teams do
    not: use Amazon Q Developer in chat applications (formerly AWS Chatbot) or a relay."""
    log_retention_days: LogRetentionDays = 30
    """Retention of the logs of hosts and services, days."""
    runbook_url: RunbookUrl = RUNBOOKS_URL
    """Base URL of the links to runbooks in alarms."""
