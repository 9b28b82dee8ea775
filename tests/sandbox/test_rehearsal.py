"""The shipped sandbox deployment on the local AWS, through the real CDK command line, from empty to empty."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import blueprint
from blueprint import names
from sandbox.aws.cdk import ROOT, Cdk
from sandbox.aws.drill import scenarios
from sandbox.aws.rehearsal import Rehearsal
from tests.blueprint.documents import load_text, parsed, text

FILE = ROOT / "deployments/sandbox.yaml"

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("rehearsal"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[Rehearsal]:
    """One deployed suite for all tests of this file, which run in the order they are written in."""
    with Rehearsal(blueprint.load(FILE)) as running:
        running.bootstrap()
        running.cdk.deploy()
        yield running


def test_every_resource_of_every_template_exists(rehearsal: Rehearsal) -> None:
    templates = sorted((rehearsal.home / "cdk.out").glob("*.template.json"))
    deployed = rehearsal.stacks()
    assert len(templates) == len(deployed)
    for path in templates:
        resources = json.loads(path.read_text())["Resources"]
        assert deployed[path.name.removesuffix(".template.json")].total() == len(resources)


def test_what_boto3_sees_is_what_the_file_says(rehearsal: Rehearsal) -> None:
    claims = rehearsal.claims()
    assert len(claims) > 40
    assert [claim.text for claim in claims if not claim.holds] == []


def test_a_second_deploy_changes_nothing(rehearsal: Rehearsal) -> None:
    assert "There were no differences" in rehearsal.cdk.diff()
    before = _template_versions(rehearsal)
    rehearsal.cdk.deploy()
    assert _template_versions(rehearsal) == before


def test_the_drill_moves_exactly_what_the_rules_say(rehearsal: Rehearsal) -> None:
    outcomes = list(rehearsal.drill())
    assert len(outcomes) == len(list(scenarios(blueprint.load(FILE))))
    moved = [outcome for outcome in outcomes if outcome.before != outcome.after]
    changes = {o.scenario.fleet: [o.after[g] - o.before[g] for g in o.before] for o in moved}
    assert changes == {"vad": [2, 2, 2], "inf2": [1], "trn1": [1], "p5": [1]}
    assert all(outcome.passed for outcome in outcomes)


def test_operators_are_told_when_callers_are_affected(rehearsal: Rehearsal) -> None:
    message = rehearsal.alert()
    assert message.alarm == "sandbox-alert-callers-affected"
    assert message.subject.startswith("ALARM: ")
    assert "transitioned to ALARM" in message.cause
    assert message.description.endswith("/docs/runbooks/callers-affected.md")


def test_the_alert_drill_leaves_no_subscriber_behind(rehearsal: Rehearsal) -> None:
    sns = rehearsal.session.client("sns", endpoint_url=rehearsal.aws.endpoint)
    assert {entry["Protocol"] for entry in sns.list_subscriptions()["Subscriptions"]} == {"email"}


def test_one_changed_number_changes_only_what_it_should(rehearsal: Rehearsal, tmp_path: Path) -> None:
    document = parsed(FILE.read_text())
    document["aws"]["vad"]["huge_pages"]["count"] = 20480
    changed = Cdk(rehearsal.aws, load_text(text(document), tmp_path), rehearsal.home)
    difference = changed.diff()
    touched = {line.split()[1] for line in difference.splitlines() if line.startswith(("[~]", "[+]", "[-]"))}
    # A new launch template version is all; its groups refer to the latest version by attribute.
    assert touched == {"AWS::EC2::LaunchTemplate"}
    before = _template_versions(rehearsal)
    changed.deploy()
    after = _template_versions(rehearsal)
    assert {name for name in after if after[name] != before[name]} == set(names.vad_groups(blueprint.load(FILE)))
    assert "There were no differences" in changed.diff()


def test_teardown_leaves_nothing(rehearsal: Rehearsal) -> None:
    assert rehearsal.left().total() > 100
    rehearsal.cdk.destroy()
    assert dict(rehearsal.left()) == {}


def _template_versions(rehearsal: Rehearsal) -> dict[str, str]:
    """Return the launch template version of every Auto Scaling group."""
    client = rehearsal.session.client("autoscaling", endpoint_url=rehearsal.aws.endpoint)
    groups = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group["LaunchTemplate"]["Version"] for group in groups}
