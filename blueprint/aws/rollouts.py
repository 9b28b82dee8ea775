"""What a rollout of a fleet's hosts takes, and what stops it."""

from blueprint.aws.alerts import alerts
from blueprint.contract.network import Tier
from blueprint.file.model.aws import CapacityBlock, CapacityReservation, Purchase
from blueprint.file.model.deployment import Deployment

OF_CALLERS = frozenset({"sessions-refused", "first-transcript-slow"})
"""Alerts at the gateway that any tier can cause."""
OF_HOSTS = "hosts-abandoned"


def guards(deployment: Deployment, tier: Tier, fleet: str) -> tuple[str, ...]:
    """Return the alarms that take a rollout of a fleet back: callers notice, or new hosts do not come up."""
    return tuple(
        alert.alarm_name(deployment)
        for alert in alerts(deployment)
        if alert.id in OF_CALLERS
        or (
            alert.tier is tier
            and (alert.callers_affected or alert.id == OF_HOSTS)
            and alert.target in (None, fleet, tier.value)
        )
    )


def surges(purchase: Purchase) -> bool:
    """Whether more hosts than the desired number can be had while others leave."""
    return not isinstance(purchase, CapacityReservation | CapacityBlock)


def surge(surge_percent: int, hosts: int) -> int:
    """Return how many hosts of a group are replaced at a time."""
    return max(1, hosts * surge_percent // 100) if hosts else 0
