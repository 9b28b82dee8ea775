"""Alerts for operators. Each becomes an alarm, and its id is the name of its runbook.

An alert requires an action by an operator; other metrics are only shown on dashboards. The alarms of scaling rules are
not alerts: they change fleets and notify no operator, but they have runbooks as well.
"""

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import ScalingRule
from voice_blueprint.observability.aws.alerts.base import (
    BUDGET_RUNBOOK,
    CALLERS_AFFECTED_ALARM,
    FLEET_GROWS_RUNBOOK,
    FLEET_SHRINKS_RUNBOOK,
    Alert,
)
from voice_blueprint.observability.aws.alerts.fleets import build_fleet_alerts, build_network_alerts
from voice_blueprint.observability.aws.alerts.objectives import build_objective_alerts
from voice_blueprint.observability.aws.alerts.tiers import (
    build_agent_alerts,
    build_asr_alerts,
    build_edge_alerts,
    build_state_alerts,
    build_vad_alerts,
)

__all__ = [
    "BUDGET_RUNBOOK",
    "CALLERS_AFFECTED_ALARM",
    "FLEET_GROWS_RUNBOOK",
    "FLEET_SHRINKS_RUNBOOK",
    "Alert",
    "build_alerts",
    "build_network_alerts",
    "format_scaling_runbook_url",
]


def build_alerts(deployment: Deployment) -> tuple[Alert, ...]:
    """Return all alerts that apply to a deployment."""
    sections = (
        build_vad_alerts,
        build_asr_alerts,
        build_edge_alerts,
        build_agent_alerts,
        build_objective_alerts,
        build_fleet_alerts,
        build_state_alerts,
        build_network_alerts,
    )
    return tuple(alert for section in sections for alert in section(deployment))


def format_scaling_runbook_url(deployment: Deployment, rule: ScalingRule) -> str:
    """Return the runbook URL for a scaling rule's alarm."""
    return names.build_runbook_url(deployment, FLEET_GROWS_RUNBOOK if rule.adds_hosts else FLEET_SHRINKS_RUNBOOK)
