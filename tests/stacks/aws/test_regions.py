"""One file, several regions: the first is as it would be alone, and nothing of an account is made twice."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import blueprint
from blueprint import checks
from blueprint.file.errors import DeploymentFileError
from blueprint.file.model.aws import OtherRegion
from ops.cost.estimate import Assumptions, halves, price
from ops.cost.prices import price_book
from tests.blueprint.checks.cases import CERTIFICATE
from tests.blueprint.documents import ABSENT, BASE, Edits, edited, load_text, parsed
from tests.synthesized import ROOT, Stack, shipped, synthesize

SMALL = (ROOT / "deployments/small.yaml").read_text(encoding="utf-8")
OREGON = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
TWO = {"aws.other_regions": [OREGON]}
GLOBAL = {
    "AWS::Budgets::Budget": ("Budget", "BudgetName"),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::IAM::InstanceProfile": ("InstanceProfileName",),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName",),
    "AWS::IAM::Role": ("RoleName",),
    "AWS::Route53::RecordSet": ("Name",),
    "AWS::S3::Bucket": ("BucketName",),
}
"""Types whose names are one namespace for all regions of an account, or of all accounts, and where the name stands."""


def in_two(folder: Path, edits: Edits | None = None) -> blueprint.Deployment:
    return load_text(edited({**TWO, **(edits or {})}, SMALL), folder)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    return synthesize(in_two(tmp_path_factory.mktemp("two")))


def test_the_first_region_is_as_it_is_alone(stacks: dict[str, Stack]) -> None:
    alone = shipped("small")
    for tier, stack in alone.items():
        # Its gateways tell of the other region, and nothing else of it knows that there is one.
        told = json.dumps(stacks[tier].template).replace("https://api.us-west-2.voice.example.com", "")
        assert json.loads(told) == stack.template


def test_another_region_has_the_same_stacks_under_its_own_names(stacks: dict[str, Stack]) -> None:
    there = {tier.removeprefix("us-west-2-"): stack for tier, stack in stacks.items() if tier.startswith("us-west-2-")}
    alone = shipped("small")
    assert there.keys() == alone.keys()
    for tier, stack in there.items():
        kinds = [sorted(body["Type"] for body in each.template["Resources"].values()) for each in (stack, alone[tier])]
        assert kinds[0] == kinds[1]
        # The first one's zones and names would lead there.
        text = json.dumps(stack.template)
        assert "us-east-1" not in text
        text = text.replace("https://api.voice.example.com", "", 1)  # which its gateways tell of
        assert not re.search(r"(?<![\w.])(?:api|media)\.voice\.example\.com", text)


def test_no_name_that_is_one_for_all_regions_is_made_twice(stacks: dict[str, Stack]) -> None:
    named: list[tuple[str, Any]] = []
    for stack in stacks.values():
        for body in stack.template["Resources"].values():
            name: Any = body.get("Properties", {})
            for step in GLOBAL.get(body["Type"], ()):
                name = name.get(step) if isinstance(name, dict) else None
            if body["Type"] in GLOBAL and name is not None:
                named.append((body["Type"], json.dumps(name)))
    assert {kind for kind, _ in named} >= {
        "AWS::Budgets::Budget",
        "AWS::CloudWatch::Dashboard",
        "AWS::Route53::RecordSet",
    }
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"aws.other_regions": [{**OREGON, "region": "us-east-1"}]}, "a region is named twice: us-east-1, us-east-1"),
        ({"aws.other_regions": [OREGON, OREGON]}, "a region is named twice: us-east-1, us-west-2, us-west-2"),
        ({"aws.other_regions": [{**OREGON, "region": "us-west-9"}]}, "`us-west-9` is no AWS region"),
        ({"name": "a" * 24}, f"{'a' * 24}-us-west-2, the name in another region, is longer than 32 characters"),
        ({"aws.network.nat_gateways": 2, "aws.availability_zones": ["us-east-1a", "us-east-1b"]},
         "in us-west-2 nat_gateways 2 is more than the 1 availability zones"),
        ({"aws.other_regions": [{**OREGON, "availability_zones": ["us-west-2a", "us-west-2a"]}]}, "names a zone twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_in_two_regions_is_refused(edits: Edits, says: str, tmp_path: Path) -> None:
    with pytest.raises(DeploymentFileError) as refused:
        in_two(tmp_path, edits)
    assert says in str(refused.value)


def test_what_a_region_says_itself_takes_the_place_of_the_first_ones(tmp_path: Path) -> None:
    own = parsed(SMALL)["aws"]
    fleet = {**own["asr"][0], "name": "arm", "instance_type": "c8g.2xlarge"}
    differs: dict[str, Any] = {
        "region": "eu-west-1",
        "availability_zones": ["eu-west-1a", "eu-west-1b"],
        "network": {"cidr": "10.77.0.0/16"},
        "state": {"node_type": "cache.t4g.medium", "replicas": 1, "restore_from": "of-there"},
        "vad": {**own["vad"], "instance_type": "c8g.xlarge"},
        "asr": [fleet],
    }
    assert differs.keys() == OtherRegion.model_fields.keys()
    edits = {"aws.other_regions": [differs], "aws.state.restore_from": "of-here"}
    first, there = load_text(edited(edits, SMALL), tmp_path).in_regions()
    made = synthesize(there)
    assert made["network"].the("EC2::VPC")["CidrBlock"] == "10.77.0.0/16"
    store = made["state"].the("ElastiCache::ReplicationGroup")
    assert (store["CacheNodeType"], store["SnapshotName"]) == ("cache.t4g.medium", "of-there")
    assert len(made["vad"].of_type("AutoScaling::AutoScalingGroup")) == 2
    assert "c8g.xlarge" in json.dumps(made["vad"].template)
    assert "asr-arm" in made
    assert "asr-cpu" not in made
    assert first.aws.state.restore_from == "of-here"
    with_firsts = load_text(edited({**TWO, "aws.state.restore_from": "of-here"}, SMALL), tmp_path).in_regions()[1]
    assert with_firsts.aws.state.restore_from is None, "a snapshot is of its region"


def test_regions_without_a_name_for_callers_are_refused(tmp_path: Path) -> None:
    nameless: Edits = {
        "aws.edge.domain": ABSENT,
        "aws.edge.certificate_arn": CERTIFICATE,
        "aws.network.nat_gateways": 1,
    }
    with pytest.raises(DeploymentFileError) as refused:
        load_text(edited({**TWO, **nameless}, BASE), tmp_path)
    assert "other_regions need an `edge.domain`" in str(refused.value)


def test_checks_look_at_each_region_and_name_it(tmp_path: Path) -> None:
    """A type that is not sold in the second region, and a zone of the first: at the second one's lines."""
    zone = {**OREGON, "region": "me-south-1", "availability_zones": ["us-east-1a"]}
    deployment = in_two(tmp_path, {"aws.other_regions": [zone]})
    told = {found.check.id: found.violation for found in checks.run(deployment) if found.blocks}
    zones = told["zones-belong-to-region"]
    assert zones.message == "in me-south-1 us-east-1a is no availability zone of me-south-1"
    assert zones.location == ("aws", "other_regions", 0, "availability_zones", 0)
    assert "is not offered in me-south-1" in told["instance-type-in-region"].message
    assert not [finding for finding in checks.run(in_two(tmp_path)) if finding.blocks]


def test_each_region_is_priced_with_its_part_of_the_calls(tmp_path: Path) -> None:
    book = price_book(None)
    east, west = (price(half, book) for half in halves(in_two(tmp_path), Assumptions()))
    (alone,) = (price(half, book) for half in halves(load_text(SMALL, tmp_path), Assumptions()))
    assert (east.region, west.region) == ("us-east-1", "us-west-2")
    assert east.audio.hours
    assert alone.audio.hours
    assert east.audio.hours.expected == west.audio.hours.expected == alone.audio.hours.expected / 2  # type: ignore[union-attr]
    assert east.by_tier()["traffic"].expected < alone.by_tier()["traffic"].expected
    hosts = [estimate.by_tier()["network"].low for estimate in (east, alone)]
    assert hosts[0] == hosts[1]
