"""Answers of `voice status` that the local AWS cannot give: drift, costs, and credentials that may not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from typer.testing import CliRunner

import blueprint
from ops.aws.account import Account
from ops.cli import app
from ops.preflight.report import Row, Status
from ops.status.account import DETECTION_S, cost_rows, drift_rows
from ops.status.command import healthy
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
