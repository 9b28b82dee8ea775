"""Alerts and dashboards follow the shape of the deployment."""

import pytest

from blueprint import Deployment
from blueprint.aws.alerts import alerts
from blueprint.aws.dashboards import dashboards
from blueprint.aws.series import Series, of_fleet
from blueprint.contract.metrics import METRICS, DropReason
from tests.blueprint.documents import DEPLOYMENTS, load_text


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return load_text((DEPLOYMENTS / "sandbox.yaml").read_text(encoding="utf-8"), tmp_path_factory.mktemp("file"))


def ids(deployment: Deployment) -> set[str]:
    return {alert.id for alert in alerts(deployment)}


def with_asr(deployment: Deployment, *fleets: str) -> Deployment:
    chosen = tuple(fleet for fleet in deployment.aws.asr if fleet.name in fleets)
    return deployment.model_copy(update={"aws_half": deployment.aws.model_copy(update={"asr": chosen})})


def test_alarm_names_differ(sandbox: Deployment) -> None:
    names = [alert.alarm_name(sandbox) for alert in alerts(sandbox)]
    assert len(set(names)) == len(names)


def test_an_alert_reads_one_statistic(sandbox: Deployment) -> None:
    for alert in alerts(sandbox):
        assert len({series.statistic for series in alert.series}) == 1, alert.id


def test_a_meaning_is_one_line_that_fits_an_alarms_description(sandbox: Deployment) -> None:
    for alert in alerts(sandbox):
        assert alert.meaning.endswith(".")
        assert len(alert.meaning) < 300


def test_accelerators_that_are_not_there_raise_no_alert(sandbox: Deployment) -> None:
    neuron, gpu = with_asr(sandbox, "inf2"), with_asr(sandbox, "p5")
    assert ids(sandbox) - ids(neuron) == {"gpu-saturated"}
    assert ids(sandbox) - ids(gpu) == {"neuron-exhausted"}
    assert "asr-slots-exhausted" not in ids(with_asr(sandbox))


def test_silence_is_no_fault_of_a_fleet_that_may_have_no_hosts(sandbox: Deployment) -> None:
    silent = {alert.target for alert in alerts(sandbox) if alert.id == "telemetry-silent"}
    assert silent == {"vad", "inf2", "trn1", "p5", "gateway", "agent"}
    assert "telemetry-silent" not in ids(sandbox.model_copy(update={"images": {}}))


def test_a_store_without_replicas_has_no_lag(sandbox: Deployment) -> None:
    state = sandbox.aws.state.model_copy(update={"replicas": 0})
    alone = sandbox.model_copy(update={"aws_half": sandbox.aws.model_copy(update={"state": state})})
    assert ids(sandbox) - ids(alone) == {"valkey-replication-lag"}


def test_every_reason_for_a_drop_is_drawn(sandbox: Deployment) -> None:
    (drops,) = (
        panel for panel in dashboards(sandbox)[0].panels if panel.series and panel.series[0].metric.name == "RxDropped"
    )
    assert {series.dimensions["Reason"] for series in drops.series} == set(DropReason)


def test_series_has_exactly_the_metrics_dimensions(sandbox: Deployment) -> None:
    with pytest.raises(
        ValueError, match="RxDropped has the dimensions Deployment, Fleet, Reason, not Deployment, Fleet"
    ):
        of_fleet(sandbox, "vad", "RxDropped", "Sum")
    metric = METRICS["GpuBusy"]
    with pytest.raises(ValueError, match="not none"):
        Series(metric, metric.namespace, {}, "Average", "")


def test_every_deployment_has_the_dashboards_of_the_tiers(sandbox: Deployment) -> None:
    assert [dashboard.topic for dashboard in dashboards(sandbox)] == [
        "overview",
        "edge",
        "agents",
        "vad",
        "asr",
        "state",
    ]
