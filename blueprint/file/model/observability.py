"""Who is told, and what is kept."""

from typing import Annotated, Literal

from pydantic import Field

from blueprint.base import Model

LogRetentionDays = Literal[1, 3, 7, 14, 30, 60, 90, 180, 365, 400, 731]


Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
RunbookUrl = Annotated[str, Field(pattern=r"^https://\S+[^/]$")]
RUNBOOKS = "https://github.com/voice-serve/voice-serve/blob/main/docs/runbooks"


class AzureObservability(Model):
    """Alerts and budget of an Azure half."""

    email: Email | None = None
    """Gets every alert, and the budget's messages. Without it they show in the Azure portal only."""
    monthly_budget: int | None = Field(default=None, gt=0)
    """Budget of a month for the deployment's two resource groups, in the currency of the subscription's bill; reports
    at 80 % of it spent and at 100 % forecast. Without it there is none."""
    runbook_url: RunbookUrl = RUNBOOKS
    """Where the alerts' links to docs/runbooks lead."""


class Observability(Model):
    """Dashboards, alarms, logs, budget."""

    monthly_budget_usd: int = Field(gt=0)
    """Budget of a month, USD, for all regions; AWS Budgets reports at 80 % of it spent and at 100 % forecast."""
    email: Email | None = None
    """Gets every alarm; AWS asks it to confirm first."""
    chat_webhook_secret: Annotated[str, Field(pattern=r"^[\w/+=.@-]+$")] | None = None
    """Name of the Secrets Manager secret that holds an HTTPS webhook's URL; the URL itself is a secret.

    The address has to confirm an SNS subscription, as those of PagerDuty and Opsgenie do. Slack's and Teams' own
    webhooks do not: put Amazon Q Developer in chat applications (once AWS Chatbot), or a relay, between."""
    log_retention_days: LogRetentionDays = 30
    """How long logs of hosts and services are kept, days."""
    runbook_url: RunbookUrl = RUNBOOKS
    """Where the alarms' links to docs/runbooks lead."""
