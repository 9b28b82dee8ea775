"""Simulates faults, and compares the lost calls with those in the same hours without the fault."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.aws.edge import ALIAS_TTL_S
from voice_blueprint.file.model.aws import Rollout
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import add_placeholder_digests
from voice_ops.simulate.calls import REDIAL_FRACTION
from voice_ops.simulate.capacity import FleetPlan, calculate_default_peak, calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.metrics import METRIC_MODELS, validate_rule_metrics
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import DAY_TICK_S, PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.shortfall import MARGIN_STANDARD_DEVIATIONS
from voice_ops.simulate.traces import (
    FAILURE_DETECTION_S,
    REGION_LOST_S,
    REGION_RESTORED_S,
    LoadTrace,
    create_az_outage_trace,
    create_flash_crowd_trace,
    create_region_loss_trace,
    create_spot_wave_trace,
)

MEAN_CALL_S = 180.0
DEFAULT_SEED = 1
WITHHELD_METRICS = frozenset({*METRIC_MODELS, "OpenSockets", "Conversations"})
"""Metrics that hosts no longer publish after telemetry has stopped."""
FLASH_CROWD_START_S = 600.0
"""Start of the surge in the trace `flash-crowd`."""


@dataclass(frozen=True)
class ScenarioEffect:
    """Effect of a scenario on callers.

    Attributes:
        lost: Number of additional calls that were refused or cut off because of the fault.
        offered: Number of arriving callers.
        recovers_s: Time from the fault until all callers are served again, in seconds; ``None`` if they are not served
            again within the simulated hours.
        fired: Ids of the alerts that fired after the fault.
    """

    lost: int
    offered: int
    recovers_s: float | None
    fired: tuple[str, ...] = ()


def simulate_scenarios(deployment: Deployment) -> Mapping[str, ScenarioEffect | str]:
    """Return the effect of each scenario, or the reason why the scenario does not apply to the deployment.

    Raises:
        ValueError: The simulator does not model a rule of the file.
    """
    plans = create_fleet_plans(deployment, {})
    for plan in plans:
        validate_rule_metrics(plan)
    hours = _FaultComparison(deployment, plans)
    outage_trace, wave_trace, crowd_trace = (
        make(hours.peak) for make in (create_az_outage_trace, create_spot_wave_trace, create_flash_crowd_trace)
    )
    metrics = any(rule.adds_hosts for plan in plans for rule in plan.rules)
    return {
        "zone loss": hours.measure_effect(
            outage_trace, replace(outage_trace, outages=()), outage_trace.outages[0].start_s
        )
        if len(hours.settings.zones) > 1
        else "the file has one zone",
        "region loss": hours.measure_region_loss() if deployment.shared_domain else "the file has one region",
        "spot wave": hours.measure_effect(
            wave_trace, replace(wave_trace, spot_waves=()), wave_trace.spot_waves[0].start_s
        )
        if any(plan.is_spot for plan in plans)
        else "the file has no spot fleet",
        "quota refusal": hours.measure_effect(
            crowd_trace, crowd_trace, FLASH_CROWD_START_S, quotas=_find_exhausted_quotas(plans)
        ),
        "silent metric": hours.measure_effect(crowd_trace, crowd_trace, 0.0, silent_metrics=WITHHELD_METRICS)
        if metrics
        else "no rule of the file uses a metric of hosts",
    }


def _find_exhausted_quotas(plans: tuple[FleetPlan, ...]) -> dict[str, int]:
    """Return vCPU quotas that are just sufficient for the minimum number of hosts in all fleets, by quota code."""
    exhausted: dict[str, int] = {}
    for plan in plans:
        if kind := plan.instance_type:
            hosts = sum(group.min_hosts for group in plan.groups)
            exhausted[kind.quota_code] = exhausted.get(kind.quota_code, 0) + hosts * kind.vcpus
    return exhausted


class _FaultComparison:
    """Simulates the same hours with and without a fault."""

    def __init__(self, deployment: Deployment, plans: tuple[FleetPlan, ...]) -> None:
        aws = deployment.aws_section
        self._plans, self._image_deployment = plans, add_placeholder_digests(deployment)
        store = calculate_max_store_calls(deployment)
        self.peak = calculate_default_peak(plans, store)
        self.settings = SimulationSettings(
            zones=aws.availability_zones if aws else deployment.azure.availability_zones,
            mean_call_s=MEAN_CALL_S,
            cross_zone=aws is None or aws.edge.cross_zone,
            seed=DEFAULT_SEED,
            rollout=aws.rollout if aws else Rollout(),
            tick_s=DAY_TICK_S,
            store_call_limit=store,
            redial_share=REDIAL_FRACTION,
        )
        self._baselines: dict[str, PolicyResult] = {}

    def measure_effect(
        self, trace: LoadTrace, baseline_trace: LoadTrace, at_s: float, **fault: object
    ) -> ScenarioEffect:
        if baseline_trace.name not in self._baselines:
            self._baselines[baseline_trace.name] = self._run_simulation(baseline_trace)
        faulty, baseline = self._run_simulation(trace, **fault), self._baselines[baseline_trace.name]
        lost = [result.call_results.refused + result.call_results.cut for result in (faulty, baseline)]
        recovers_s = _calculate_recovery_s(faulty, baseline.time_series.carried, at_s)
        # Quotas and missing metrics apply from the start. Outages and waves of interruptions begin later.
        fired = _find_fired_alerts(faulty, 0.0 if fault else at_s)
        return ScenarioEffect(max(0, lost[0] - lost[1]), faulty.call_results.offered, recovers_s, fired)

    def measure_region_loss(self) -> ScenarioEffect:
        """Return the effect of losing the other of two regions, whose callers (half of all) move to this region.

        The calls of the other region are cut off. Callers are lost if they call before the name resolves to this
        region, or if there is no capacity for them.
        """
        trace, half_peak = create_region_loss_trace(self.peak), self.peak / 2
        faulty = self._run_simulation(trace)
        baseline_trace = self._run_simulation(LoadTrace("half", trace.seconds, (half_peak,) * len(trace.seconds)))
        refused, before = (result.call_results.refused + result.call_results.cut for result in (faulty, baseline_trace))
        missed_calls = half_peak + half_peak / MEAN_CALL_S * (FAILURE_DETECTION_S + ALIAS_TTL_S / 2)
        course = faulty.time_series
        requested_calls = np.where(course.second < REGION_RESTORED_S, course.wanted, 0)
        recovers_s = _calculate_recovery_s(faulty, requested_calls, REGION_LOST_S)
        return ScenarioEffect(
            round(missed_calls) + max(0, refused - before),
            faulty.call_results.offered,
            None if recovers_s is None else max(recovers_s, FAILURE_DETECTION_S + ALIAS_TTL_S),
            _find_fired_alerts(faulty, REGION_LOST_S),
        )

    def _run_simulation(self, trace: LoadTrace, **fault: object) -> PolicyResult:
        settings = replace(self.settings, **fault)  # type: ignore[arg-type]
        return Simulation(
            self._plans, create_configured_policy(self._plans), trace, settings, alert_deployment=self._image_deployment
        ).run()


def _find_fired_alerts(fault_result: PolicyResult, at_s: float) -> tuple[str, ...]:
    return tuple(dict.fromkeys(firing.id for firing in fault_result.firings if firing.at_s >= at_s))


def _calculate_recovery_s(fault_result: PolicyResult, requested_calls: NDArray[Any], at_s: float) -> float | None:
    """Return the time from the fault until all requested calls are served again, ignoring random variation."""
    course = fault_result.time_series
    missing = requested_calls - course.carried > MARGIN_STANDARD_DEVIATIONS * np.sqrt(np.maximum(requested_calls, 1))
    shortfall = np.flatnonzero(missing & (course.second > at_s))
    if not shortfall.size:
        return 0.0
    return None if missing[-1] else float(course.second[shortfall[-1]]) - at_s
