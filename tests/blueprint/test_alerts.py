"""Alerts and dashboards match the fleets and tiers of a deployment."""

from typing import get_args

import pytest

from tests.blueprint.documents import DEPLOYMENTS, load_text
from tests.nonempty import nonempty
from voice_blueprint import Deployment, load
from voice_blueprint.aws.alarms import AlarmState, evaluate_alarm
from voice_blueprint.contract.metrics import LATENCY_BUCKETS_MS, METRICS, DropReason
from voice_blueprint.file.model.observability import LatencyThresholdMs, ObjectiveSettings
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID
from voice_blueprint.observability.aws.alerts import build_alerts
from voice_blueprint.observability.aws.dashboards import build_dashboards
from voice_blueprint.observability.aws.series import Series, build_fleet_series


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return load_text((DEPLOYMENTS / "sandbox.yaml").read_text(encoding="utf-8"), tmp_path_factory.mktemp("file"))


def ids(deployment: Deployment) -> set[str]:
    return {alert.id for alert in build_alerts(deployment)}


def with_asr(deployment: Deployment, *fleets: str) -> Deployment:
    chosen = tuple(fleet for fleet in deployment.aws.asr if fleet.name in fleets)
    return deployment.model_copy(update={"aws_section": deployment.aws.model_copy(update={"asr": chosen})})


def test_alarm_names_differ(sandbox: Deployment) -> None:
    names = [alert.format_alarm_name(sandbox) for alert in build_alerts(sandbox)]
    assert len(set(names)) == len(names)


def test_an_alert_reads_one_statistic(sandbox: Deployment) -> None:
    for alert in nonempty(build_alerts(sandbox)):
        statistics = (
            2 if alert.aggregation == "LATE" else 1
        )  # the fraction of requests within the limit, and the number of requests
        assert len({series.statistic for series in alert.series}) == statistics, alert.id


def test_a_meaning_is_one_line_that_fits_an_alarm_description(sandbox: Deployment) -> None:
    for alert in nonempty(build_alerts(sandbox)):
        assert alert.meaning.endswith(".")
        assert len(alert.meaning) < 300


def test_missing_accelerator_kinds_have_no_alert(sandbox: Deployment) -> None:
    neuron, gpu = with_asr(sandbox, "inf2"), with_asr(sandbox, "p5")
    assert ids(sandbox) - ids(neuron) == {"gpu-saturated"}
    assert ids(sandbox) - ids(gpu) == {"neuron-exhausted"}
    assert "asr-slots-exhausted" not in ids(with_asr(sandbox))


def test_missing_data_of_a_fleet_that_may_be_empty_does_not_alert(sandbox: Deployment) -> None:
    silent = {alert.target for alert in build_alerts(sandbox) if alert.id == "telemetry-silent"}
    assert silent == {"vad", "inf2", "trn1", "p5", "gateway", "agent"}
    assert "telemetry-silent" not in ids(sandbox.model_copy(update={"images": {}}))


def test_a_latency_alert_requires_several_late_requests(sandbox: Deployment) -> None:
    (alert,) = (each for each in build_alerts(sandbox) if each.target == "transcript-1h")
    assert alert.format_expression(["m0", "m1"]) == "IF(m1*(100-m0)/100>=5,100-m0,0)"
    assert [alert.aggregate(values) for values in ((None, 8.0), (90.0, 40.0), (90.0, 50.0), (0.0, 5.0))] == [
        None, 0.0, 10.0, 100.0,
    ]  # fmt: skip


