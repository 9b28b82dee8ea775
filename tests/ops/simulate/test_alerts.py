"""Alerts are evaluated on simulated metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import cast

import numpy as np
import pytest
import simpy

import voice_blueprint
from tests.ops.simulate.worlds import PRODUCTION, ROOT, steady
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison
from voice_blueprint.hosts import add_placeholder_digests
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID, MIN_REFUSALS
from voice_blueprint.observability.aws.alerts import build_alerts as aws_alerts
from voice_blueprint.observability.azure.alerts import Alert
from voice_blueprint.observability.azure.alerts import build_alerts as azure_alerts
from voice_blueprint.observability.azure.platform import PlatformAlert, build_platform_alerts
from voice_ops.gameday.simulated import WITHHELD_METRICS
from voice_ops.simulate.alerts import AlertReplay, AlertRule
from voice_ops.simulate.capacity import calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.fleet import ProcessGenerator
from voice_ops.simulate.metrics import HostValues
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import Simulation, SimulationSettings
from voice_ops.simulate.traces import LoadTrace, Outage

FILE = add_placeholder_digests(voice_blueprint.load(PRODUCTION))
AZURE = add_placeholder_digests(voice_blueprint.load(ROOT / "deployments/production-azure.yaml"))


def fired_alerts(trace: LoadTrace, deployment: Deployment = FILE, **how: object) -> set[str]:
    plans, aws = create_fleet_plans(deployment, {}), deployment.aws_section
    settings = SimulationSettings(
        zones=aws.availability_zones if aws else deployment.azure.availability_zones,
        mean_call_s=180,
        cross_zone=True,
        seed=1,
        store_call_limit=calculate_max_store_calls(deployment),
        tick_s=10,
        lead_in_s=600,
    )
    settings = replace(settings, **how)  # type: ignore[arg-type]
    return {
        each.id
        for each in Simulation(plans, create_configured_policy(plans), trace, settings, alert_deployment=deployment)
        .run()
        .firings
    }


@cache
def minimum_slots() -> int:
    """Return the slots of the minimum number of ASR hosts."""
    asr = [plan for plan in create_fleet_plans(FILE, {}) if plan.kind in {"neuron", "gpu"}]
    return sum(group.min_hosts * plan.slots for plan in asr for group in plan.groups)


def test_low_load_fires_no_alert() -> None:
    assert fired_alerts(steady(1_500)) == set()
    assert fired_alerts(steady(700), AZURE) == set()


def test_more_calls_than_slots_fire_the_documented_alerts() -> None:
    places = minimum_slots()
    plenty = LoadTrace("jump", (0.0, 300.0, 310.0, 900.0), (1_000, 1_000, 3.0 * places, 3.0 * places))
    assert {"asr-slots-exhausted", "sessions-refused", "neuron-exhausted"} <= fired_alerts(plenty)


def test_a_store_that_fills_up_fires_its_alert() -> None:
    assert "valkey-memory-high" not in fired_alerts(steady(0.77 * 12_000, 900), store_call_limit=12_000)
    assert "valkey-memory-high" in fired_alerts(steady(0.84 * 12_000, 900), store_call_limit=12_000)
    assert "redis-memory-high" not in fired_alerts(steady(0.77 * 2_000, 900), AZURE, store_call_limit=2_000)
    assert "redis-memory-high" in fired_alerts(steady(0.94 * 2_000, 900), AZURE, store_call_limit=2_000)


def test_lasting_refusals_exhaust_the_error_budget_on_both_clouds() -> None:
    places = minimum_slots()
    lasting = LoadTrace("lasting", (0.0, 600.0, 610.0, 2_400.0), (1_000, 1_000, 3.0 * places, 3.0 * places))
    assert "error-budget-burns" in fired_alerts(lasting)
    assert "error-budget-burns" in fired_alerts(replace(lasting, calls=(700, 700, 9_000, 9_000)), AZURE)


@dataclass
class Minutes:
    """A simulation with 100 calls in every minute, some of them refused."""

    refused: Sequence[int]
    env: simpy.Environment = field(default_factory=simpy.Environment)

    def firings(self) -> list[float]:
        """Return the minutes after which the alert on an hour and five minutes fires."""
        (alert,) = (each for each in aws_alerts(FILE) if each.target == "admission-1h")
        left = iter(self.refused)
        now = [0]

        def bad_events(_: object) -> HostValues:
            now[0] = next(left)
            return np.array([float(now[0])])

        reads = (bad_events, lambda _: np.array([100.0 - now[0]]))
        watched = AlertRule(
            alert.id,
            "one",
            alert.rule,
            60,
            reads,
            ("Sum", "Sum"),
            alert.aggregate,
            tuple(alert.period_s_by_window.values()),
        )
        replay = AlertReplay(cast("Simulation", self), watched)
        self.env.process(self._sample(replay))
        self.env.process(replay.evaluate_periodically())
        self.env.run(until=60 * len(self.refused) + 1)
        return [each.at_s / 60 for each in replay.firings]

    def _sample(self, replay: AlertReplay) -> ProcessGenerator:
        yield self.env.timeout(30)
        for _ in self.refused:
            replay.sample()
            yield self.env.timeout(60)


def test_a_two_window_alert_requires_both_and_ends_with_the_short_window() -> None:
    calm = [0] * 60
    # The error budget is 0.5 %, and the alert fires above 7.2 % in an hour: 432 of 6,000 calls.
    assert Minutes([*calm, *[80] * 5, *calm]).firings() == []
    assert Minutes([*calm, *[80] * 6, *calm]).firings() == [66]
    # While the hour exceeds the threshold, five minutes without refusals resolve the alert, and it can fire again.
    assert Minutes([*calm, *[80] * 6, *[0] * 10, *[80] * 2]).firings() == [66, 77]


def test_missing_telemetry_fires_its_alert() -> None:
    assert fired_alerts(steady(1_500, 900), silent_metrics=WITHHELD_METRICS) == {"telemetry-silent"}


def test_a_lost_zone_fires_its_alert_on_both_clouds() -> None:
    lost = replace(steady(1_500, 1_800), outages=(Outage(0, 300, 1_500),))
    assert {"gateway-unhealthy", "vad-hosts-unhealthy"} <= fired_alerts(lost)
    assert "node-not-ready" in fired_alerts(replace(lost, calls=(700, 700)), AZURE)


def test_a_fixed_size_fleet_does_not_alert_at_its_maximum() -> None:
    fixed = FILE.aws.asr[0].model_copy(update={"hosts": FILE.aws.asr[0].hosts.model_copy(update={"min": 19})})
    same = FILE.aws.model_copy(update={"asr": (fixed, *FILE.aws.asr[1:])})
    names = [each.format_alarm_name(FILE) for each in aws_alerts(FILE.model_copy(update={"aws_section": same}))]
    assert not [name for name in names if "fleet-at-maximum-inf2" in name]
    assert [name for name in names if "fleet-at-maximum-trn1" in name]


@pytest.mark.parametrize(
    ("refused_share", "admitted", "value"),
    [
        (None, None, None),
        (None, 100.0, None),
        (0.0, 100.0, 0.0),
        (MIN_REFUSALS - 1.0, 0.0, 0.0),
        (MIN_REFUSALS * 1.0, 0.0, 100.0),
        (10.0, 90.0, 10.0),
        (10.0, None, 100.0),
    ],
)
def test_refusals_are_alerted_as_a_fraction(
    refused_share: float | None, admitted: float | None, value: float | None
) -> None:
    (alert,) = (each for each in aws_alerts(FILE) if each.id == "sessions-refused")
    assert alert.format_expression(["m0", "m1"]) == f"IF(m0>={MIN_REFUSALS},100*m0/SUM([m0,m1]),0)"
    assert alert.aggregate((refused_share, admitted)) == value


def test_common_settings_mean_the_same_on_both_clouds() -> None:
    ours = {each.id: each for each in aws_alerts(FILE)}
    rules = {each.id: each for each in azure_alerts(AZURE)}
    theirs: dict[str, Alert | PlatformAlert] = dict(rules)
    theirs |= {each.id: each for each in build_platform_alerts(AZURE)}
    for id_, known in ALERT_CONDITION_BY_ID.items():
        azure = theirs[id_]
        assert (azure.meaning, azure.affects_callers) == (known.meaning, known.affects_callers)
        # Two thresholds are percentages of the load and of the maximum capacity.
        assert azure.threshold in {known.threshold, known.threshold / 1000} or id_ in {"edge-errors", "edge-at-maximum"}
        if id_ in ours:
            aws = ours[id_]
            assert (aws.meaning, aws.affects_callers) == (known.meaning, known.affects_callers)
            if aws.aggregation == "LATE":
                assert aws.series[0].statistic == f"PR(:{known.threshold:g})"
            else:
                assert aws.rule.threshold == known.threshold
            assert aws.rule.comparison is (rules[id_].comparison if id_ in rules else Comparison.ABOVE)
    only = {"redis-memory-high", "redis-load-high", "edge-unhealthy", "edge-errors", "edge-at-maximum"}
    assert set(ALERT_CONDITION_BY_ID) - set(ours) == {"speech-lost", *only}
