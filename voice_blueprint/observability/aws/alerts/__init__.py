"""Alerts for operators. Each becomes an alarm, and its id is the name of its runbook.

An alert requires an action by an operator; other metrics are only shown on dashboards. The alarms of scaling rules are
not alerts: they change fleets and notify no operator, but they have runbooks as well.
"""

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import ScalingRule
from voice_blueprint.observability.aws.alerts.base import BUDGET, CALLERS_AFFECTED, FLEET_GROWS, FLEET_SHRINKS, Alert
from voice_blueprint.observability.aws.alerts.fleets import fleet_alerts, network_alerts
from voice_blueprint.observability.aws.alerts.objectives import objective_alerts
from voice_blueprint.observability.aws.alerts.tiers import (
    agent_alerts,
    asr_alerts,
    edge_alerts,
    state_alerts,
    vad_alerts,
)

__all__ = [
    "BUDGET",
    "CALLERS_AFFECTED",
    "FLEET_GROWS",
    "FLEET_SHRINKS",
    "Alert",
    "alerts",
    "network_alerts",
    "scaling_runbook",
]


def alerts(deployment: Deployment) -> tuple[Alert, ...]:
    """Return all alerts that apply to a deployment."""
    sections = (
        vad_alerts,
        asr_alerts,
        edge_alerts,
        agent_alerts,
        objective_alerts,
        fleet_alerts,
        state_alerts,
        network_alerts,
    )
    return tuple(alert for section in sections for alert in section(deployment))


def scaling_runbook(deployment: Deployment, rule: ScalingRule) -> str:
    """Return the URL of the runbook of a scaling rule's alarm."""
    return names.runbook_url(deployment, FLEET_GROWS if rule.adds_hosts else FLEET_SHRINKS)