def test_slow_transcripts_of_a_small_deployment_raise_an_alert() -> None:
    """CloudWatch evaluates a p95 only of 200 samples or more in a period; `small.yaml` has seven a minute."""
    small = load(DEPLOYMENTS / "small.yaml")
    (alert,) = (each for each in build_alerts(small) if each.id == "first-transcript-slow")
    every_call_is_late, one_of_seven_is = alert.aggregate([0.0, 7.0]), alert.aggregate([100 * 6 / 7, 7.0])
    assert evaluate_alarm(alert.rule, [every_call_is_late] * 3, AlarmState.OK) is AlarmState.ALARM
    # It ends as well, which a rollout waits for.
    assert evaluate_alarm(alert.rule, [one_of_seven_is] * 5, AlarmState.ALARM) is AlarmState.OK
    assert evaluate_alarm(alert.rule, [None] * 5, AlarmState.ALARM) is AlarmState.OK


@pytest.mark.parametrize("name", ["first-transcript-slow", "turn-slow", "barge-in-slow"])
def test_a_latency_alert_fires_if_more_than_one_sample_in_twenty_is_late(sandbox: Deployment, name: str) -> None:
    (alert,) = (each for each in build_alerts(sandbox) if each.id == name)
    limit_ms = ALERT_CONDITION_BY_ID[name].threshold
    assert [series.statistic for series in alert.series] == [f"PR(:{limit_ms:g})", "SampleCount"]
    shares = {percent: alert.aggregate([100 - percent, 200.0]) for percent in (5.0, 5.5)}
    assert {percent: alert.rule.is_breached_by(share or 0) for percent, share in shares.items()} == {
        5: False,
        5.5: True,
    }


def test_configured_objectives_determine_the_thresholds(sandbox: Deployment) -> None:
    typed = ObjectiveSettings(admitted_percent=99, final_within_ms=2000)
    observability = sandbox.aws.observability.model_copy(update={"objectives": typed})
    aws = sandbox.aws.model_copy(update={"observability": observability})
    found = {
        each.target: each
        for each in build_alerts(sandbox.model_copy(update={"aws_section": aws}))
        if each.short_window_s
    }
    assert [found[f"admission-{window}"].rule.threshold for window in ("1h", "6h", "1d")] == [14.4, 6, 3]
    assert [found[f"admission-{window}"].affects_callers for window in ("1h", "6h", "1d")] == [True, True, False]
    assert {each.statistic for each in found["transcript-1h"].series} == {"PR(:2000)", "SampleCount"}
    assert found["turn-6h"].period_s_by_window == {"long": 21_600, "short": 1_800}


def test_latency_objectives_are_histogram_buckets() -> None:
    assert set(get_args(LatencyThresholdMs)) <= set(LATENCY_BUCKETS_MS)


def test_a_store_without_replicas_has_no_lag_alert(sandbox: Deployment) -> None:
    state = sandbox.aws.state.model_copy(update={"replicas": 0})
    alone = sandbox.model_copy(update={"aws_section": sandbox.aws.model_copy(update={"state": state})})
    assert ids(sandbox) - ids(alone) == {"valkey-replication-lag"}


def test_every_drop_reason_is_graphed(sandbox: Deployment) -> None:
    (drops,) = (
        panel
        for panel in build_dashboards(sandbox)[0].panels
        if panel.series and panel.series[0].metric.name == "RxDropped"
    )
    assert {series.dimensions["Reason"] for series in drops.series} == set(DropReason)


def test_series_has_exactly_the_dimensions_of_its_metric(sandbox: Deployment) -> None:
    with pytest.raises(
        ValueError, match="RxDropped has the dimensions Deployment, Fleet, Reason, not Deployment, Fleet"
    ):
        build_fleet_series(sandbox, "vad", "RxDropped", "Sum")
    metric = METRICS["GpuBusy"]
    with pytest.raises(ValueError, match="not none"):
        Series(metric, metric.namespace, {}, "Average", "")


def test_every_deployment_has_the_dashboards_of_the_tiers(sandbox: Deployment) -> None:
    assert [dashboard.topic for dashboard in build_dashboards(sandbox)] == [
        "overview",
        "edge",
        "agents",
        "vad",
        "asr",
        "state",
    ]
