"""`voice plan --against` reports resources of a recorded release that a file removes, with remedies."""

from pathlib import Path
from typing import Any

import pytest

from tests.blueprint.documents import DEPLOYMENTS, edit_document, load_text
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.plan.removals import describe_replaced_hosts, find_removal_steps

WEST = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
TIERS = ("network", "asr-cpu", "agents", "host-images")


@pytest.fixture
def small(tmp_path: Path) -> Deployment:
    return load_text((DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8"), tmp_path)


@pytest.fixture
def two(tmp_path: Path) -> Deployment:
    text = (DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8")
    (tmp_path / "two").mkdir()
    return load_text(edit_document({"aws.other_regions": [WEST]}, text), tmp_path / "two")


def stacks(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"Resources": {}} for name in names}


def steps_by_stack(deployment: Deployment, old: dict[str, Any], new: dict[str, Any], *accepted: str) -> dict[str, str]:
    return {step.name: step.instructions for step in find_removal_steps(deployment, old, new, accepted)}


def test_each_removed_stack_has_its_own_steps(small: Deployment) -> None:
    found = steps_by_stack(small, stacks(*(f"small-{tier}" for tier in TIERS)), stacks("small-network"))
    assert found.keys() == {"small-asr-cpu", "small-agents", "small-host-images"}
    assert "drains its hosts" in found["small-asr-cpu"]
    assert "which gives conversations 3600 s to end" in found["small-agents"]
    assert "drains" not in found["small-host-images"]
    assert all("voice prune" in steps for steps in found.values())


def test_an_added_fleet_is_deployed_before_another_is_removed(small: Deployment) -> None:
    found = steps_by_stack(small, stacks("small-asr-cpu"), stacks("small-asr-arm"))
    assert "`cdk deploy small-asr-arm --exclusively" in found["small-asr-cpu"]
    assert found["small-asr-cpu"].index("cdk deploy") < found["small-asr-cpu"].index("voice prune")


def test_all_stacks_of_a_removed_region_are_removed(small: Deployment) -> None:
    old = stacks(*(f"small-{tier}" for tier in TIERS), *(f"small-us-west-2-{tier}" for tier in TIERS))
    found = steps_by_stack(small, old, stacks(*(f"small-{tier}" for tier in TIERS)))
    assert found.keys() == {"us-west-2"}
    assert "its 4 stacks" in found["us-west-2"]
    assert "api.any.voice.example.com" in found["us-west-2"]


def test_only_the_removed_fleet_of_a_remaining_region_is_removed(two: Deployment) -> None:
    found = steps_by_stack(two, stacks("small-us-west-2-asr-cpu"), stacks("small-us-west-2-asr-arm"))
    assert found.keys() == {"small-us-west-2-asr-cpu"}
    assert "`cdk deploy small-us-west-2-asr-arm" in found["small-us-west-2-asr-cpu"]


def test_accepted_items_are_not_reported_again(small: Deployment) -> None:
    old = stacks("small-agents", "small-us-west-2-network")
    assert steps_by_stack(small, old, {}, "small-agents", "us-west-2") == {}


def launch(instance_type: str) -> dict[str, Any]:
    template = {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {"LaunchTemplateData": {"InstanceType": instance_type}},
    }
    group = {"AutoScalingGroupName": "small-cpu", "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"}}}
    return {
        "Resources": {
            "Template": template,
            "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": group},
        }
    }


def test_hosts_of_another_type_are_announced() -> None:
    old, new = {"small-asr-cpu": launch("inf2.xlarge")}, {"small-asr-cpu": launch("g6.xlarge")}
    (line,) = describe_replaced_hosts(old, new)
    assert line.startswith("hosts of small-cpu are replaced, inf2.xlarge to g6.xlarge")
    assert list(describe_replaced_hosts(old, old)) == []
    assert list(describe_replaced_hosts({}, new)) == []
