"""The real CDK command line deploys and destroys the shipped sandbox deployment on the local AWS."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import load_text, parse_yaml, text
from tests.excerpts import recorded, render_screen
from voice_blueprint.aws import names
from voice_blueprint.shipped import ROOT
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.cli import app
from voice_ops.output import create_stack_table, out
from voice_ops.sandbox.command import create_drill_table, print_alert, print_claims
from voice_ops.status.account import compare_deletion_protection
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk
from voice_sandbox.rehearsals.drill import generate_scenarios

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient

FILE = ROOT / "tests/deployments/sandbox.yaml"
PATIENCE_S = 60
"""Timeout for operations that take a second."""

RECORDED_COMMAND = "voice sandbox deployments/sandbox.yaml"
"""The command that this file runs step by step; a nightly test runs it and records its whole screen."""

pytestmark = [pytest.mark.sandbox]


@pytest.fixture(scope="module")
def account() -> Iterator[Rehearsal]:
    """Start one local AWS for all tests of this file, which run in order."""
    with Rehearsal(voice_blueprint.load(FILE)) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrapped_account(account: Rehearsal) -> Rehearsal:
    account.bootstrap()
    return account


@pytest.fixture(scope="module")
def rehearsal(bootstrapped_account: Rehearsal) -> Rehearsal:
    """Deploy the suite."""
    bootstrapped_account.cdk.deploy()
    return bootstrapped_account


@pytest.fixture(autouse=True)
def _signed_in(account: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in the environment of a signed-in user."""
    for name, value in account.aws.build_environment(account.home).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("account")
def test_preflight_requires_the_bootstrap() -> None:
    command = f"cdk bootstrap aws://123456789012/us-east-1 -c deployment={FILE}"
    assert preflight()["CDK bootstrap"]["remedy"] == f"run `{command}`"


@pytest.mark.usefixtures("bootstrapped_account")
def test_preflight_passes_after_the_real_cdk_bootstrap() -> None:
    """The local AWS has no EC2 quotas and no policy simulator; both are reported as unavailable."""
    answers = preflight()
    assert answers["CDK bootstrap"]["status"] == "fine"
    assert int(answers["CDK bootstrap"]["found"].removeprefix("version ")) >= 6
    assert answers["hosted zone Z0123456789EXAMPLE"]["status"] == "fine"
    assert answers["launch of a p5 host"]["status"] == "fine"
    assert answers["service quotas and open requests"]["status"] == "unanswered"


def test_every_resource_of_every_template_exists(rehearsal: Rehearsal) -> None:
    templates = sorted((rehearsal.home / "cdk.out").glob("*.template.json"))
    deployed = rehearsal.count_resources()
    assert len(templates) == len(deployed)
    for path in templates:
        resources = json.loads(path.read_text())["Resources"]
        assert deployed[path.name.removesuffix(".template.json")].total() == len(resources)


def test_boto3_returns_the_values_of_the_file(rehearsal: Rehearsal) -> None:
    claims = rehearsal.verify()
    assert len(claims) > 40
    assert [claim.text for claim in claims if not claim.passed] == []
    assert render_screen(lambda: print_claims(claims)) in recorded(RECORDED_COMMAND)
    assert render_screen(
        lambda: out.print(create_stack_table("created by CloudFormation", rehearsal.count_resources()))
    ) in recorded(RECORDED_COMMAND)


@pytest.mark.usefixtures("rehearsal")
def test_status_reports_deployed_resources_and_missing_features_of_the_local_aws() -> None:
    result = voice("status", FILE, "--json")
    rows = {row["asked"]: row for row in json.loads(result.stdout)["answers"]}
    for group in (
        *names.list_vad_group_names(voice_blueprint.load(FILE)),
        "sandbox-inf2",
        "sandbox-trn1",
        "sandbox-p5",
    ):
        assert rows[f"hosts of {group}"]["found"] == "1 in service of 1 desired"
        assert rows[f"images of {group}"]["found"].endswith("telemetry 555555555555")
    assert rows["images of gateway"]["status"] == "fine"
    assert rows["alarms"]["found"].startswith("0 in alarm")
    assert rows["refuse deletion"]["found"].startswith("0 of ")
    assert all(row["status"] == "fine" for asked, row in rows.items() if asked.startswith("stack "))
    assert all(row["found"] == "in sync" for asked, row in rows.items() if asked.startswith("drift of "))
    # The local AWS starts no tasks, its hosts publish no metrics, and it has no costs.
    others = {asked: row["status"] for asked, row in rows.items() if row["status"] != "fine"}
    silent = {f"metrics of {fleet}": "warning" for fleet in ("vad", "inf2", "trn1", "p5")}
    assert others == {
        "tasks of the gateway": "warning",
        "tasks of the agents": "warning",
        "cost so far this month": "not asked",
        **silent,
    }
    assert result.exit_code == 1


