"""Duration and stop conditions of a host rollout."""

from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import CapacityBlock, CapacityReservation, PurchaseOption
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import build_alerts

CALLER_ALERT_IDS = frozenset({"sessions-refused", "first-transcript-slow"})
"""Gateway alerts that any tier can cause."""
HOSTS_ABANDONED_ALERT_ID = "hosts-abandoned"


def list_rollback_alarms(deployment: Deployment, tier: Tier, fleet: str) -> tuple[str, ...]:
    """Return the alarms that roll back a rollout of a fleet.

    They fire if callers are affected, or if new hosts do not become healthy.
    """
    return tuple(
        alert.format_alarm_name(deployment)
        for alert in build_alerts(deployment)
        if alert.id in CALLER_ALERT_IDS
        or (
            alert.tier is tier
            and (alert.affects_callers or alert.id == HOSTS_ABANDONED_ALERT_ID)
            and alert.target in (None, fleet, tier.value)
        )
    )


def can_surge(purchase: PurchaseOption) -> bool:
    """Return True if hosts can be launched above the desired number during a rollout."""
    return not isinstance(purchase, CapacityReservation | CapacityBlock)


def calculate_surge_size(surge_percent: int, hosts: int) -> int:
    """Return the number of hosts in a group that are replaced at the same time."""
    return max(1, hosts * surge_percent // 100) if hosts else 0
