"""Small deployments for the simulator's tests."""

from dataclasses import replace
from pathlib import Path

import voice_blueprint
from voice_blueprint import catalog
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic, Step
from voice_ops.simulate.capacity import BootPhase, BootTiming, FleetPlan, GroupPlan, create_fleet_plans
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.traces import LoadTrace

ROOT = Path(__file__).parents[3]
PRODUCTION = ROOT / "tests/deployments/production-us-east-1.yaml"
ZONES = ("a", "b", "c")


def production_plans() -> tuple[FleetPlan, ...]:
    return create_fleet_plans(voice_blueprint.load(PRODUCTION), {})


def without_artifacts() -> tuple[FleetPlan, ...]:
    """Return the production fleets without artifacts: every host downloads from a hub and compiles."""
    file = voice_blueprint.load(PRODUCTION)
    asr = tuple(fleet.model_copy(update={"artifacts": False}) for fleet in file.aws.asr)
    return create_fleet_plans(file.model_copy(update={"aws_section": file.aws.model_copy(update={"asr": asr})}), {})


def headroom(*, below: float = 20, change: int = 1) -> ScalingRule:
    return ScalingRule(
        name="headroom",
        metric="NeuronHeadroom",
        statistic=Statistic.AVERAGE,
        comparison=Comparison.BELOW,
        threshold=below,
        period_s=10,
        datapoints_to_alarm=3,
        evaluation_periods=3,
        missing_data=MissingData.NOT_BREACHING,
        steps=(Step(adjustment=change),),
    )


def boot(cold_s: float = 100, warm_s: float = 20) -> BootTiming:
    return BootTiming((BootPhase("launch", cold_s, warm_s, "test"),))


def vad(hosts_per_zone: int = 2, places: int = 1_000, zones: tuple[str, ...] = ZONES) -> FleetPlan:
    plan = production_plans()[0]
    groups = tuple(GroupPlan(f"vad-{zone}", (zone,), hosts_per_zone, hosts_per_zone) for zone in zones)
    return replace(plan, groups=groups, slots=places, boot=boot(), warm_up_s=50, rules=())


def asr(  # noqa: PLR0917
    low: int = 2,
    high: int = 6,
    places: int = 50,
    rules: tuple[ScalingRule, ...] = (),
    kind: str = "inf2.48xlarge",
    pool: int = 0,
    spot: bool = False,
) -> FleetPlan:
    gpu = kind.startswith("p5")
    return replace(
        production_plans()[3 if gpu else 1],
        instance_type=catalog.instance_types()[kind],
        groups=(GroupPlan(kind, ZONES, low, high),),
        slots=places,
        boot=boot(),
        warm_up_s=50,
        drain_timeout_s=300,
        rules=rules,
        warm_hosts=pool,
        is_spot=spot,
    )


def gateway(low: int = 2, high: int = 10, places: int = 20) -> FleetPlan:
    return replace(
        production_plans()[-2], groups=(GroupPlan("gateway", ZONES, low, high),), slots=places, boot=boot(60)
    )


def agents(low: int = 2, high: int = 20, places: int = 8, share: float = 0.25) -> FleetPlan:
    group = GroupPlan("agent", ZONES, low, high)
    return replace(production_plans()[-1], groups=(group,), slots=places, boot=boot(60), call_share=share)


def steady(calls: float, seconds: float = 1_800) -> LoadTrace:
    return LoadTrace("steady", (0.0, seconds), (calls, calls))


def steps_to(before: float, after: float, at: float = 300, seconds: float = 1_800) -> LoadTrace:
    return LoadTrace("step", (0.0, at, at + 1, seconds), (before, before, after, after))


SETTINGS = SimulationSettings(zones=ZONES, mean_call_s=60.0, cross_zone=False, seed=7, lead_in_s=0)


def simulate(
    plans: tuple[FleetPlan, ...],
    trace: LoadTrace,
    how: SimulationSettings = SETTINGS,
    model: type[Simulation] = Simulation,
) -> PolicyResult:
    return model(plans, create_configured_policy(plans), trace, how).run()
