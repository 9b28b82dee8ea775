"""Rows of `voice status` that the local AWS does not support: drift, costs, and denied credentials."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from moto import mock_aws
from typer.testing import CliRunner

import voice_blueprint
from tests.synthesized import ROOT
from voice_blueprint.contract.metrics import NAMESPACE
from voice_blueprint.file.model.load import CallLoad
from voice_ops.aws.account import Account
from voice_ops.cli import app
from voice_ops.preflight.report import CheckResult, CheckStatus
from voice_ops.status import fleets
from voice_ops.status.account import DETECTION_TIMEOUT_S, check_alarms, detect_drift, report_costs
from voice_ops.status.command import is_healthy
from voice_ops.status.fleets import check_serving_capacity

SANDBOX = voice_blueprint.load(ROOT / "tests/deployments/sandbox.yaml")
STACK = "sandbox-network"
RUN = "b78ac9b0-dec1-11e7-a451-503a3example"


class OneClient:
    """A session whose only client returns prepared responses."""

    def __init__(self, service: Literal["ce", "cloudformation"]) -> None:
        self.only: Any = boto3.Session("key", "secret", region_name="us-east-1").client(service)

    def client(self, *_: object, **__: object) -> Any:  # noqa: ANN401  as boto3's
        return self.only


def deployed_account(session: OneClient) -> Account:
    return Account(SANDBOX, {STACK: {"Resources": {}}}, cast("boto3.Session", session))


@pytest.fixture
def cloudformation() -> Iterator[tuple[Account, Stubber]]:
    session = OneClient("cloudformation")
    with Stubber(session.only) as stub:
        stack = {"StackName": STACK, "StackStatus": "CREATE_COMPLETE", "CreationTime": "2026-11-21T00:00:00Z"}
        stub.add_response("describe_stacks", {"Stacks": [stack, stack | {"StackName": "other"}]})
        stub.add_response("detect_stack_drift", {"StackDriftDetectionId": RUN}, {"StackName": STACK})
        yield deployed_account(session), stub
        stub.assert_no_pending_responses()


def detection(state: str, **more: str) -> dict[str, str]:
    return {"StackId": "id", "StackDriftDetectionId": RUN, "DetectionStatus": state, "Timestamp": "2026-11-21", **more}


def drift(logical_id: str, state: str) -> dict[str, str]:
    return {
        "StackId": "id",
        "LogicalResourceId": logical_id,
        "ResourceType": "AWS::EC2::SecurityGroup",
        "StackResourceDriftStatus": state,
        "Timestamp": "2026-11-21",
    }


def test_drifted_resources_are_listed(cloudformation: tuple[Account, Stubber], monkeypatch: pytest.MonkeyPatch) -> None:
    system, stub = cloudformation
    monkeypatch.setattr("time.sleep", lambda _: None)
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_IN_PROGRESS"))
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_COMPLETE"))
    drifts = [drift("Vad", "MODIFIED"), drift("Gateway", "DELETED")]
    stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": drifts})
    (row,) = detect_drift(system)
    assert (row.status, row.result) == (CheckStatus.WARNING, "Vad modified, Gateway deleted")


def test_an_unchanged_stack_is_in_sync(cloudformation: tuple[Account, Stubber]) -> None:
    system, stub = cloudformation
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_COMPLETE"))
    stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": []})
    (row,) = detect_drift(system)
    assert (row.status, row.result) == (CheckStatus.PASSED, "in sync")


def test_a_failed_drift_detection_reports_the_reason(cloudformation: tuple[Account, Stubber]) -> None:
    system, stub = cloudformation
    failed = detection("DETECTION_FAILED", DetectionStatusReason="no permission for AWS::KMS::Key")
    stub.add_response("describe_stack_drift_detection_status", failed)
    (row,) = detect_drift(system)
    assert (row.status, row.result) == (CheckStatus.UNKNOWN, "no permission for AWS::KMS::Key")


def test_a_drift_detection_that_does_not_end_times_out(
    cloudformation: tuple[Account, Stubber], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, stub = cloudformation
    now = iter((0.0, DETECTION_TIMEOUT_S + 1))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_IN_PROGRESS"))
    (row,) = detect_drift(system)
    assert row.status is CheckStatus.UNKNOWN


ALARM = {"Type": "AWS::CloudWatch::Alarm", "Properties": {"AlarmName": "slots"}}


@pytest.fixture
def deployed_inf2() -> Iterator[Account]:
    """Return an account with a fleet of one host, whose only alarm has no data, and without a gateway."""
    with mock_aws():
        session = boto3.Session("key", "secret", region_name="us-east-1")
        autoscaling, cloudwatch = session.client("autoscaling"), session.client("cloudwatch")
        autoscaling.create_launch_configuration(
            LaunchConfigurationName="host", ImageId="ami-12c6146b", InstanceType="inf2.48xlarge"
        )
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName="sandbox-inf2",
            LaunchConfigurationName="host",
            MinSize=0,
            MaxSize=1,
            DesiredCapacity=1,
            AvailabilityZones=["us-east-1a"],
        )
        cloudwatch.put_metric_alarm(
            AlarmName="slots",
            Namespace=NAMESPACE,
            MetricName="SlotsTaken",
            Dimensions=[{"Name": "Deployment", "Value": "sandbox"}, {"Name": "Fleet", "Value": "inf2"}],
            ComparisonOperator="GreaterThanThreshold",
            Threshold=80,
            EvaluationPeriods=3,
            Period=10,
            Statistic="Average",
        )
        cloudwatch.set_alarm_state(AlarmName="slots", StateValue="INSUFFICIENT_DATA", StateReason="no data")
        yield Account(SANDBOX, {STACK: {"Resources": {"Slots": ALARM}}}, session)


def test_missing_metrics_of_hosts_in_service_are_a_warning(deployed_inf2: Account) -> None:
    rows = {row.question: row for row in check_alarms(deployed_inf2)}
    silent = rows["metrics of inf2"]
    assert (silent.status, silent.result) == (CheckStatus.WARNING, "1 in service, but no data for SlotsTaken")
    autoscaling = deployed_inf2.session.client("autoscaling")
    autoscaling.set_desired_capacity(AutoScalingGroupName="sandbox-inf2", DesiredCapacity=0)
    # Without hosts no metric is required.
    assert [row.question for row in check_alarms(deployed_inf2)] == ["alarms"]


@pytest.mark.parametrize(
    ("actions", "status"), [([{"Ref": "Policy0"}], CheckStatus.PASSED), ([{"Ref": "Topic"}], CheckStatus.WARNING)]
)
def test_an_alarm_that_scales_a_fleet_is_not_a_warning(
    deployed_inf2: Account, actions: list[dict[str, str]], status: CheckStatus
) -> None:
    """A scale-in alarm stays in ALARM while the fleet is at its minimum, as in any quiet hour."""
    deployed_inf2.session.client("cloudwatch").set_alarm_state(
        AlarmName="slots", StateValue="ALARM", StateReason="few slots are in use"
    )
    alarm = {**ALARM, "Properties": {"AlarmName": "slots", "AlarmActions": actions}}
    resources = {"Slots": alarm, "Policy0": {"Type": "AWS::AutoScaling::ScalingPolicy"}, "Topic": {"Type": "any"}}
    row, total = check_alarms(replace(deployed_inf2, templates={STACK: {"Resources": resources}}))
    assert (row.question, row.status) == ("alarm slots", status)
    assert total.result.startswith("1 in alarm")


def test_capacity_counts_hosts_in_service(deployed_inf2: Account) -> None:
    (row,) = check_serving_capacity(deployed_inf2)
    assert (row.status, row.result) == (CheckStatus.PASSED, "0; limited by gateway")
    expecting = SANDBOX.model_copy(update={"load": CallLoad(calls=20)})
    (row,) = check_serving_capacity(replace(deployed_inf2, deployment=expecting))
    assert (row.status, row.needed) == (CheckStatus.WARNING, "20, at the peak 40")


@pytest.mark.parametrize(("tasks", "expected"), [(2, "106; limited by gateway"), (20, "736; limited by state")])
def test_calls_per_host_match_the_plan(
    tasks: int, expected: str, deployed_inf2: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task with half a core supports 53 calls, an inf2.48xlarge 900, the store 736."""
    monkeypatch.setattr(fleets, "count_hosts_in_service", lambda _: {"vad": 3, "inf2": 1})
    monkeypatch.setattr(fleets, "_describe_service", lambda *_: {"runningCount": tasks})
    (row,) = check_serving_capacity(deployed_inf2)
    assert row.result == expected


