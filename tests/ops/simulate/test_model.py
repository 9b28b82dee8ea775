"""Simulated hosts, their metrics, and the reactions of scaling policies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import voice_blueprint
from tests.blueprint.documents import load_text
from tests.ops.simulate.one_by_one import OneByOne
from tests.ops.simulate.worlds import (
    PRODUCTION,
    ROOT,
    SETTINGS,
    ZONES,
    asr,
    gateway,
    headroom,
    production_plans,
    simulate,
    steady,
    steps_to,
    vad,
    without_artifacts,
)
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint.aws.autoscaling import GroupSize
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.engines.launch.coldstart import PHASE_BUDGETS_BY_IMAGE
from voice_blueprint.file.model.scaling import Statistic
from voice_ops.simulate.capacity import create_fleet_plans
from voice_ops.simulate.fleet import Fleet
from voice_ops.simulate.metrics import (
    MAX_STREAMS_PER_CORE,
    METRIC_MODELS,
    MetricPeriod,
    calculate_ring_occupancy_percent,
    validate_rule_metrics,
)
from voice_ops.simulate.policies import (
    BASELINE_POLICIES,
    CPU_POLICY,
    QUEUE_POLICY,
    SEED_POLICY,
    create_configured_policy,
)
from voice_ops.simulate.report import summarize_result
from voice_ops.simulate.run import Simulation
from voice_ops.simulate.scaling import calculate_capacity_for_queue, calculate_capacity_for_target
from voice_ops.simulate.traces import LoadTrace


def ring_at(utilization: float) -> float:
    plan = vad()
    fleet = Fleet(plan, ZONES)
    assert plan.data_path
    fleet.calls = np.array([round(utilization * MAX_STREAMS_PER_CORE * plan.data_path.rx_queues)])
    return float(calculate_ring_occupancy_percent(fleet)[0])


def test_a_ring_only_fills_when_its_core_is_nearly_saturated() -> None:
    shares = [ring_at(utilization) for utilization in (0.0, 0.5, 0.8, 0.9, 0.96, 0.98, 1.0, 1.5)]
    assert shares == sorted(shares)
    assert shares[1] < 5
    assert shares[4] < 80 < shares[5]
    assert shares[-1] == 100


@pytest.mark.parametrize(("busy", "percent"), [(0.4, 40), (1.0, 100), (1.5, 100)])
def test_busy_at_full_changes_utilization_but_not_slots(busy: float, percent: float) -> None:
    plans = (vad(1), asr(1, 1))
    fleet = Simulation(plans, create_configured_policy(plans), steady(1), replace(SETTINGS, busy_at_full=busy)).fleets[
        1
    ]
    fleet.calls = np.array([fleet.plan.slots])
    metrics = ("GpuBusy", "NeuronHeadroom", "SlotsTaken", "FreeSlots")
    assert [float(METRIC_MODELS[name](fleet)[0]) for name in metrics] == [percent, 100 - percent, 100, 0]


def test_every_simulated_metric_is_publishable() -> None:
    assert set(METRIC_MODELS) <= set(METRICS)


def test_a_rule_on_another_metric_is_refused() -> None:
    rule = headroom().model_copy(update={"metric": "EncoderQueueDepth"})
    with pytest.raises(ValueError, match="rule headroom of fleet inf2 uses EncoderQueueDepth"):
        validate_rule_metrics(asr(rules=(rule,)))


@pytest.mark.parametrize(
    ("statistic", "datapoint"),
    [(Statistic.AVERAGE, 2.5), (Statistic.MAXIMUM, 4), (Statistic.MINIMUM, 1), (Statistic.SUM, 10)],
)
def test_a_period_aggregates_samples_of_all_hosts(statistic: Statistic, datapoint: float) -> None:
    period = MetricPeriod(statistic)
    assert period.close() is None
    period.add(np.array([1.0, 3.0]))
    period.add(np.array([]))
    period.add(np.array([2.0, 4.0]))
    assert period.close() == datapoint
    assert period.close() is None


def test_slots_and_prices_come_from_file_and_catalogue() -> None:
    plans = {plan.name: plan for plan in production_plans()}
    assert plans["vad"].slots == 4 * 2_000
    assert plans["inf2"].slots == 12 * plans["trn1"].slots
    assert plans["p5"].slots == 221  # see docs/tuning.md
    assert [plan.kind for plan in production_plans()] == ["vad", "neuron", "neuron", "gpu", "gateway", "agent"]
    assert plans["gateway"].usd_per_hour == pytest.approx(0.03238 + 2 * 0.00356)
    assert plans["inf2"].usd_per_hour == 12.98127
    assert plans["inf2"].warm_hosts == 6
    assert plans["trn1"].warm_hosts == 0


def test_the_price_of_a_pod_follows_the_tighter_of_cpus_and_memory(tmp_path: Path) -> None:
    file = edit_deployment({"azure.callers.asr.memory_gib": 16}, "production-azure")
    plans = {plan.name: plan for plan in create_fleet_plans(load_text(file, tmp_path), {})}
    # A node of USD 0.452 with 8 CPUs has 7 CPUs and 26.2 GiB for pods: 32, less 1.8 of the kernel and kubelet, and 4
    # of DaemonSets.
    assert plans["vad"].usd_per_hour == pytest.approx(0.452 * 2.15 / 8)
    assert plans["asr"].usd_per_hour == pytest.approx(0.452 * 16.375 / 26.21 * 7 / 8, rel=0.001)


def test_configured_sessions_are_used() -> None:
    plans = create_fleet_plans(voice_blueprint.load(ROOT / "tests/deployments/seed.yaml"), {})
    # vLLM does not run on the seed's Neuron hosts, so they have no slots.
    assert [plan.slots for plan in plans[1:-1]] == [0, 0, 32]


def test_boot_time_is_the_larger_of_cold_start_budget_and_configured_time() -> None:
    inf2, p5 = without_artifacts()[1], without_artifacts()[3]
    (compiling,) = (row.seconds for rows in PHASE_BUDGETS_BY_IMAGE.values() for row in rows if row.seconds == 385)
    assert {phase.name: phase.cold_s for phase in inf2.boot.phases}["compile"] == compiling
    # The engine of a warm pool host has not run yet: the host pulls no images, but compiles.
    assert inf2.boot.cold_s - inf2.boot.warm_s == 300 + 30
    assert inf2.boot.warm_s > compiling
    assert p5.boot.cold_s == voice_blueprint.load(PRODUCTION).aws.asr[2].warm_up_s


def test_a_host_that_fetches_artifacts_compiles_nothing() -> None:
    with_them, without = production_plans()[1].boot, without_artifacts()[1].boot
    assert {phase.name: phase.cold_s for phase in with_them.phases}["compile"] == 60
    assert without.cold_s - with_them.cold_s == without.warm_s - with_them.warm_s == 385 - 60


def test_boot_times_of_the_operator_take_precedence() -> None:
    plan = create_fleet_plans(voice_blueprint.load(PRODUCTION), {"inf2": (50, 5)})[1]
    assert (plan.boot.cold_s, plan.boot.warm_s, plan.boot.preparation_s) == (50, 5, 45)
    with pytest.raises(
        ValueError, match="production-us-east-1 has no fleet inf3; its fleets are vad, inf2, trn1, p5, gateway, agent"
    ):
        create_fleet_plans(voice_blueprint.load(PRODUCTION), {"inf3": (50, 5)})


@pytest.mark.parametrize(
    ("value", "grows", "desired"),
    [(50, True, 4), (51, True, 5), (100, True, 8), (100, False, 4), (40, False, 4), (20, False, 2), (0, False, 1)],
)
def test_target_tracking_is_proportional(value: float, grows: bool, desired: int) -> None:
    assert calculate_capacity_for_target(GroupSize(4, 1, 9, in_service_host_count=4), value, grows=grows) == desired


def test_target_tracking_waits_for_warm_up_before_scaling_in() -> None:
    assert (
        calculate_capacity_for_target(
            GroupSize(5, 1, 9, in_service_host_count=4, warming_host_count=1), 20, grows=False
        )
        == 5
    )
    assert (
        calculate_capacity_for_target(
            GroupSize(5, 1, 9, in_service_host_count=4, warming_host_count=1), 100, grows=True
        )
        == 8
    )


def test_target_tracking_counts_draining_hosts() -> None:
    # Four hosts at 25 % require two, and two of them are draining already: no third is removed.
    assert (
        calculate_capacity_for_target(
            GroupSize(2, 1, 9, in_service_host_count=2, terminating_host_count=2), 25, grows=False
        )
        == 2
    )


def test_the_scaling_table_of_the_seed_never_scales_in_and_has_no_warm_pool() -> None:
    plans = (vad(), asr(2, 6, pool=2, rules=(headroom(),)))
    trace = steps_to(60, 240)
    result = Simulation(plans, SEED_POLICY, replace(trace, calls=(60, 60, 240, 10)), SETTINGS).run()
    assert result.time_series.stopped["inf2"].max() == 0
    assert (np.diff(result.time_series.hosts["inf2"]) >= 0).all()
    assert result.time_series.hosts["inf2"][-1] > 2


def test_target_tracking_scales_out_and_in() -> None:
    plans = (vad(), asr(2, 8))
    trace = replace(steps_to(80, 240, seconds=5_400), calls=(80, 80, 240, 20))
    settled = replace(SETTINGS, lead_in_s=1_800)
    hosts = Simulation(plans, CPU_POLICY, trace, settled).run().time_series.hosts["inf2"]
    assert hosts.max() >= 6
    assert hosts[-1] < hosts.max()
    # Its alarm needs three datapoints of a minute.
    assert 300 + 170 <= int((np.diff(hosts) > 0).argmax()) <= 300 + 300


@pytest.mark.parametrize(("hosts", "desired"), [(4.39, 4), (4.41, 5), (3.6, 4), (3.5, 4), (2.9, 3), (0.0, 0)], ids=str)
def test_a_queue_adds_whole_hosts_and_tolerates_a_tenth(hosts: float, desired: int) -> None:
    assert calculate_capacity_for_queue(GroupSize(4, 0, 9, in_service_host_count=4), hosts) == desired


def test_keda_at_most_doubles_replicas_and_scales_in_after_five_minutes() -> None:
    plans = (vad(), asr(1, 12))
    trace = LoadTrace("up and down", (0.0, 300.0, 301.0, 900.0, 901.0, 2_000.0), (30, 30, 400, 400, 30, 30))
    hosts = Simulation(plans, QUEUE_POLICY, trace, SETTINGS).run().time_series.hosts["inf2"]
    assert hosts[299] == 1
    # 370 callers wait: four more hosts within 15 s, then as many as 400 calls at 40 per host require.
    assert (hosts[318], hosts[333]) == (5, 10)
    assert hosts[901:1_195].min() == 10
    assert hosts[-1] < 10


def test_azure_replicas_scale_out_by_two_or_double_and_scale_in_one_by_one() -> None:
    plans = (replace(asr(1, 12), scales_by_queue=True),)
    trace = LoadTrace("up and down", (0.0, 300.0, 301.0, 1_800.0, 1_801.0, 7_200.0), (30, 30, 400, 400, 30, 30))
    hosts = Simulation(plans, create_configured_policy(plans), trace, SETTINGS).run().time_series.hosts["inf2"]
    assert (hosts[299], hosts[350], hosts[380]) == (1, 3, 6)
    assert 10 <= hosts[440] <= 12
    # Half an hour without demand, then one host per ten minutes is removed; each drains for up to five minutes.
    assert hosts[1_900:3_590].min() >= 10
    assert set(np.diff(hosts[3_590:]).tolist()) == {-1, 0}
    assert 3 <= hosts[3_590] - hosts[6_000] <= 5


def test_pods_on_azure_scale_by_calls_and_asr_pods_fill_evenly() -> None:
    """Data-plane pods at a mean of 60 of 90 calls refuse some randomly; ASR pods only if all are full."""
    front = replace(gateway(3, 3, places=90), scales_by_queue=True)
    pods = [replace(front, name=kind, kind=kind) for kind in ("vad", "asr")]
    short = [replace(each, slots=66) for each in pods]
    room = asr(6, 6, places=100)
    chance, alike = (simulate((each, room), steady(180, 1_800)).call_results.refused for each in short)
    assert alike < chance / 4
    grown = [simulate((replace(each, groups=gateway(3, 12).groups), room), steps_to(60, 400)) for each in pods]
    for result, name in zip(grown, ("vad", "asr"), strict=True):
        assert result.time_series.hosts[name][250] == 3
        assert 6 <= result.time_series.hosts[name][-1] <= 8  # 400 calls, 70 % of 90 per pod


def test_gateway_tasks_refuse_calls_beyond_capacity_and_scale_on_sockets() -> None:
    plans = (vad(), asr(6, 6), gateway(2, 12, places=20))
    result = simulate(plans, steps_to(20, 120, seconds=3_600))
    tasks = result.time_series.hosts["gateway"]
    assert result.call_results.refused
    assert tasks[300 + 180 - 60] == 2  # three minutes above the target, as ECS' alarm requires
    assert 9 <= tasks[-1] <= 12  # 120 calls, 70 % of 20 per task
    roomy = simulate((*plans[:2], gateway(12, 12, places=20)), steps_to(20, 120, seconds=3_600))
    assert roomy.call_results.refused < result.call_results.refused / 10


def test_policy_names_match_the_scaling_of_the_file() -> None:
    assert [one.name for one in BASELINE_POLICIES] == ["seed's table alone", "CPU target 50 %", "KEDA on the queue"]
    assert create_configured_policy((vad(), asr())).name == "file"
    assert create_configured_policy((vad(), asr(pool=1))).name == "file, warm pool"


def test_results_depend_only_on_the_seed() -> None:
    plans = (vad(), asr(rules=(headroom(),), pool=1))

    def run(seed: int) -> dict[str, object]:
        how = replace(SETTINGS, seed=seed)
        return vars(summarize_result(Simulation(plans, create_configured_policy(plans), steps_to(60, 240), how).run()))

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_longer_simulation_steps_change_results_little() -> None:
    plans = (vad(), asr(2, 6, places=500, rules=(headroom(),)))
    fine, coarse = (
        Simulation(
            plans,
            create_configured_policy(plans),
            steps_to(600, 1_600),
            replace(SETTINGS, tick_s=tick),
        ).run()
        for tick in (1, 10)
    )
    assert coarse.call_results.offered == pytest.approx(fine.call_results.offered, rel=0.02)
    assert coarse.call_results.refused == pytest.approx(
        fine.call_results.refused, rel=0.1
    )  # an alarm reacts a tick later
    assert summarize_result(coarse).host_hours["inf2"] == pytest.approx(
        summarize_result(fine).host_hours["inf2"], rel=0.06
    )


def test_totals_of_a_summary_are_consistent() -> None:
    plans = (vad(), asr(2, 2))
    result = Simulation(plans, create_configured_policy(plans), steady(150, 3_600), SETTINGS).run()
    summary = summarize_result(result)
    assert summary.host_hours == pytest.approx({"vad": 6.0, "inf2": 2.0})
    assert summary.usd == pytest.approx(6 * 0.31904 + 2 * 12.98127)
    assert summary.refused_call_seconds == summary.refused_calls * 60
    # The load is constantly 1.5 times the number of slots.
    assert (summary.short_of_places_s, summary.still_short) == (3_600, True)
    assert summary.refused_calls / summary.offered_calls == pytest.approx(1 / 3, abs=0.03)
    assert summary.overshoot_percent == 0


@pytest.mark.parametrize("model", [Simulation, OneByOne])
def test_a_vad_host_refuses_calls_beyond_its_capacity(model: type[Simulation]) -> None:
    plans = (vad(1, places=20), asr(6, 6))
    crowded = model(plans, create_configured_policy(plans), steady(120, 600), SETTINGS).run()
    roomy = model((vad(1, places=90), asr(6, 6)), create_configured_policy(plans), steady(120, 600), SETTINGS).run()
    assert crowded.time_series.carried.max() <= 3 * 20
    assert crowded.call_results.refused > 0.4 * crowded.call_results.offered
    assert roomy.call_results.refused == 0
