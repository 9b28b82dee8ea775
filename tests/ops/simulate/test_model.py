"""What hosts are taken to be, what they publish, and how policies answer."""

from dataclasses import replace

import numpy as np
import pytest

import blueprint
from blueprint.aws.autoscaling import GroupSize
from blueprint.contract.metrics import METRICS
from blueprint.engines.launch.coldstart import BUDGETS
from blueprint.file.model.scaling import Statistic
from ops.simulate.capacity import fleet_plans
from ops.simulate.fleet import Fleet
from ops.simulate.metrics import MODELS, STREAMS_PER_CORE_CEILING, Period, check_modelled, ring_percent
from ops.simulate.policies import CPU, PEERS, QUEUE, SEED, own
from ops.simulate.report import summarize
from ops.simulate.run import Simulation
from ops.simulate.scaling import queued, tracked
from ops.simulate.traces import Trace
from tests.ops.simulate.one_by_one import OneByOne
from tests.ops.simulate.worlds import (
    PRODUCTION,
    ROOT,
    SETTINGS,
    ZONES,
    asr,
    gateway,
    headroom,
    production,
    simulate,
    steady,
    steps_to,
    vad,
    without_artifacts,
)


def ring_at(utilization: float) -> float:
    plan = vad()
    fleet = Fleet(plan, ZONES)
    assert plan.data_path
    fleet.calls = np.array([round(utilization * STREAMS_PER_CORE_CEILING * plan.data_path.rx_queues)])
    return float(ring_percent(fleet)[0])


def test_a_ring_fills_only_when_its_core_is_all_but_busy() -> None:
    shares = [ring_at(utilization) for utilization in (0.0, 0.5, 0.8, 0.9, 0.96, 0.98, 1.0, 1.5)]
    assert shares == sorted(shares)
    assert shares[1] < 5
    assert shares[4] < 80 < shares[5]
    assert shares[-1] == 100


@pytest.mark.parametrize(("busy", "percent"), [(0.4, 40), (1.0, 100), (1.5, 100)])
def test_how_busy_a_full_host_is_moves_utilisation_and_not_its_places(busy: float, percent: float) -> None:
    plans = (vad(1), asr(1, 1))
    fleet = Simulation(plans, own(plans), steady(1), replace(SETTINGS, busy_at_full=busy)).fleets[1]
    fleet.calls = np.array([fleet.plan.places])
    assert [float(MODELS[name](fleet)[0]) for name in ("GpuBusy", "NeuronHeadroom", "SlotsTaken", "FreeSlots")] == [
        percent, 100 - percent, 100, 0,
    ]  # fmt: skip


def test_every_metric_that_is_simulated_can_be_published() -> None:
    assert set(MODELS) <= set(METRICS)


def test_a_rule_on_another_metric_is_refused() -> None:
    rule = headroom().model_copy(update={"metric": "EncoderQueueDepth"})
    with pytest.raises(ValueError, match="rule headroom of fleet inf2 reads EncoderQueueDepth"):
        check_modelled(asr(rules=(rule,)))


@pytest.mark.parametrize(
    ("statistic", "datapoint"),
    [(Statistic.AVERAGE, 2.5), (Statistic.MAXIMUM, 4), (Statistic.MINIMUM, 1), (Statistic.SUM, 10)],
)
def test_a_period_folds_samples_of_all_hosts(statistic: Statistic, datapoint: float) -> None:
    period = Period(statistic)
    assert period.close() is None
    period.add(np.array([1.0, 3.0]))
    period.add(np.array([]))
    period.add(np.array([2.0, 4.0]))
    assert period.close() == datapoint
    assert period.close() is None


def test_places_and_prices_come_from_file_and_catalogue() -> None:
    plans = {plan.name: plan for plan in production()}
    assert plans["vad"].places == 4 * 2_000
    assert plans["inf2"].places == 12 * plans["trn1"].places
    assert plans["p5"].places == 221  # docs/tuning.md has the arithmetic
    assert [plan.kind for plan in production()] == ["vad", "neuron", "neuron", "gpu", "gateway", "agent"]
    assert plans["gateway"].usd_per_hour == pytest.approx(0.03238 + 2 * 0.00356)
    assert plans["inf2"].usd_per_hour == 12.98127
    assert plans["inf2"].warm_hosts == 6
    assert plans["trn1"].warm_hosts == 0


def test_a_file_that_says_how_many_sessions_is_believed() -> None:
    plans = fleet_plans(blueprint.load(ROOT / "deployments/seed.yaml"), {})
    # vLLM does not run on the seed's Neuron hosts, so they carry nothing.
    assert [plan.places for plan in plans[1:-1]] == [0, 0, 32]