def test_the_cost_of_this_month_is_shown_with_the_budget() -> None:
    session = OneClient("ce")
    period = {"Total": {"UnblendedCost": {"Amount": "1234.5", "Unit": "USD"}}}
    tag = {"Tags": {"Key": "voice-serve:deployment", "Values": ["sandbox"]}}
    asked = {"TimePeriod": ANY, "Granularity": "MONTHLY", "Metrics": ["UnblendedCost"], "Filter": tag}
    with Stubber(session.only) as stub:
        stub.add_response("get_cost_and_usage", {"ResultsByTime": [period]}, asked)
        (row,) = report_costs(deployed_account(session))
    assert (row.status, row.result, row.needed) == (CheckStatus.PASSED, "1,234.50 USD", "budget 100 USD")


def test_a_denied_cost_query_is_reported_without_failing() -> None:
    session = OneClient("ce")
    with Stubber(session.only) as stub:
        stub.add_client_error("get_cost_and_usage", "AccessDeniedException", "not allowed", 400)
        with pytest.raises(ClientError):
            list(report_costs(deployed_account(session)))
    fine, denied = (
        CheckResult("AWS", "stack", CheckStatus.PASSED, ""),
        CheckResult("AWS", "cost", CheckStatus.UNKNOWN, "denied"),
    )
    assert is_healthy([fine, denied])
    assert not is_healthy([denied])
    assert not is_healthy([fine, CheckResult("AWS", "alarm", CheckStatus.WARNING, "in alarm")])


def test_without_credentials_no_status_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["status", str(ROOT / "tests/deployments/sandbox.yaml")])
    assert result.exit_code == 1
    assert "no credentials were found" in result.stdout
    assert "sign in" in result.stdout
