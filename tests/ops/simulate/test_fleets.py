"""Hosts and groups: boots, warm pools, quotas, drains, lost zones, spot."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ops.simulate.one_by_one import OneByOne
from tests.ops.simulate.worlds import SETTINGS, ZONES, asr, headroom, simulate, steady, steps_to, vad
from voice_blueprint.file.model.aws import Rollout
from voice_blueprint.file.model.scaling import Comparison
from voice_ops.simulate.account import map_families_to_quota_codes
from voice_ops.simulate.capacity import GroupPlan
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import Simulation
from voice_ops.simulate.traces import Outage, SpotWave

INF_VCPUS = 192


def first_tick(happens: np.ndarray) -> int:
    """Return the first tick at which a condition is true; a tick is a second here."""
    assert happens.any()
    return int(happens.argmax())


@pytest.mark.parametrize(("pool", "boot_s"), [(0, 100), (1, 20)], ids=["cold", "from warm pool"])
def test_a_host_accepts_calls_after_booting(pool: int, boot_s: int) -> None:
    course = simulate((vad(), asr(rules=(headroom(),), pool=pool)), steps_to(60, 150)).time_series
    launched = first_tick(np.diff(course.hosts["inf2"]) > 0)
    taking = first_tick(np.diff(course.places) > 0)
    assert taking - launched == pytest.approx(boot_s, abs=1)


def test_one_step_adds_one_host_for_each_boot_and_warm_up() -> None:
    course = simulate((vad(), asr(2, 6, rules=(headroom(),))), steps_to(60, 400)).time_series
    launches = np.flatnonzero(np.diff(course.hosts["inf2"]) > 0)
    assert len(launches) == 4
    # A host boots for 100 s and warms up for 50 s, followed by the next evaluation of the alarm.
    assert all(150 <= gap <= 150 + 60 for gap in np.diff(launches))


def test_a_warm_pool_is_refilled_and_billed_during_preparation() -> None:
    trace = steps_to(600, 1_100)
    result = simulate((vad(), asr(2, 6, places=500, rules=(headroom(),), pool=3)), trace)
    stopped, running = result.time_series.stopped["inf2"], result.time_series.hosts["inf2"]
    assert stopped[0] == 3
    assert running[-1] == 3
    # A host of the warm pool entered service, and another host replaced it in the pool.
    assert stopped.min() == 2
    assert stopped[-1] == 3


def test_gpus_scale_out_when_a_quota_limits_neuron() -> None:
    plans = (vad(), asr(2, 6, rules=(headroom(),)), asr(2, 2, kind="p5.4xlarge"))
    trace = steps_to(60, 180)
    free = simulate(plans, trace)
    bound = simulate(plans, trace, replace(SETTINGS, quotas={map_families_to_quota_codes()["inf"]: 2 * INF_VCPUS}))
    assert free.time_series.hosts["inf2"].max() > 2
    assert free.refused_launches == 0
    assert bound.time_series.hosts["inf2"].max() == 2
    assert bound.refused_launches > 0
    assert bound.call_results.gpu_s > free.call_results.gpu_s


def test_scale_in_drains_without_dropping_calls() -> None:
    shrink = headroom(below=90, change=-1).model_copy(update={"name": "shrink"})
    result = simulate((vad(), asr(2, 6, rules=(shrink,), places=100)), replace(steady(300), calls=(300, 60)))
    course = result.time_series
    assert course.hosts["inf2"][0] > 2
    assert course.hosts["inf2"][-1] == 2
    assert result.call_results.cut == 0
    # A draining host accepts no calls, and is billed until its last call has ended.
    closed, gone = first_tick(np.diff(course.places) < 0), first_tick(np.diff(course.hosts["inf2"]) < 0)
    assert gone > closed


def test_a_drain_ends_within_its_timeout() -> None:
    shrink = headroom(below=90, change=-1).model_copy(update={"name": "shrink"})
    plans = (vad(), replace(asr(2, 6, rules=(shrink,), places=100), drain_timeout_s=10))
    course = simulate(plans, replace(steady(300), calls=(300, 60))).time_series
    closed, gone = first_tick(np.diff(course.places) < 0), first_tick(np.diff(course.hosts["inf2"]) < 0)
    assert gone - closed == pytest.approx(10, abs=1)


def test_a_lost_zone_loses_its_hosts_and_returns() -> None:
    trace = replace(steady(200), outages=(Outage(0, 310, 910),))
    result = simulate((vad(2), asr(6, 6, places=100)), trace)
    course = result.time_series
    # VAD groups are bound to their zone, and wait for it; the ASR group launches hosts in the other zones.
    vad_hosts, neuron = course.hosts["vad"], course.hosts["inf2"]
    assert [vad_hosts[second] for second in (308, 400, 900, 1_000)] == [6, 4, 4, 6]
    assert [neuron[second] for second in (308, 312, 400)] == [6, 4, 6]
    assert course.places[312] == 400
    assert result.call_results.degraded_s > 0
    assert result.call_results.cut == 0


def test_calls_of_a_lost_zone_without_a_free_slot_are_dropped() -> None:
    trace = replace(steady(280), outages=(Outage(1, 310, 910),))
    for model in (Simulation, OneByOne):
        result = simulate((vad(2), asr(6, 6, places=50)), trace, model=model)
        before, after = result.time_series.carried[308], result.time_series.carried[312]
        assert before > 230
        assert after <= 4 * 50
        assert result.call_results.cut == pytest.approx(before - 4 * 50, abs=15)


def test_interrupted_spot_hosts_are_replaced() -> None:
    plans = (vad(), asr(4, 6, places=100, spot=True))
    often = replace(SETTINGS, interruptions_per_day=500)
    course = simulate(plans, steady(100), often).time_series
    assert course.places.min() < course.places[0]
    assert course.hosts["inf2"].max() > 4
    calm = simulate(plans, steady(100)).time_series
    assert set(calm.hosts["inf2"]) == {4}


def test_a_spot_interruption_removes_all_spot_hosts_and_blocks_launches() -> None:
    plans = (vad(), asr(4, 6, places=100, spot=True), asr(1, 1, places=100, kind="p5.4xlarge"))
    course = simulate(plans, replace(steady(100), spot_waves=(SpotWave(310, 910),))).time_series
    assert [course.hosts["inf2"][second] for second in (300, 450, 900)] == [4, 0, 0]
    assert course.hosts["inf2"][1_000] == 4
    assert set(course.hosts["p5"]) == {1}
    # Auto Scaling retries each minute; then a host boots.
    assert first_tick(course.places[450:] > 100) == pytest.approx(910 - 450 + 130, abs=60)


@pytest.mark.parametrize("after", [400.0, 5.0])
def test_a_missing_metric_neither_adds_nor_removes_hosts(after: float) -> None:
    shrink = headroom(below=50, change=-1).model_copy(update={"name": "shrink", "comparison": Comparison.ABOVE})
    plans = vad(), asr(2, 6, rules=(headroom(), shrink))
    trace = replace(steps_to(150, after), seconds=(0.0, 300.0, 600.0, 1_800.0))
    heard, unheard = (
        simulate(plans, trace, replace(SETTINGS, silent_metrics=silent)).time_series.hosts["inf2"]
        for silent in (frozenset[str](), frozenset({"NeuronHeadroom"}))
    )
    assert heard[-1] == (6 if after > 150 else 2)
    assert set(unheard) == {5}


def test_another_rule_scales_if_a_metric_is_missing() -> None:
    slots = headroom().model_copy(
        update={"name": "slots", "metric": "SlotsTaken", "comparison": Comparison.ABOVE, "threshold": 80}
    )
    plans = (vad(), asr(2, 6, rules=(slots, headroom())))
    how = replace(SETTINGS, silent_metrics=frozenset({"SlotsTaken"}))
    assert simulate(plans, steps_to(60, 400), how).time_series.hosts["inf2"].max() == 6
    # If slots are the limit rather than accelerators, no other metric shows that hosts are full.
    assert simulate(plans, steps_to(60, 400), replace(how, busy_at_full=0.7)).time_series.hosts["inf2"].max() == 2


def test_new_vad_hosts_do_not_relieve_an_overloaded_host() -> None:
    """A flow stays on its host: with long calls, a new host receives only new calls."""
    slots = headroom().model_copy(update={"metric": "VadSessions", "comparison": Comparison.ABOVE, "threshold": 40})
    lone = vad(1, zones=("a",))
    plans = (replace(lone, groups=(GroupPlan("vad-a", ("a",), 1, 2),), rules=(slots,)), asr(6, 6))
    how = replace(SETTINGS, mean_call_s=1e6)
    simulation = Simulation(plans, create_configured_policy(plans), steps_to(100, 140, at=600, seconds=1_200), how)
    simulation.begin()
    fleet, seen = simulation.fleets[0], []
    for second in (30, 590, 1_190):
        simulation.env.run(until=second)
        seen.append([int(fleet.calls[host.index]) for host in fleet.groups[0].hosts if host.index >= 0])
    assert seen[0] == [pytest.approx(100, abs=1)]
    assert seen[1] == [pytest.approx(100, abs=1), 0]
    assert seen[2] == [pytest.approx(120, abs=15), pytest.approx(20, abs=15)]


def test_on_demand_hosts_are_not_interrupted() -> None:
    often = replace(SETTINGS, interruptions_per_day=500)
    assert set(simulate((vad(), asr(4, 6, places=100)), steady(100), often).time_series.hosts["inf2"]) == {4}


def test_hosts_are_spread_over_zones() -> None:
    simulation = Simulation((vad(), asr(5, 6)), create_configured_policy((vad(), asr(5, 6))), steady(60), SETTINGS)
    simulation.begin()
    there = [host.zone for host in simulation.fleets[1].groups[0].hosts]
    assert sorted(map(there.count, ZONES)) == [1, 2, 2]


ROLLING = replace(SETTINGS, rolled_fleets=frozenset({"inf2"}), rollout=Rollout(checkpoint_pause_s=60))


def test_a_rollout_replaces_every_host_without_reducing_capacity() -> None:
    plans = (vad(), asr(4, 8))
    simulation = Simulation(plans, create_configured_policy(plans), steady(150), ROLLING)
    simulation.begin()
    (group,) = simulation.fleets[1].groups
    before, sizes = list(group.hosts), []
    for second in range(1, 1_800):
        simulation.env.run(until=second)
        sizes.append((group.size.in_service_host_count, len(group.hosts)))
    assert not set(before) & set(group.hosts)
    assert min(serving for serving, _ in sizes) == len(before)
    assert max(hosts for _, hosts in sizes) == len(before) + 1


def test_a_rollout_in_a_reservation_terminates_before_launching() -> None:
    plans = (vad(), replace(asr(2, 2), can_surge=False))
    simulation = Simulation(plans, create_configured_policy(plans), steady(20), ROLLING)
    simulation.begin()
    (group,) = simulation.fleets[1].groups
    before, sizes = list(group.hosts), []
    for second in range(1, 1_800):
        simulation.env.run(until=second)
        sizes.append((group.size.in_service_host_count, len(group.hosts) + len(group.draining_hosts)))
    assert not set(before) & set(group.hosts)
    assert min(serving for serving, _ in sizes) == len(before) - 1
    assert {hosts for _, hosts in sizes} == {len(before) - 1, len(before)}


def test_a_rollout_reduces_the_hosts_during_a_spike() -> None:
    """With a quota for six hosts, two of which drain, four hosts serve calls."""
    quota = {map_families_to_quota_codes()["inf"]: 6 * INF_VCPUS}
    course, fleets = steps_to(60, 290, at=150), (vad(), asr(2, 6, rules=(headroom(change=4),)))
    at_once = replace(ROLLING, rollout=Rollout(surge_percent=100, checkpoint_pause_s=0), mean_call_s=600.0)
    quiet, rolled = (
        simulate(fleets, course, replace(at_once, quotas=quota, rolled_fleets=rolls))
        for rolls in (frozenset(), ROLLING.rolled_fleets)
    )
    assert rolled.time_series.refused[-1] > quiet.time_series.refused[-1]
