"""Reasons of refused calls in the simulation, and the limit on refusals of shipped production files."""

import itertools
from dataclasses import replace

import pytest

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS
from tests.ops.simulate.worlds import asr, headroom, simulate, steps_to, vad
from tools import measurements_doc
from voice_ops.simulate.calls import REDIAL_FRACTION
from voice_ops.simulate.capacity import calculate_default_peak, calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.command import SWEPT_UTILIZATIONS
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import Simulation, SimulationSettings
from voice_ops.simulate.shortfall import apply_reserve, find_shortfall, plan_reserve
from voice_ops.simulate.traces import create_spike_trace

LOAD = steps_to(60, 300)
PRICE = asr().usd_per_hour


def test_the_first_new_host_comes_after_alarm_and_boot() -> None:
    result = simulate((vad(), asr(low=2, high=9, rules=(headroom(change=4),))), LOAD)
    found = find_shortfall(result)
    assert found
    assert result.call_results.refused
    assert (found.places, found.peak, found.wanted) == (100, 300, 300)
    assert found.at_s == pytest.approx(301, abs=1)
    assert found.help_s
    assert 100 <= found.help_s <= 100 + 3 * 10 + 10  # a boot, and an alarm of three periods
    assert PRICE
    # 300 calls plus four standard deviations are 370 slots, at 50 per host.
    assert found.reserve == {"inf2": 8}
    assert found.hold_usd_per_hour == pytest.approx((8 - 2) * PRICE)
    assert "calls exceeded the 100 slots in service after 301 s" in str(found)
    assert "accepting all 300 calls requires a reserve that is already in service: inf2 8; " in str(found)


def test_a_reserve_uses_the_cheapest_slots_first_and_is_empty_if_the_file_has_too_few() -> None:
    inf2, p5 = asr(2, 4, places=50), asr(1, 3, places=20, kind="p5.4xlarge")
    assert inf2.usd_per_hour
    assert p5.usd_per_hour
    assert (inf2.usd_per_hour / 50 < p5.usd_per_hour / 20) is True
    assert plan_reserve([p5, inf2], 130) == {"p5": 1, "inf2": 3}
    assert plan_reserve([p5, inf2], 230) == {"p5": 2, "inf2": 4}
    assert plan_reserve([p5, inf2], 300) == {}


def test_without_scaling_no_host_is_added() -> None:
    found = find_shortfall(simulate((vad(), asr(low=2)), LOAD))
    assert found
    assert found.help_s is None
    assert "no new host started" in str(found)


def test_slots_for_the_peak_prevent_refusals() -> None:
    result = simulate((vad(), asr(low=8, high=8)), LOAD)
    assert result.call_results.refused == 0
    assert find_shortfall(result) is None


PRODUCTION = sorted(file.stem for file in DEPLOYMENTS.glob("production-*.yaml"))


# Cases at the ends of the sweep, which are tested on every change; the others are tested nightly.
EACH_CHANGE = {("production-azure", max(SWEPT_UTILIZATIONS)), ("production-us-east-1", min(SWEPT_UTILIZATIONS))}


@pytest.mark.parametrize(
    ("name", "busy"),
    [
        pytest.param(*case, marks=[pytest.mark.nightly] * (case not in EACH_CHANGE))
        for case in itertools.product(PRODUCTION, SWEPT_UTILIZATIONS)
    ],
)
def test_a_tenfold_spike_refuses_at_most_eleven_percent(name: str, busy: float) -> None:
    deployment = voice_blueprint.load(DEPLOYMENTS / f"{name}.yaml")
    plans = create_fleet_plans(deployment, {})
    store = calculate_max_store_calls(deployment)
    trace = create_spike_trace(calculate_default_peak(plans, store))
    aws = deployment.aws_section
    zones, cross_zone = (aws or deployment.azure).availability_zones, aws is None or aws.edge.cross_zone
    how = SimulationSettings(
        zones=zones,
        mean_call_s=180,
        cross_zone=cross_zone,
        seed=1,
        busy_at_full=busy,
        store_call_limit=store,
        redial_share=REDIAL_FRACTION,
    )
    result = Simulation(plans, create_configured_policy(plans), trace, how).run()
    assert result.call_results.refused <= 0.11 * result.call_results.offered
    assert result.call_results.conversations_refused <= 0.11 * result.call_results.conversations
    page = measurements_doc.DOCUMENT_PATH.read_text(encoding="utf-8")
    stale = "docs/measurements.md is stale: run `python -m tools.measurements_doc`"
    assert measurements_doc.parse_documented_percentages(page)[
        name, busy
    ] == measurements_doc.format_refused_percentage(result), stale
    found = find_shortfall(result)
    assert found
    assert found.hold_usd_per_hour
    held = apply_reserve(plans, found.reserve)
    left = Simulation(held, create_configured_policy(held), trace, replace(how, tick_s=10)).run().call_results
    assert found.too_few == ()
    assert left.refused == 0


@pytest.mark.nightly
def test_the_scaling_tables_in_docs_are_up_to_date() -> None:
    text = measurements_doc.DOCUMENT_PATH.read_text(encoding="utf-8")
    assert all(f"<!-- table: {name} -->" in text for name in measurements_doc.TABLE_FORMATTER_BY_NAME)
    assert measurements_doc.render_document(text) == text, "run `python -m tools.measurements_doc`"
