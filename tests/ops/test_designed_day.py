"""Cost, simulation and alerts use the same simulated day."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import voice_blueprint
from tests.synthesized import ROOT
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.azure import CPU_POOL_NAME
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import add_placeholder_digests
from voice_ops.cost.day import simulate_day
from voice_ops.cost.estimate import Assumptions, collect_charged_sections, price_section
from voice_ops.cost.prices import HOURS_PER_MONTH, load_price_book
from voice_ops.gameday.command import _create_simulated_result
from voice_ops.gameday.simulated import simulate_scenarios
from voice_ops.init.answers import Answers, Cloud
from voice_ops.init.drafts import create_drafts
from voice_ops.simulate.run import PolicyResult

SHIPPED_DEPLOYMENTS = ("small", "cells", "production-azure", "production-us-east-1")
"""Files with a load, of which only `small` is simulated on every change."""
REGIONS = {Cloud.AWS: "us-east-1", Cloud.AZURE: "southcentralus"}
GENERATED_FILES = [
    (cloud, calls) for cloud in Cloud for calls in (50, 100, 200, 400, 700, 1_000, 1_500, 2_000, 2_500, 3_000)
]
FILES_ON_EVERY_CHANGE = [(cloud, 200) for cloud in Cloud]
"""Generated files whose faults are tested on every change; the others are tested nightly."""
TOLERANCE = 0.02
NOTIFICATION_SHARE = 0.8
"""Fraction of the budget above which AWS Budgets and Azure notify operators."""


@cache
def load_shipped(name: str) -> Deployment:
    return voice_blueprint.load(ROOT / f"deployments/{name}.yaml")


@cache
def generate_file(cloud: Cloud, calls: int) -> Deployment:
    first, *_ = create_drafts(Answers(cloud, REGIONS[cloud], calls, agents=False), "made")
    with first.load() as deployment:
        return deployment


def assert_no_alert(deployment: Deployment) -> None:
    """Simulate the day with the alerts of the file, and assert that none fires."""
    played = simulate_day(deployment, alert_deployment=add_placeholder_digests(deployment)).result
    load = resolve_design_load(deployment)
    assert played.firings == ()
    assert float(played.time_series.wanted.max()) == pytest.approx(calculate_peak_calls(load), rel=0.01)
    assert played.call_results.refused <= 0.001 * played.call_results.offered


def assert_cost_matches_simulation(deployment: Deployment) -> None:
    """Compare the hosts in the cost estimate with those of a simulation with other random callers.

    For fleets of two or three hosts a single additional host is 7 %, so the median of three days is used.
    """
    ours, *others = (hosts_usd(simulate_day(deployment, seed=seed).result) for seed in (1, 2))
    assert ours > 0
    if ours != pytest.approx(others[0], rel=TOLERANCE):
        others += [hosts_usd(simulate_day(deployment, seed=seed).result) for seed in (3, 4)]
    assert ours == pytest.approx(float(np.median(others)), rel=TOLERANCE)


def hosts_usd(result: PolicyResult) -> float:
    prices = {plan.name: plan.usd_per_hour or 0.0 for plan in result.plans}
    return sum(float(np.mean(hosts)) * prices[name] for name, hosts in result.time_series.hosts.items())


def test_a_small_file_fires_no_alert_on_its_day_and_its_cost_matches() -> None:
    assert_no_alert(load_shipped("small"))
    assert_cost_matches_simulation(load_shipped("small"))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHIPPED_DEPLOYMENTS[1:])
def test_a_shipped_file_fires_no_alert_on_its_day_and_its_cost_matches(name: str) -> None:
    assert_no_alert(load_shipped(name))
    assert_cost_matches_simulation(load_shipped(name))


@pytest.mark.nightly
@pytest.mark.parametrize(("cloud", "calls"), GENERATED_FILES)
def test_a_new_file_fires_no_alert_on_its_day(cloud: Cloud, calls: int) -> None:
    assert_no_alert(generate_file(cloud, calls))


def alerts_of_faults(deployment: Deployment) -> set[str]:
    """Simulate each game-day fault, and return the alerts; a fault that drops calls must fire a documented alert."""
    effects = simulate_scenarios(deployment)
    rows = [_create_simulated_result(deployment, name, effect) for name, effect in effects.items()]
    assert [row for row in rows if not row.passed] == []
    return {row.scenario for row in rows if row.fired}


def test_faults_of_a_small_file_fire_the_documented_alerts() -> None:
    assert alerts_of_faults(load_shipped("small")) >= {"quota refusal", "silent metric"}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHIPPED_DEPLOYMENTS[1:])
def test_faults_of_a_shipped_file_fire_the_documented_alerts(name: str) -> None:
    assert alerts_of_faults(load_shipped(name))


def test_cpu_nodes_of_the_day_follow_the_memory_of_pods() -> None:
    simulated = simulate_day(generate_file(Cloud.AZURE, 50))
    azure = simulated.deployment.azure
    assert azure.callers
    assert azure.cpu_pool
    edge, larger = azure.callers.edge, {"memory_gib": 13}
    callers = azure.callers.model_copy(
        update={
            "edge": edge.model_copy(update={"gateway": edge.gateway.model_copy(update=larger)}),
            "vad": azure.callers.vad.model_copy(update=larger),
            "asr": azure.callers.asr.model_copy(update=larger),
        }
    )
    pool = azure.cpu_pool.model_copy(update={"nodes": HostCount(min=1, max=20)})
    section = azure.model_copy(update={"cpu_pool": pool, "callers": callers})
    deployment = simulated.deployment.model_copy(update={"azure_section": section})
    pods = sum(simulated.result.time_series.hosts[tier] for tier in ("gateway", "vad", "asr"))
    # A node has CPUs for three to six of these pods, and memory for one.
    assert replace(simulated, deployment=deployment).expected_sizes.sizes[CPU_POOL_NAME] == pytest.approx(np.mean(pods))


@pytest.mark.parametrize(("cloud", "calls"), FILES_ON_EVERY_CHANGE)
def test_the_faults_of_a_few_first_files_fire_what_their_runbooks_name(cloud: Cloud, calls: int) -> None:
    assert alerts_of_faults(generate_file(cloud, calls))


@pytest.mark.nightly
@pytest.mark.parametrize(("cloud", "calls"), [each for each in GENERATED_FILES if each not in FILES_ON_EVERY_CHANGE])
def test_faults_of_a_new_file_fire_the_documented_alerts(cloud: Cloud, calls: int) -> None:
    assert alerts_of_faults(generate_file(cloud, calls))


def test_host_cost_matches_the_simulated_day_and_stays_below_the_budget_notification() -> None:
    deployment = load_shipped("small")
    (section,) = collect_charged_sections(deployment, Assumptions())
    priced = price_section(section, load_price_book(None))
    assert priced.usd.expected < NOTIFICATION_SHARE * deployment.aws.observability.monthly_budget_usd
    lines = [
        line
        for line in priced.lines
        if line.kind in {"AWS::AutoScaling::AutoScalingGroup", "AWS::ECS::Service"}
        and line.price.item.startswith(("c8g.", "fargate-"))
    ]
    assert len({line.kind for line in lines}) == 2
    integrated = hosts_usd(simulate_day(deployment).result) * HOURS_PER_MONTH
    assert sum(line.usd.expected for line in lines) == pytest.approx(integrated, rel=TOLERANCE)
