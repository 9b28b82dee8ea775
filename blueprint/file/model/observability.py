"""Who is told, and what is kept."""

from typing import Annotated, Literal

from pydantic import Field

from blueprint.base import Model

LogRetentionDays = Literal[1, 3, 7, 14, 30, 60, 90, 180, 365, 400, 731]


class Observability(Model):
    """Dashboards, alarms, logs, budget."""

    monthly_budget_usd: int = Field(gt=0)
    """Budget of a month, USD; AWS Budgets reports at 80 % of it spent and at 100 % forecast."""
    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    """Gets every alarm; AWS asks it to confirm first."""
    chat_webhook_secret: Annotated[str, Field(pattern=r"^[\w/+=.@-]+$")] | None = None
    """Name of the Secrets Manager secret that holds an HTTPS webhook's URL; the URL itself is a secret.

    The address has to confirm an SNS subscription, as those of PagerDuty and Opsgenie do. Slack's and Teams' own
    webhooks do not: put Amazon Q Developer in chat applications (once AWS Chatbot), or a relay, between."""
    log_retention_days: LogRetentionDays = 30
    """How long logs of hosts and services are kept, days."""
    runbook_url: Annotated[str, Field(pattern=r"^https://\S+[^/]$")] = (
        "https://github.com/voice-serve/voice-serve/blob/main/docs/runbooks"
    )
    """Where the alarms' links to docs/runbooks lead."""
