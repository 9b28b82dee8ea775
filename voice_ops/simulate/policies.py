"""Scaling policies that `voice simulate` compares."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import simpy

from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic, Step
from voice_blueprint.observability.azure.scaling import SCALE_DOWN_BEHAVIOR, SCALE_UP_BEHAVIOR, ScalingBehavior
from voice_ops.simulate.calls import CallSimulator
from voice_ops.simulate.capacity import TRANSCRIBING_KINDS, FleetPlan
from voice_ops.simulate.fleet import Fleet
from voice_ops.simulate.scaling import (
    CPU_TARGET_PERCENT,
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    QueueScaler,
    Scaler,
    StepScaler,
    TargetTrackingScaler,
)


@dataclass(frozen=True)
class Policy:
    """A scaling policy.

    Attributes:
        create_scalers: Function that creates the scalers of a fleet.
        uses_warm_pools: Whether the file's warm pools are used.
    """

    name: str
    create_scalers: Callable[[simpy.Environment, Fleet, CallSimulator], Iterator[Scaler]]
    uses_warm_pools: bool


def _create_seed_rule(kind: str) -> ScalingRule:
    """Return the seed's rule for a kind of fleet, as interpreted in docs/deviations.md; the rule only adds hosts."""
    metric, threshold, datapoints, adjustment = {
        "vad": ("RxRingOccupancy", 80, 2, 2),
        "neuron": ("NeuronHeadroom", 20, 3, 1),
        "gpu": ("GpuBusy", 90, 3, 1),
    }[kind]
    return ScalingRule(
        name="seed",
        metric=metric,
        statistic=Statistic.MAXIMUM if kind == "vad" else Statistic.AVERAGE,
        comparison=Comparison.BELOW if kind == "neuron" else Comparison.ABOVE,
        threshold=threshold,
        period_s=10,
        datapoints_to_alarm=datapoints,
        evaluation_periods=3,
        missing_data=MissingData.NOT_BREACHING,
        steps=(Step(adjustment=adjustment),),
    )


def _create_seed_scalers(env: simpy.Environment, fleet: Fleet, _: CallSimulator) -> Iterator[Scaler]:
    if fleet.plan.kind != "cpu":  # not part of the seed
        yield StepScaler(env, fleet, _create_seed_rule(fleet.plan.kind))


def _create_cpu_scalers(env: simpy.Environment, fleet: Fleet, _: CallSimulator) -> Iterator[Scaler]:
    for group in fleet.groups:
        for grows in (True, False):
            yield TargetTrackingScaler(env, group, CPU_TARGET_PERCENT, grows=grows)


def create_fleet_scalers(
    policy: Policy, env: simpy.Environment, fleet: Fleet, calls: CallSimulator
) -> Iterator[Scaler]:
    """Yield the scalers for a fleet. Tasks and pods scale by their sockets, independently of the hosts' policy."""
    plan = fleet.plan
    if plan.kind in TRANSCRIBING_KINDS or (plan.kind == "vad" and not plan.scales_by_queue):
        yield from policy.create_scalers(env, fleet, calls)
        return
    for group in fleet.groups:
        if plan.scales_by_queue:
            yield QueueScaler(env, group, calls, 0.0, SCALE_UP_BEHAVIOR, SCALE_DOWN_BEHAVIOR, TARGET_UTILIZATION)
            continue
        for grows in (True, False):
            yield TargetTrackingScaler(env, group, 100 * TARGET_UTILIZATION, grows=grows)


def _create_queue_scalers(
    env: simpy.Environment,
    fleet: Fleet,
    calls: CallSimulator,
    up: ScalingBehavior = DEFAULT_SCALE_UP,
    down: ScalingBehavior = DEFAULT_SCALE_DOWN,
) -> Iterator[Scaler]:
    # Callers wait for any ASR host, so each fleet's share of the queue is its share of the slots.
    max_calls = sum(each.plan.max_hosts * each.plan.slots for each in calls.asr)
    for group in fleet.groups:
        waits = 0.0 if fleet in calls.fronts else group.plan.max_hosts * fleet.plan.slots / max_calls
        yield QueueScaler(env, group, calls, waits, up, down)


def _create_file_scalers(env: simpy.Environment, fleet: Fleet, calls: CallSimulator) -> Iterator[Scaler]:
    if fleet.plan.scales_by_queue:
        yield from _create_queue_scalers(env, fleet, calls, SCALE_UP_BEHAVIOR, SCALE_DOWN_BEHAVIOR)
    for rule in fleet.plan.rules:
        yield StepScaler(env, fleet, rule)


SEED_POLICY = Policy("seed's table alone", _create_seed_scalers, uses_warm_pools=False)
CPU_POLICY = Policy(f"CPU target {CPU_TARGET_PERCENT:g} %", _create_cpu_scalers, uses_warm_pools=False)
QUEUE_POLICY = Policy("KEDA on the queue", _create_queue_scalers, uses_warm_pools=False)
BASELINE_POLICIES = SEED_POLICY, CPU_POLICY, QUEUE_POLICY
"""Policies that the file's own rules are compared with."""


def create_configured_policy(plans: tuple[FleetPlan, ...]) -> Policy:
    """Return the policy that consists of the file's own rules and warm pools."""
    pooled = any(plan.warm_hosts for plan in plans)
    return Policy("file, warm pool" if pooled else "file", _create_file_scalers, uses_warm_pools=True)
