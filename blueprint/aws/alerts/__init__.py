"""What operators are told, and when: each alert becomes an alarm, and its id names its runbook.

An alert is here because somebody can do something about it; what is only interesting is on a dashboard. Scaling rules
are not alerts: their alarms change fleets and tell nobody, but they have runbooks too.
"""

from blueprint.aws import names
from blueprint.aws.alerts.base import BUDGET, CALLERS_AFFECTED, FLEET_GROWS, FLEET_SHRINKS, Alert
from blueprint.aws.alerts.fleets import of_fleets
from blueprint.aws.alerts.tiers import of_agents, of_asr, of_edge, of_state, of_vad
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import ScalingRule

__all__ = ["BUDGET", "CALLERS_AFFECTED", "FLEET_GROWS", "FLEET_SHRINKS", "Alert", "alerts", "scaling_runbook"]


def alerts(deployment: Deployment) -> tuple[Alert, ...]:
    """Return every alert that a deployment's shape allows."""
    sections = (of_vad, of_asr, of_edge, of_agents, of_fleets, of_state)
    return tuple(alert for section in sections for alert in section(deployment))


def scaling_runbook(deployment: Deployment, rule: ScalingRule) -> str:
    """Return the address of the runbook of a scaling rule's alarm."""
    return names.runbook_url(deployment, FLEET_GROWS if rule.adds_hosts else FLEET_SHRINKS)
