"""Hosts and groups: boots, warm pools, quotas, drains, lost zones, spot."""

from dataclasses import replace

import numpy as np
import pytest

from blueprint.file.model.aws import Rollout
from blueprint.file.model.scaling import Comparison
from ops.simulate.account import quota_codes
from ops.simulate.capacity import GroupPlan
from ops.simulate.policies import own
from ops.simulate.run import Simulation
from ops.simulate.traces import Outage, SpotWave
from tests.ops.simulate.one_by_one import OneByOne
from tests.ops.simulate.worlds import SETTINGS, ZONES, asr, headroom, simulate, steady, steps_to, vad

INF_VCPUS = 192


def first(happens: np.ndarray) -> int:
    """Return the tick, here the second, at which something first happens."""
    assert happens.any()
    return int(happens.argmax())


@pytest.mark.parametrize(("pool", "boot_s"), [(0, 100), (1, 20)], ids=["cold", "from warm pool"])
def test_a_host_takes_calls_when_it_has_booted(pool: int, boot_s: int) -> None:
    course = simulate((vad(), asr(rules=(headroom(),), pool=pool)), steps_to(60, 150)).course
    launched = first(np.diff(course.hosts["inf2"]) > 0)
    taking = first(np.diff(course.places) > 0)
    assert taking - launched == pytest.approx(boot_s, abs=1)


def test_one_step_adds_one_host_for_each_boot_and_warm_up() -> None:
    course = simulate((vad(), asr(2, 6, rules=(headroom(),))), steps_to(60, 400)).course
    launches = np.flatnonzero(np.diff(course.hosts["inf2"]) > 0)
    assert len(launches) == 4
    # A boot of 100 s and a warm-up of 50 s, then the alarm's next minute.
    assert all(150 <= gap <= 150 + 60 for gap in np.diff(launches))


def test_a_warm_pool_is_filled_again_and_paid_while_it_is_prepared() -> None:
    trace = steps_to(600, 1_100)
    result = simulate((vad(), asr(2, 6, places=500, rules=(headroom(),), pool=3)), trace)
    stopped, running = result.course.stopped["inf2"], result.course.hosts["inf2"]
    assert stopped[0] == 3
    assert running[-1] == 3
    # The host that went into service came from the pool, and another took its place there.
    assert stopped.min() == 2
    assert stopped[-1] == 3


def test_a_quota_stops_neuron_and_gpus_take_over() -> None:
    plans = (vad(), asr(2, 6, rules=(headroom(),)), asr(2, 2, kind="p5.4xlarge"))
    trace = steps_to(60, 180)
    free = simulate(plans, trace)
    bound = simulate(plans, trace, replace(SETTINGS, quotas={quota_codes()["inf"]: 2 * INF_VCPUS}))
    assert free.course.hosts["inf2"].max() > 2
    assert free.refused_launches == 0
    assert bound.course.hosts["inf2"].max() == 2
    assert bound.refused_launches > 0
    assert bound.ledger.gpu_s > free.ledger.gpu_s


def test_scale_in_drains_and_cuts_no_call() -> None:
    shrink = headroom(below=90, change=-1).model_copy(update={"name": "shrink"})
    result = simulate((vad(), asr(2, 6, rules=(shrink,), places=100)), replace(steady(300), calls=(300, 60)))
    course = result.course
    assert course.hosts["inf2"][0] > 2
    assert course.hosts["inf2"][-1] == 2
    assert result.ledger.cut == 0
    # A draining host takes no calls, and is paid for until its last call has ended.
    closed, gone = first(np.diff(course.places) < 0), first(np.diff(course.hosts["inf2"]) < 0)
    assert gone > closed


def test_a_drain_ends_in_time() -> None:
    shrink = headroom(below=90, change=-1).model_copy(update={"name": "shrink"})
    plans = (vad(), replace(asr(2, 6, rules=(shrink,), places=100), drain_timeout_s=10))
    course = simulate(plans, replace(steady(300), calls=(300, 60))).course
    closed, gone = first(np.diff(course.places) < 0), first(np.diff(course.hosts["inf2"]) < 0)
    assert gone - closed == pytest.approx(10, abs=1)


def test_a_lost_zone_takes_its_hosts_and_comes_back() -> None:
    trace = replace(steady(200), outages=(Outage(0, 310, 910),))
    result = simulate((vad(2), asr(6, 6, places=100)), trace)
    course = result.course
    # VAD groups stay in their zone, and wait for it; the ASR group moves to the other zones.
    vad_hosts, neuron = course.hosts["vad"], course.hosts["inf2"]
    assert [vad_hosts[second] for second in (308, 400, 900, 1_000)] == [6, 4, 4, 6]
    assert [neuron[second] for second in (308, 312, 400)] == [6, 4, 6]
    assert course.places[312] == 400
    assert result.ledger.degraded_s > 0
    assert result.ledger.cut == 0


def test_calls_of_a_lost_zone_that_find_no_place_are_cut() -> None:
    trace = replace(steady(280), outages=(Outage(1, 310, 910),))
    for model in (Simulation, OneByOne):
        result = simulate((vad(2), asr(6, 6, places=50)), trace, model=model)
        before, after = result.course.carried[308], result.course.carried[312]
        assert before > 230
        assert after <= 4 * 50
        assert result.ledger.cut == pytest.approx(before - 4 * 50, abs=15)


def test_spot_hosts_are_taken_back_and_replaced() -> None:
    plans = (vad(), asr(4, 6, places=100, spot=True))
    often = replace(SETTINGS, interruptions_per_day=500)
    course = simulate(plans, steady(100), often).course
    assert course.places.min() < course.places[0]
    assert course.hosts["inf2"].max() > 4
    calm = simulate(plans, steady(100)).course
    assert set(calm.hosts["inf2"]) == {4}