def test_a_boot_is_the_cold_start_budget_and_no_shorter_than_the_file_says() -> None:
    inf2, p5 = without_artifacts()[1], without_artifacts()[3]
    (compiling,) = (row.seconds for rows in BUDGETS.values() for row in rows if row.seconds == 385)
    assert {phase.name: phase.cold_s for phase in inf2.boot.phases}["compile"] == compiling
    # The engine of a host in the warm pool has not run yet: it pulls nothing, and compiles all the same.
    assert inf2.boot.cold_s - inf2.boot.warm_s == 300 + 30
    assert inf2.boot.warm_s > compiling
    assert p5.boot.cold_s == blueprint.load(PRODUCTION).aws.asr[2].warm_up_s


def test_a_host_that_fetches_artifacts_compiles_nothing() -> None:
    with_them, without = production()[1].boot, without_artifacts()[1].boot
    assert {phase.name: phase.cold_s for phase in with_them.phases}["compile"] == 60
    assert without.cold_s - with_them.cold_s == without.warm_s - with_them.warm_s == 385 - 60


def test_an_operator_s_own_numbers_win() -> None:
    plan = fleet_plans(blueprint.load(PRODUCTION), {"inf2": (50, 5)})[1]
    assert (plan.boot.cold_s, plan.boot.warm_s, plan.boot.prepare_s) == (50, 5, 45)
    with pytest.raises(
        ValueError, match="inf3 is not a fleet of production-us-east-1: vad, inf2, trn1, p5, gateway, agent"
    ):
        fleet_plans(blueprint.load(PRODUCTION), {"inf3": (50, 5)})


@pytest.mark.parametrize(
    ("value", "grows", "desired"),
    [(50, True, 4), (51, True, 5), (100, True, 8), (100, False, 4), (40, False, 4), (20, False, 2), (0, False, 1)],
)
def test_target_tracking_is_proportional(value: float, grows: bool, desired: int) -> None:
    assert tracked(GroupSize(4, 1, 9, in_service=4), value, grows=grows) == desired


def test_target_tracking_waits_for_warm_up_before_it_removes() -> None:
    assert tracked(GroupSize(5, 1, 9, in_service=4, warming=1), 20, grows=False) == 5
    assert tracked(GroupSize(5, 1, 9, in_service=4, warming=1), 100, grows=True) == 8


def test_target_tracking_counts_hosts_that_drain_until_they_have_gone() -> None:
    # Four hosts at 25 % want two, and two of them drain already: no third goes.
    assert tracked(GroupSize(2, 1, 9, in_service=2, terminating=2), 25, grows=False) == 2


def test_the_seed_s_table_never_shrinks_and_has_no_warm_pool() -> None:
    plans = (vad(), asr(2, 6, pool=2, rules=(headroom(),)))
    trace = steps_to(60, 240)
    result = Simulation(plans, SEED, replace(trace, calls=(60, 60, 240, 10)), SETTINGS).run()
    assert result.course.stopped["inf2"].max() == 0
    assert (np.diff(result.course.hosts["inf2"]) >= 0).all()
    assert result.course.hosts["inf2"][-1] > 2


def test_target_tracking_follows_the_load_both_ways() -> None:
    plans = (vad(), asr(2, 8))
    trace = replace(steps_to(80, 240, seconds=5_400), calls=(80, 80, 240, 20))
    settled = replace(SETTINGS, lead_in_s=1_800)
    hosts = Simulation(plans, CPU, trace, settled).run().course.hosts["inf2"]
    assert hosts.max() >= 6
    assert hosts[-1] < hosts.max()
    # Its alarm wants three datapoints of a minute.
    assert 300 + 170 <= int((np.diff(hosts) > 0).argmax()) <= 300 + 300


@pytest.mark.parametrize(("hosts", "desired"), [(4.39, 4), (4.41, 5), (3.6, 4), (3.5, 4), (2.9, 3), (0.0, 0)], ids=str)
def test_a_queue_asks_for_whole_hosts_and_lets_a_tenth_be(hosts: float, desired: int) -> None:
    assert queued(GroupSize(4, 0, 9, in_service=4), hosts) == desired


def test_keda_on_the_queue_doubles_at_most_and_shrinks_after_five_minutes() -> None:
    plans = (vad(), asr(1, 12))
    trace = Trace("up and down", (0.0, 300.0, 301.0, 900.0, 901.0, 2_000.0), (30, 30, 400, 400, 30, 30))
    hosts = Simulation(plans, QUEUE, trace, SETTINGS).run().course.hosts["inf2"]
    assert hosts[299] == 1
    # 370 callers wait: four more within 15 s, then as many as 400 calls of 40 to a host ask for.
    assert (hosts[318], hosts[333]) == (5, 10)
    assert hosts[901:1_195].min() == 10
    assert hosts[-1] < 10


