"""What the AWS account gets while the simulation runs: quotas, zones that are lost, spot hosts that are sold out."""

from dataclasses import dataclass, field

from blueprint import catalog
from ops.simulate.capacity import FleetPlan


@dataclass
class Account:
    """Quotas of the AWS account, vCPU by quota code; codes that are not listed have no ceiling here.

    Attributes:
        lost_zones: Zones in which nothing runs.
        spot_sold_out: Whether no spot host is to be had.
        refused_launches: Launches that a quota refused, retries included.
    """

    quotas: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)
    lost_zones: set[str] = field(default_factory=set)
    spot_sold_out: bool = False
    refused_launches: int = 0

    def take(self, plan: FleetPlan) -> bool:
        """Count one more host, if it is to be had; spot hosts have quotas of their own."""
        if plan.spot and self.spot_sold_out:
            return False
        kind = plan.instance_type
        if kind is None:
            return True
        used = self.used.get(kind.quota_code, 0) + kind.vcpus
        if not plan.spot and used > self.quotas.get(kind.quota_code, used):
            self.refused_launches += 1
            return False
        self.used[kind.quota_code] = used
        return True

    def give_back(self, plan: FleetPlan) -> None:
        """Count one host less."""
        if plan.instance_type:
            self.used[plan.instance_type.quota_code] -= plan.instance_type.vcpus


def quota_codes() -> dict[str, str]:
    """Return the code of each quota by its family, such as ``inf``."""
    return {quota.family: quota.code for quota in catalog.quotas().values()}