def test_a_spot_wave_takes_every_spot_host_and_sells_none_until_it_ends() -> None:
    plans = (vad(), asr(4, 6, places=100, spot=True), asr(1, 1, places=100, kind="p5.4xlarge"))
    course = simulate(plans, replace(steady(100), spot_waves=(SpotWave(310, 910),))).course
    assert [course.hosts["inf2"][second] for second in (300, 450, 900)] == [4, 0, 0]
    assert course.hosts["inf2"][1_000] == 4
    assert set(course.hosts["p5"]) == {1}
    # Auto Scaling tries again each minute, and then a host boots.
    assert first(course.places[450:] > 100) == pytest.approx(910 - 450 + 130, abs=60)


@pytest.mark.parametrize("after", [400.0, 5.0])
def test_a_metric_that_goes_silent_neither_adds_nor_removes(after: float) -> None:
    shrink = headroom(below=50, change=-1).model_copy(update={"name": "shrink", "comparison": Comparison.ABOVE})
    plans = vad(), asr(2, 6, rules=(headroom(), shrink))
    trace = replace(steps_to(150, after), seconds=(0.0, 300.0, 600.0, 1_800.0))
    heard, unheard = (
        simulate(plans, trace, replace(SETTINGS, silent=silent)).course.hosts["inf2"]
        for silent in (frozenset[str](), frozenset({"NeuronHeadroom"}))
    )
    assert heard[-1] == (6 if after > 150 else 2)
    assert set(unheard) == {5}


def test_another_rule_answers_where_a_metric_is_silent() -> None:
    slots = headroom().model_copy(
        update={"name": "slots", "metric": "SlotsTaken", "comparison": Comparison.ABOVE, "threshold": 80}
    )
    plans, how = (vad(), asr(2, 6, rules=(slots, headroom()))), replace(SETTINGS, silent=frozenset({"SlotsTaken"}))
    assert simulate(plans, steps_to(60, 400), how).course.hosts["inf2"].max() == 6
    # Where places bind and accelerators do not, nothing else says that hosts are full.
    assert simulate(plans, steps_to(60, 400), replace(how, busy_at_full=0.7)).course.hosts["inf2"].max() == 2


def test_new_vad_hosts_do_not_relieve_the_hot_one() -> None:
    """A flow stays on its host: with calls that last, all that comes to a new one is new calls."""
    slots = headroom().model_copy(update={"metric": "VadSessions", "comparison": Comparison.ABOVE, "threshold": 40})
    lone = vad(1, zones=("a",))
    plans = (replace(lone, groups=(GroupPlan("vad-a", ("a",), 1, 2),), rules=(slots,)), asr(6, 6))
    how = replace(SETTINGS, call_s=1e6)
    simulation = Simulation(plans, own(plans), steps_to(100, 140, at=600, seconds=1_200), how)
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
    assert set(simulate((vad(), asr(4, 6, places=100)), steady(100), often).course.hosts["inf2"]) == {4}


def test_hosts_are_spread_over_zones() -> None:
    simulation = Simulation((vad(), asr(5, 6)), own((vad(), asr(5, 6))), steady(60), SETTINGS)
    simulation.begin()
    there = [host.zone for host in simulation.fleets[1].groups[0].hosts]
    assert sorted(map(there.count, ZONES)) == [1, 2, 2]


ROLLING = replace(SETTINGS, rolls=frozenset({"inf2"}), rollout=Rollout(checkpoint_pause_s=60))


def test_a_rollout_replaces_every_host_and_takes_no_capacity() -> None:
    plans = (vad(), asr(4, 8))
    simulation = Simulation(plans, own(plans), steady(150), ROLLING)
    simulation.begin()
    (group,) = simulation.fleets[1].groups
    before, sizes = list(group.hosts), []
    for second in range(1, 1_800):
        simulation.env.run(until=second)
        sizes.append((group.size.in_service, len(group.hosts)))
    assert not set(before) & set(group.hosts)
    assert min(serving for serving, _ in sizes) == len(before)
    assert max(hosts for _, hosts in sizes) == len(before) + 1


def test_a_rollout_in_a_reservation_takes_hosts_before_it_brings_others() -> None:
    plans = (vad(), replace(asr(2, 2), surges=False))
    simulation = Simulation(plans, own(plans), steady(20), ROLLING)
    simulation.begin()
    (group,) = simulation.fleets[1].groups
    before, sizes = list(group.hosts), []
    for second in range(1, 1_800):
        simulation.env.run(until=second)
        sizes.append((group.size.in_service, len(group.hosts) + len(group.leaving)))
    assert not set(before) & set(group.hosts)
    assert min(serving for serving, _ in sizes) == len(before) - 1
    assert {hosts for _, hosts in sizes} == {len(before) - 1, len(before)}


def test_a_spike_during_a_rollout_lacks_the_hosts_that_the_rollout_takes() -> None:
    """With a quota for six hosts, the two that drain leave four to take calls."""
    quota = {quota_codes()["inf"]: 6 * INF_VCPUS}
    course, fleets = steps_to(60, 290, at=150), (vad(), asr(2, 6, rules=(headroom(change=4),)))
    at_once = replace(ROLLING, rollout=Rollout(surge_percent=100, checkpoint_pause_s=0), call_s=600.0)
    quiet, rolled = (
        simulate(fleets, course, replace(at_once, quotas=quota, rolls=rolls)) for rolls in (frozenset(), ROLLING.rolls)
    )
    assert rolled.course.refused[-1] > quiet.course.refused[-1]
