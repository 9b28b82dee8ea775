"""Limits of the AWS account in the simulation: quotas, failed zones, unavailable spot capacity."""

from dataclasses import dataclass, field

from voice_blueprint import catalog
from voice_ops.simulate.capacity import FleetPlan


@dataclass
class SimulatedAccount:
    """Quotas and capacity of the AWS account.

    Attributes:
        quotas: vCPUs by quota code. Codes that are not listed are unlimited.
        used_vcpus: vCPUs of current hosts, by quota code.
        lost_zones: Zones that are unavailable.
        is_spot_sold_out: Whether no spot capacity is available.
        refused_launches: Number of launches that a quota rejected, including retries.
    """

    quotas: dict[str, int]
    used_vcpus: dict[str, int] = field(default_factory=dict)
    lost_zones: set[str] = field(default_factory=set)
    is_spot_sold_out: bool = False
    refused_launches: int = 0

    def reserve_host(self, plan: FleetPlan) -> bool:
        """Count a new host, and return True if the account can launch it. Spot hosts have their own quotas."""
        if plan.is_spot and self.is_spot_sold_out:
            return False
        kind = plan.instance_type
        if kind is None:
            return True
        used_vcpus = self.used_vcpus.get(kind.quota_code, 0) + kind.vcpus
        if not plan.is_spot and used_vcpus > self.quotas.get(kind.quota_code, used_vcpus):
            self.refused_launches += 1
            return False
        self.used_vcpus[kind.quota_code] = used_vcpus
        return True

    def release_host(self, plan: FleetPlan) -> None:
        """Subtract the vCPUs of a terminated host."""
        if plan.instance_type:
            self.used_vcpus[plan.instance_type.quota_code] -= plan.instance_type.vcpus


def map_families_to_quota_codes() -> dict[str, str]:
    """Return the code of each quota by its family, such as ``inf``."""
    return {quota.family: quota.code for quota in catalog.quotas().values()}
