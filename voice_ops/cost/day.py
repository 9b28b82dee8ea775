"""Number of hosts over the designed day, as simulated: the expected case of `voice cost`.

The mean number of hosts differs from the number for the mean load, since fleets change in steps, wait before they scale
in, and have a minimum and a maximum. Therefore, the file's own rules are simulated over the day, and the number of
hosts is averaged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.aws import names
from voice_blueprint.capacity.cpu_pods import build_cpu_pods_by_tier, calculate_required_cpu_nodes
from voice_blueprint.day import resolve_design_load
from voice_blueprint.engines.sizing.service import iter_pool_capacities
from voice_blueprint.file.model.azure import CPU_POOL_NAME
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.cost.model import ExpectedSizes
from voice_ops.simulate.calls import REDIAL_FRACTION
from voice_ops.simulate.capacity import TRANSCRIBING_KINDS, FleetPlan, calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.metrics import validate_rule_metrics
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.traces import create_design_day_trace

DEFAULT_SEED = 1
HostCounts = NDArray[np.int64]


@dataclass(frozen=True)
class DaySimulation:
    """The simulated designed day of a deployment."""

    deployment: Deployment
    result: PolicyResult

    @property
    def expected_sizes(self) -> ExpectedSizes:
        """Mean sizes of scaled resources over the day."""
        sizes = dict(self._calculate_aws_sizes() if self.deployment.aws_section else self._calculate_azure_sizes())
        return ExpectedSizes(self._calculate_mean_utilization(), sizes)

    def _calculate_aws_sizes(self) -> Iterator[tuple[str, float]]:
        deployment = self.deployment
        stacks = {names.GATEWAY_FLEET: "edge", names.AGENT_FLEET: "agents"}
        for plan in self.result.plans:
            mean = float(self._hosts[plan.name].mean())
            if plan.name in stacks:
                yield names.build_stack_name(deployment, stacks[plan.name]), mean
            else:
                yield from ((group.name, mean / len(plan.groups)) for group in plan.groups)

    def _calculate_azure_sizes(self) -> Iterator[tuple[str, float]]:
        """Yield the mean number of nodes in each pool.

        Services without audio are assumed to be at the same position between minimum and maximum as the ASR hosts.
        """
        azure, location = self.deployment.azure, self._calculate_mean_utilization()
        for pool in azure.pools:
            nodes: NDArray[np.float64] = np.zeros(1)
            for capacity in (each for each in iter_pool_capacities(azure) if each.pool == pool.name):
                replicas = self._hosts.get(
                    f"{capacity.service} on {capacity.pool}",
                    capacity.min_replicas + location * (capacity.max_replicas - capacity.min_replicas),
                )
                nodes = nodes + replicas / capacity.replicas_per_node
            yield pool.name, float(np.clip(np.ceil(nodes), pool.nodes.min, pool.nodes.max).mean())
        if azure.callers and azure.cpu_pool:
            pods = build_cpu_pods_by_tier(azure.callers, azure.agents)
            counts, times = np.unique([self._hosts[name] for name in pods], axis=1, return_counts=True)
            bounds = azure.cpu_pool.nodes
            each = [
                calculate_required_cpu_nodes(azure.cpu_pool.vm_size, pods, dict(zip(pods, count, strict=True)))
                for count in counts.T.tolist()
            ]
            yield CPU_POOL_NAME, float(np.average(np.clip(each, bounds.min, bounds.max), weights=times))

    def _calculate_mean_utilization(self) -> float:
        """Return the mean capacity of the running ASR hosts as a position between minimum and maximum, 0 to 1."""
        asr = [plan for plan in self.result.plans if plan.kind in TRANSCRIBING_KINDS]
        low = sum(_calculate_min_hosts(plan) * plan.slots for plan in asr)
        max_calls = sum(plan.max_hosts * plan.slots for plan in asr)
        mean = sum(float(self._hosts[plan.name].mean()) * plan.slots for plan in asr)
        return min(1.0, max(0.0, (mean - low) / max(1, max_calls - low)))

    @property
    def _hosts(self) -> Mapping[str, HostCounts]:
        return self.result.time_series.hosts


def simulate_day(
    deployment: Deployment, *, seed: int = DEFAULT_SEED, alert_deployment: Deployment | None = None
) -> DaySimulation:
    """Simulate the designed day of a deployment with the file's own scaling rules.

    Args:
        seed: Seed of the arriving calls.
        alert_deployment: File whose alerts are replayed, or ``None``.

    Raises:
        ValueError: The deployment serves no calls, a rule reads a metric that the simulator does not model, or the CSV
            file does not match the load.
    """
    plans, aws = create_fleet_plans(deployment, {}), deployment.aws_section
    for plan in plans:
        validate_rule_metrics(plan)
    settings = SimulationSettings(
        zones=aws.availability_zones if aws else deployment.azure.availability_zones,
        mean_call_s=60 * resolve_design_load(deployment).minutes_each,
        cross_zone=aws is None or aws.edge.cross_zone,
        seed=seed,
        store_call_limit=calculate_max_store_calls(deployment),
        redial_share=REDIAL_FRACTION,
    )
    return DaySimulation(
        deployment,
        Simulation(
            plans,
            create_configured_policy(plans),
            create_design_day_trace(deployment),
            settings,
            alert_deployment=alert_deployment,
        ).run(),
    )


def _calculate_min_hosts(plan: FleetPlan) -> int:
    return sum(group.min_hosts for group in plan.groups)