def test_status_lists_alarms_and_images_that_differ_from_the_file(rehearsal: Rehearsal, tmp_path: Path) -> None:
    cloudwatch = rehearsal.session.client("cloudwatch", endpoint_url=rehearsal.aws.endpoint)
    alarm = "sandbox-alert-sessions-refused"
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test")
    document = parse_yaml(FILE.read_text())
    document["images"]["whisper-engine"] = f"sha256:{'a' * 64}"
    (tmp_path / "newer.yaml").write_text(text(document))
    rows = {
        row["asked"]: row for row in json.loads(voice("status", tmp_path / "newer.yaml", "--json").stdout)["answers"]
    }
    assert rows[f"alarm {alarm}"] | {"status": "warning", "remedy": "a test"} == rows[f"alarm {alarm}"]
    assert rows["alarms"]["found"].startswith("1 in alarm")
    older = rows["images of sandbox-p5"]
    assert (older["status"], older["found"], older["needed"]) == (
        "warning",
        "whisper-engine 333333333333",
        "whisper-engine aaaaaaaaaaaa",
    )
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="the test is over")


@pytest.mark.usefixtures("rehearsal")
def test_a_rollout_proceeds_zone_by_zone_and_then_fleet_by_fleet(tmp_path: Path) -> None:
    document = parse_yaml(FILE.read_text())
    document["images"]["telemetry"] = f"sha256:{'a' * 64}"
    (tmp_path / "newer.yaml").write_text(text(document))
    rolls = json.loads(voice("rollout", tmp_path / "newer.yaml", "--json").stdout)["rolls"]
    vad = names.list_vad_group_names(voice_blueprint.load(FILE))
    assert [roll["group"] for roll in rolls[:3]] == vad
    assert {roll["group"] for roll in rolls[3:]} == {"sandbox-inf2", "sandbox-trn1", "sandbox-p5"}


def test_status_lists_resources_with_deletion_protection(rehearsal: Rehearsal) -> None:
    deployment = voice_blueprint.load(FILE)
    protected = deployment.model_copy(
        update={"aws_section": deployment.aws.model_copy(update={"deletion_protection": True})}
    )
    cloudformation, elbv2 = (rehearsal.aws.client(service) for service in ("cloudformation", "elbv2"))
    balancers = [each["LoadBalancerArn"] for each in elbv2.describe_load_balancers()["LoadBalancers"]]
    stacks: dict[str, dict[str, Any]] = {name: {} for name in rehearsal.count_resources()}

    def switch(*, on: bool) -> None:
        cloudformation.update_termination_protection(StackName="sandbox-state", EnableTerminationProtection=on)
        attribute = {"Key": "deletion_protection.enabled", "Value": str(on).lower()}
        elbv2.modify_load_balancer_attributes(LoadBalancerArn=balancers[0], Attributes=[attribute])

    switch(on=True)
    for file, others in ((deployment, "changes sandbox-state, load balancer"), (protected, "changes sandbox-agents, ")):
        (row,) = compare_deletion_protection(Account(file, stacks, create_deployment_session(file)))
        assert row.result == f"2 of {len(stacks) + len(balancers)} stacks and load balancers"
        assert others in row.remedy
    switch(on=False)


