"""Answers of `voice status` that the local AWS cannot give: drift, costs, and credentials that may not."""

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

import blueprint
from blueprint.contract.metrics import NAMESPACE
from blueprint.file.model.load import CallLoad
from ops.aws.account import Account
from ops.cli import app
from ops.preflight.report import Row, Status
from ops.status import fleets
from ops.status.account import DETECTION_S, alarm_rows, cost_rows, drift_rows
from ops.status.command import healthy
from ops.status.fleets import calls_row
from tests.synthesized import ROOT

SANDBOX = blueprint.load(ROOT / "deployments/sandbox.yaml")
STACK = "sandbox-network"
RUN = "b78ac9b0-dec1-11e7-a451-503a3example"


class OneClient:
    """A session whose only client answers what a test has told it."""

    def __init__(self, service: Literal["ce", "cloudformation"]) -> None:
        self.only: Any = boto3.Session("key", "secret", region_name="us-east-1").client(service)

    def client(self, *_: object, **__: object) -> Any:  # noqa: ANN401  as boto3's
        return self.only


def deployed(session: OneClient) -> Account:
    return Account(SANDBOX, {STACK: {"Resources": {}}}, cast("boto3.Session", session))


@pytest.fixture
def cloudformation() -> Iterator[tuple[Account, Stubber]]:
    session = OneClient("cloudformation")
    with Stubber(session.only) as stub:
        stack = {"StackName": STACK, "StackStatus": "CREATE_COMPLETE", "CreationTime": "2026-11-21T00:00:00Z"}
        stub.add_response("describe_stacks", {"Stacks": [stack, stack | {"StackName": "other"}]})
        stub.add_response("detect_stack_drift", {"StackDriftDetectionId": RUN}, {"StackName": STACK})
        yield deployed(session), stub
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


def test_drifted_resources_are_named(cloudformation: tuple[Account, Stubber], monkeypatch: pytest.MonkeyPatch) -> None:
    system, stub = cloudformation
    monkeypatch.setattr("time.sleep", lambda _: None)
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_IN_PROGRESS"))
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_COMPLETE"))
    drifts = [drift("Vad", "MODIFIED"), drift("Gateway", "DELETED")]
    stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": drifts})
    (row,) = drift_rows(system)
    assert (row.status, row.found) == (Status.WARNING, "Vad modified, Gateway deleted")


def test_a_stack_as_it_was_made_is_in_sync(cloudformation: tuple[Account, Stubber]) -> None:
    system, stub = cloudformation
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_COMPLETE"))
    stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": []})
    (row,) = drift_rows(system)
    assert (row.status, row.found) == (Status.FINE, "in sync")


def test_a_detection_that_fails_says_why(cloudformation: tuple[Account, Stubber]) -> None:
    system, stub = cloudformation
    failed = detection("DETECTION_FAILED", DetectionStatusReason="no permission for AWS::KMS::Key")
    stub.add_response("describe_stack_drift_detection_status", failed)
    (row,) = drift_rows(system)
    assert (row.status, row.found) == (Status.UNANSWERED, "no permission for AWS::KMS::Key")


def test_a_detection_that_does_not_end_is_given_up(
    cloudformation: tuple[Account, Stubber], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, stub = cloudformation
    now = iter((0.0, DETECTION_S + 1))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    stub.add_response("describe_stack_drift_detection_status", detection("DETECTION_IN_PROGRESS"))
    (row,) = drift_rows(system)
    assert row.status is Status.UNANSWERED


ALARM = {"Type": "AWS::CloudWatch::Alarm", "Properties": {"AlarmName": "slots"}}


@pytest.fixture
def deployed_inf2() -> Iterator[Account]:
    """A fleet with one host in service, whose only alarm has no data; the account has no gateway."""
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


def test_hosts_in_service_whose_metrics_have_no_data_are_a_warning(deployed_inf2: Account) -> None:
    rows = {row.asked: row for row in alarm_rows(deployed_inf2)}
    silent = rows["metrics of inf2"]
    assert (silent.status, silent.found) == (Status.WARNING, "1 in service, and no data of SlotsTaken")
    autoscaling = deployed_inf2.session.client("autoscaling")
    autoscaling.set_desired_capacity(AutoScalingGroupName="sandbox-inf2", DesiredCapacity=0)
    # Without hosts nobody should publish.
    assert [row.asked for row in alarm_rows(deployed_inf2)] == ["alarms"]


def test_calls_are_those_that_hosts_in_service_carry(deployed_inf2: Account) -> None:
    (row,) = calls_row(deployed_inf2)
    assert (row.status, row.found) == (Status.FINE, "0; gateway binds")
    expecting = SANDBOX.model_copy(update={"load": CallLoad(calls=20)})
    (row,) = calls_row(replace(deployed_inf2, deployment=expecting))
    assert (row.status, row.needed) == (Status.WARNING, "20, at the peak 40")


@pytest.mark.parametrize(("tasks", "found"), [(2, "106; gateway binds"), (20, "736; state binds")])
def test_calls_of_a_host_are_the_plan_s(
    tasks: int, found: str, deployed_inf2: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of half a core carries 53, an inf2.48xlarge 900, the store 736."""
    monkeypatch.setattr(fleets, "serving", lambda _: {"vad": 3, "inf2": 1})
    monkeypatch.setattr(fleets, "_service", lambda *_: {"runningCount": tasks})
    (row,) = calls_row(deployed_inf2)
    assert row.found == found


def test_the_cost_of_this_month_stands_beside_the_budget() -> None:
    session = OneClient("ce")
    period = {"Total": {"UnblendedCost": {"Amount": "1234.5", "Unit": "USD"}}}
    tag = {"Tags": {"Key": "voice-serve:deployment", "Values": ["sandbox"]}}
    asked = {"TimePeriod": ANY, "Granularity": "MONTHLY", "Metrics": ["UnblendedCost"], "Filter": tag}
    with Stubber(session.only) as stub:
        stub.add_response("get_cost_and_usage", {"ResultsByTime": [period]}, asked)
        (row,) = cost_rows(deployed(session))
    assert (row.status, row.found, row.needed) == (Status.FINE, "1,234.50 USD", "budget 100 USD")


def test_denied_costs_reach_the_report_as_an_answer_not_as_a_fault() -> None:
    session = OneClient("ce")
    with Stubber(session.only) as stub:
        stub.add_client_error("get_cost_and_usage", "AccessDeniedException", "not allowed", 400)
        with pytest.raises(ClientError):
            list(cost_rows(deployed(session)))
    fine, denied = Row("AWS", "stack", Status.FINE, ""), Row("AWS", "cost", Status.UNANSWERED, "denied")
    assert healthy([fine, denied])
    assert not healthy([denied])
    assert not healthy([fine, Row("AWS", "alarm", Status.WARNING, "in alarm")])


def test_without_credentials_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["status", str(ROOT / "deployments/sandbox.yaml")])
    assert result.exit_code == 1
    assert "no credentials" in result.stdout
    assert "sign in" in result.stdout


def test_an_azure_half_is_not_passed_over_in_silence() -> None:
    result = CliRunner().invoke(app, ["status", str(ROOT / "deployments/production-azure.yaml")])
    assert result.exit_code == 1
    assert "voice status reads AWS only" in result.stdout