def test_replicas_on_azure_grow_by_two_or_twice_a_minute_and_go_one_by_one() -> None:
    plans = (replace(asr(1, 12), by_queue=True),)
    trace = Trace("up and down", (0.0, 300.0, 301.0, 1_800.0, 1_801.0, 7_200.0), (30, 30, 400, 400, 30, 30))
    hosts = Simulation(plans, own(plans), trace, SETTINGS).run().course.hosts["inf2"]
    assert (hosts[299], hosts[350], hosts[380]) == (1, 3, 6)
    assert 10 <= hosts[440] <= 12
    # Half an hour without need, then one in ten minutes; each drains for up to five.
    assert hosts[1_900:3_590].min() >= 10
    assert set(np.diff(hosts[3_590:]).tolist()) == {-1, 0}
    assert 3 <= hosts[3_590] - hosts[6_000] <= 5


def test_pods_on_azure_grow_by_what_they_hold_and_asr_pods_fill_up_alike() -> None:
    """Three data-plane pods at a mean of 60 of 90 places refuse by chance; ASR pods only when all are full."""
    front = replace(gateway(3, 3, places=90), by_queue=True)
    pods = [replace(front, name=kind, kind=kind) for kind in ("vad", "asr")]
    short = [replace(each, places=66) for each in pods]
    room = asr(6, 6, places=100)
    chance, alike = (simulate((each, room), steady(180, 1_800)).ledger.refused for each in short)
    assert alike < chance / 4
    grown = [simulate((replace(each, groups=gateway(3, 12).groups), room), steps_to(60, 400)) for each in pods]
    for result, name in zip(grown, ("vad", "asr"), strict=True):
        assert result.course.hosts[name][250] == 3
        assert 6 <= result.course.hosts[name][-1] <= 8  # 400 calls, 70 % of 90 a pod


def test_gateway_tasks_refuse_what_they_do_not_carry_and_follow_their_sockets() -> None:
    plans = (vad(), asr(6, 6), gateway(2, 12, places=20))
    result = simulate(plans, steps_to(20, 120, seconds=3_600))
    tasks = result.course.hosts["gateway"]
    assert result.ledger.refused
    assert tasks[300 + 180 - 60] == 2  # three minutes above the target, as ECS' alarm wants
    assert 9 <= tasks[-1] <= 12  # 120 calls, 70 % of 20 a task
    roomy = simulate((*plans[:2], gateway(12, 12, places=20)), steps_to(20, 120, seconds=3_600))
    assert roomy.ledger.refused < result.ledger.refused / 10


def test_policies_are_named_for_what_the_file_has() -> None:
    assert [one.name for one in PEERS] == ["seed's table alone", "CPU target 50 %", "KEDA on the queue"]
    assert own((vad(), asr())).name == "file"
    assert own((vad(), asr(pool=1))).name == "file, warm pool"


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    plans = (vad(), asr(rules=(headroom(),), pool=1))

    def run(seed: int) -> dict[str, object]:
        how = replace(SETTINGS, seed=seed)
        return vars(summarize(Simulation(plans, own(plans), steps_to(60, 240), how).run()))

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_longer_ticks_of_a_day_change_little() -> None:
    plans = (vad(), asr(2, 6, places=500, rules=(headroom(),)))
    fine, coarse = (
        Simulation(
            plans,
            own(plans),
            steps_to(600, 1_600),
            replace(SETTINGS, tick_s=tick),
        ).run()
        for tick in (1, 10)
    )
    assert coarse.ledger.offered == pytest.approx(fine.ledger.offered, rel=0.02)
    assert coarse.ledger.refused == pytest.approx(fine.ledger.refused, rel=0.1)  # an alarm sees a tick later
    assert summarize(coarse).host_hours["inf2"] == pytest.approx(summarize(fine).host_hours["inf2"], rel=0.06)


def test_a_summary_adds_up() -> None:
    plans = (vad(), asr(2, 2))
    result = Simulation(plans, own(plans), steady(150, 3_600), SETTINGS).run()
    summary = summarize(result)
    assert summary.host_hours == pytest.approx({"vad": 6.0, "inf2": 2.0})
    assert summary.usd == pytest.approx(6 * 0.31904 + 2 * 12.98127)
    assert summary.refused_call_seconds == summary.refused_calls * 60
    # Half as many calls again as there are places, throughout.
    assert (summary.short_of_places_s, summary.still_short) == (3_600, True)
    assert summary.refused_calls / summary.offered_calls == pytest.approx(1 / 3, abs=0.03)
    assert summary.overshoot_percent == 0


@pytest.mark.parametrize("model", [Simulation, OneByOne])
def test_a_vad_host_refuses_what_it_does_not_carry(model: type[Simulation]) -> None:
    plans = (vad(1, places=20), asr(6, 6))
    crowded = model(plans, own(plans), steady(120, 600), SETTINGS).run()
    roomy = model((vad(1, places=90), asr(6, 6)), own(plans), steady(120, 600), SETTINGS).run()
    assert crowded.course.carried.max() <= 3 * 20
    assert crowded.ledger.refused > 0.4 * crowded.ledger.offered
    assert roomy.ledger.refused == 0
