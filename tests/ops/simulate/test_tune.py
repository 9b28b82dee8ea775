"""The search of `voice simulate --tune` for minimums, thresholds and steps."""

from dataclasses import replace
from itertools import pairwise

from tests.ops.simulate.worlds import SETTINGS, asr, headroom, steps_to, vad
from voice_ops.simulate.tune import iter_candidate_changes, search_plans

PLANS = (vad(), asr(2, 6, rules=(headroom(),)))
CROWD = steps_to(60, 260)


def test_a_search_ends_when_the_limit_is_met() -> None:
    path = search_plans(PLANS, CROWD, SETTINGS, 0.01)
    assert path[0].change == "the file"
    assert path[0].refused > 0.01
    assert path[-1].refused <= 0.01 < path[-2].refused
    assert all(after.refused < before.refused for before, after in pairwise(path))
    assert path[-1].plans[1] != PLANS[1]


def test_a_file_that_meets_the_limit_is_not_changed() -> None:
    assert len(search_plans(PLANS, CROWD, SETTINGS, 1.0)) == 1


def test_an_unreachable_limit_ends_with_the_best_file() -> None:
    fixed = (vad(), asr(2, 2))
    path = search_plans(fixed, CROWD, SETTINGS, 0.0)
    assert path[-1].refused > 0


def test_every_change_affects_one_fleet_within_its_maximum() -> None:
    found = list(iter_candidate_changes(PLANS))
    assert found
    for _, plans in found:
        assert sum(one != other for one, other in zip(plans, PLANS, strict=True)) == 1
        assert all(group.min_hosts <= group.max_hosts for plan in plans for group in plan.groups)
    full = replace(
        PLANS[1], groups=tuple(replace(each, min_hosts=each.max_hosts) for each in PLANS[1].groups), rules=()
    )
    assert not list(iter_candidate_changes((full,)))