def test_a_drained_host_leaves_through_its_hook_and_is_replaced(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_ops.drain.command.POLL_INTERVAL_S", 0.1)
    autoscaling = rehearsal.session.client("autoscaling", endpoint_url=rehearsal.aws.endpoint)
    group = names.list_vad_group_names(voice_blueprint.load(FILE))[0]
    (before,) = _hosts(autoscaling, group)
    refused = voice("drain", FILE, before)
    assert refused.exit_code == 2
    assert f"{group} has 1 hosts desired, which is its minimum" in refused.stderr
    result = voice("drain", FILE, before, "--replace", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["host"]["state"] == "Terminated"
    (after,) = _hosts(autoscaling, group)
    assert after != before
    reservations = rehearsal.session.client("ec2", endpoint_url=rehearsal.aws.endpoint).describe_instances(
        InstanceIds=[before]
    )["Reservations"]
    assert reservations[0]["Instances"][0]["State"]["Name"] == "terminated"


def test_a_second_deploy_changes_nothing(rehearsal: Rehearsal) -> None:
    again = Cdk(rehearsal.aws, voice_blueprint.load(FILE), rehearsal.home)
    assert "There were no differences" in again.diff()
    before = _template_versions(rehearsal)
    again.deploy()
    assert _template_versions(rehearsal) == before


def test_the_drill_scales_exactly_the_fleets_of_the_rules(rehearsal: Rehearsal) -> None:
    outcomes = list(rehearsal.run_drills())
    assert len(outcomes) == len(list(generate_scenarios(voice_blueprint.load(FILE))))
    moved = [outcome for outcome in outcomes if outcome.capacities_before != outcome.capacities_after]
    changes = {
        o.scenario.fleet: [o.capacities_after[g] - o.capacities_before[g] for g in o.capacities_before] for o in moved
    }
    assert changes == {"vad": [2, 2, 2], "inf2": [1], "trn1": [1], "p5": [1]}
    assert all(outcome.passed for outcome in outcomes)
    assert render_screen(lambda: out.print(create_drill_table(outcomes))) in recorded(RECORDED_COMMAND)
    assert {name: after for name, after in _desired_capacities(rehearsal).items() if after != 1} == {}
    # A group with too many hosts drains some; simulated hosts complete this within seconds.
    autoscaling = rehearsal.session.client("autoscaling", endpoint_url=rehearsal.aws.endpoint)
    deadline = time.monotonic() + PATIENCE_S
    while surplus := {name for name in _desired_capacities(rehearsal) if len(_hosts(autoscaling, name)) != 1}:
        assert time.monotonic() < deadline, f"hosts of the drill stay behind in {surplus}"
        time.sleep(0.2)


def test_operators_are_notified_when_callers_are_affected(rehearsal: Rehearsal) -> None:
    message = rehearsal.trigger_alert()
    assert message.alarm == "sandbox-alert-callers-affected"
    assert message.subject.startswith("ALARM: ")
    assert "transitioned to ALARM" in message.cause
    assert message.description.endswith("/docs/runbooks/callers-affected.md")
    assert render_screen(lambda: print_alert(message)) in recorded(RECORDED_COMMAND)
    cloudwatch = rehearsal.session.client("cloudwatch", endpoint_url=rehearsal.aws.endpoint)
    assert cloudwatch.describe_alarms(StateValue="ALARM")["MetricAlarms"] == []


def test_the_alert_drill_removes_its_subscriber(rehearsal: Rehearsal) -> None:
    sns = rehearsal.session.client("sns", endpoint_url=rehearsal.aws.endpoint)
    assert {entry["Protocol"] for entry in sns.list_subscriptions()["Subscriptions"]} == {"email"}


def test_one_changed_number_only_changes_its_resources(rehearsal: Rehearsal, tmp_path: Path) -> None:
    document = parse_yaml(FILE.read_text())
    document["aws"]["vad"]["huge_pages"]["count"] = 20480
    changed = Cdk(rehearsal.aws, load_text(text(document), tmp_path), rehearsal.home)
    difference = changed.diff()
    touched = {line.split()[1] for line in difference.splitlines() if line.startswith(("[~]", "[+]", "[-]"))}
    # A new version of the launch template, to which groups refer by attribute, and the components that bake huge pages.
    assert touched == {"AWS::EC2::LaunchTemplate", "AWS::ImageBuilder::Component", "AWS::ImageBuilder::ImageRecipe"}
    before = _template_versions(rehearsal)
    changed.deploy()
    after = _template_versions(rehearsal)
    assert {name for name in after if after[name] != before[name]} == set(
        names.list_vad_group_names(voice_blueprint.load(FILE))
    )
    assert "There were no differences" in changed.diff()


def test_a_dry_teardown_deletes_nothing(rehearsal: Rehearsal) -> None:
    result = voice("teardown", FILE, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "1×IAM::Role" in result.stdout, "the role of API logs, which other deployments may use"
    assert rehearsal.count_remaining_resources().total() > 100


def test_teardown_empties_log_buckets_and_lists_foreign_resources(rehearsal: Rehearsal) -> None:
    s3 = rehearsal.session.client("s3", endpoint_url=rehearsal.aws.endpoint)
    (logs,) = (b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith("sandbox-edge-"))
    for key in ("AWSLogs/1.gz", "AWSLogs/1.gz", "AWSLogs/2.gz"):
        s3.put_object(Bucket=logs, Key=key, Body=b"a line")
    s3.delete_object(Bucket=logs, Key="AWSLogs/2.gz")
    group = "/voice/sandbox/by-hand"
    log_groups = rehearsal.session.client("logs", endpoint_url=rehearsal.aws.endpoint)
    log_groups.create_log_group(logGroupName=group)
    result = voice("teardown", FILE, "--yes", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert sum(sum(types.values()) for types in report["aws"]["deleted"].values()) > 200
    assert [left["id"] for left in report["left"]["behind"]] == [group]
    assert rehearsal.count_remaining_resources() == {"log group": 1, "role": 1}
    log_groups.delete_log_group(logGroupName=group)


def test_only_the_role_of_api_logs_remains_after_teardown(rehearsal: Rehearsal) -> None:
    result = voice("teardown", FILE, "--yes")
    assert result.exit_code == 0, result.output
    assert "remaining unexpectedly: nothing" in result.stdout
    assert dict(rehearsal.count_remaining_resources()) == {"role": 1}


def voice(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def preflight() -> dict[str, dict[str, str]]:
    return {row["asked"]: row for row in json.loads(voice("preflight", FILE, "--json").stdout)["answers"]}


def _hosts(autoscaling: AutoScalingClient, group: str) -> list[str]:
    found = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    return [instance["InstanceId"] for instance in found["Instances"]]


def _desired_capacities(rehearsal: Rehearsal) -> dict[str, int]:
    client = rehearsal.session.client("autoscaling", endpoint_url=rehearsal.aws.endpoint)
    groups = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in groups}


def _template_versions(rehearsal: Rehearsal) -> dict[str, str]:
    """Return the launch template version of every Auto Scaling group."""
    client = rehearsal.session.client("autoscaling", endpoint_url=rehearsal.aws.endpoint)
    groups = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group["LaunchTemplate"]["Version"] for group in groups}
