"""Losses of capacity, on the simulator: what they cost callers beyond the same hours without them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blueprint.aws.edge import ALIAS_TTL_S
from blueprint.file.model.aws import Rollout
from blueprint.file.model.deployment import Deployment
from ops.simulate.capacity import FleetPlan, fleet_plans, usual_peak
from ops.simulate.metrics import check_modelled
from ops.simulate.policies import own
from ops.simulate.run import DAY_TICK_S, Result, Settings, Simulation
from ops.simulate.shortfall import SCATTER
from ops.simulate.traces import (
    NOTICED_S,
    REGION_BACK_S,
    REGION_LOST_S,
    Trace,
    az_outage,
    flash_crowd,
    region_loss,
    spot_wave,
)

CALL_S = 180.0
SEED = 1
CROWD_S = 600.0
"""When the crowd of `flash_crowd` begins to come."""


@dataclass(frozen=True)
class Effect:
    """What a scenario did to callers.

    Attributes:
        lost: Calls that were refused or cut, beyond those without the fault.
        offered: Callers who came.
        recovers_s: From the fault until all who call are carried again; ``None`` where that is not within the hours.
    """

    lost: int
    offered: int
    recovers_s: float | None


def play(deployment: Deployment) -> Mapping[str, Effect | str]:
    """Return each scenario's effect by its name, or why it cannot happen to this file.

    Raises:
        ValueError: The file has a rule that the simulator does not model.
    """
    plans = fleet_plans(deployment, {})
    for plan in plans:
        check_modelled(plan)
    hours = _Hours(deployment, plans)
    outage, wave, crowd = (make(hours.peak) for make in (az_outage, spot_wave, flash_crowd))
    metrics = sorted({rule.metric for plan in plans for rule in plan.rules if rule.adds_hosts})
    return {
        "zone loss": hours.effect(outage, replace(outage, outages=()), outage.outages[0].start_s)
        if len(hours.settings.zones) > 1
        else "the file has one zone",
        "region loss": hours.without_a_region() if deployment.of_all_regions else "the file has one region",
        "spot wave": hours.effect(wave, replace(wave, spot_waves=()), wave.spot_waves[0].start_s)
        if any(plan.spot for plan in plans)
        else "no fleet of the file is bought as spot",
        "quota refusal": hours.effect(crowd, crowd, CROWD_S, quotas=_spent(plans)),
        "silent metric": hours.effect(crowd, crowd, 0.0, silent=frozenset(metrics))
        if metrics
        else "no rule of the file reads a metric of hosts",
    }


def _spent(plans: tuple[FleetPlan, ...]) -> dict[str, int]:
    """Return quotas that allow the fewest hosts of each fleet and no other."""
    spent: dict[str, int] = {}
    for plan in plans:
        if kind := plan.instance_type:
            hosts = sum(group.min_hosts for group in plan.groups)
            spent[kind.quota_code] = spent.get(kind.quota_code, 0) + hosts * kind.vcpus
    return spent


class _Hours:
    """The same two or three hours, with a fault and without."""

    def __init__(self, deployment: Deployment, plans: tuple[FleetPlan, ...]) -> None:
        aws = deployment.aws_half
        self._plans = plans
        self.peak = usual_peak(plans)
        self.settings = Settings(
            zones=aws.availability_zones if aws else deployment.azure.availability_zones,
            call_s=CALL_S,
            cross_zone=aws is None or aws.edge.cross_zone,
            seed=SEED,
            rollout=aws.rollout if aws else Rollout(),
            tick_s=DAY_TICK_S,
        )
        self._calm: dict[str, Result] = {}

    def effect(self, trace: Trace, calm: Trace, at_s: float, **fault: object) -> Effect:
        if calm.name not in self._calm:
            self._calm[calm.name] = self._run(calm)
        broken, sound = self._run(trace, **fault), self._calm[calm.name]
        lost = [result.ledger.refused + result.ledger.cut for result in (broken, sound)]
        return Effect(max(0, lost[0] - lost[1]), broken.ledger.offered, _recovery(broken, sound.course.carried, at_s))

    def without_a_region(self) -> Effect:
        """Return what the loss of another region does to its callers, who are half of all and come to this one.

        Its calls are cut, who calls it until its name leads here is lost, and so is who finds no place here then.
        """
        trace, half = region_loss(self.peak), self.peak / 2
        broken = self._run(trace)
        calm = self._run(Trace("half", trace.seconds, (half,) * len(trace.seconds)))
        refused, before = (result.ledger.refused + result.ledger.cut for result in (broken, calm))
        missed = half + half / CALL_S * (NOTICED_S + ALIAS_TTL_S / 2)
        course = broken.course
        wanted = np.where(course.second < REGION_BACK_S, course.wanted, 0)
        recovers_s = _recovery(broken, wanted, REGION_LOST_S)
        return Effect(
            round(missed) + max(0, refused - before),
            broken.ledger.offered,
            None if recovers_s is None else max(recovers_s, NOTICED_S + ALIAS_TTL_S),
        )

    def _run(self, trace: Trace, **fault: object) -> Result:
        return Simulation(self._plans, own(self._plans), trace, replace(self.settings, **fault)).run()  # type: ignore[arg-type]


def _recovery(broken: Result, wanted: NDArray[Any], at_s: float) -> float | None:
    """Return how long fewer calls are carried than are wanted, by more than calls scatter."""
    course = broken.course
    missing = wanted - course.carried > SCATTER * np.sqrt(np.maximum(wanted, 1))
    short = np.flatnonzero(missing & (course.second > at_s))
    if not short.size:
        return 0.0
    return None if missing[-1] else float(course.second[short[-1]]) - at_s
