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
ANY = "api.any.voice.example.com"
NO_API_URL = '"VOICE_API_URL", "Value": ""'
GLOBAL = {
    "AWS::Budgets::Budget": ("Budget", "BudgetName"),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::IAM::InstanceProfile": ("InstanceProfileName",),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName",),
    "AWS::IAM::Role": ("RoleName",),
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
        # Its gateways tell of the other region and of their own API, and callers of all regions have a name more.
        told = json.dumps(stacks[tier].template).replace("https://api.us-west-2.voice.example.com", "")
        made = json.loads(told.replace('"VOICE_API_URL", "Value": "https://api.voice.example.com"', NO_API_URL))
        made["Resources"] = {name: body for name, body in made["Resources"].items() if "AnyRegion" not in name}
        assert made == stack.template


def test_another_region_has_the_same_stacks_under_its_own_names(stacks: dict[str, Stack]) -> None:
    there = {tier.removeprefix("us-west-2-"): stack for tier, stack in stacks.items() if tier.startswith("us-west-2-")}
    alone = shipped("small")
    assert there.keys() == alone.keys()
    for tier, stack in there.items():
        here, kinds = (
            sorted(body["Type"] for name, body in each.template["Resources"].items() if "AnyRegion" not in name)
            for each in (alone[tier], stack)
        )
        assert [kind for kind in here if kind != "AWS::Budgets::Budget"] == kinds
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
            if body["Type"] == "AWS::Route53::RecordSet":
                name = [body["Properties"]["Name"], body["Properties"].get("SetIdentifier")]
                named.append((body["Type"], json.dumps(name)))
            elif body["Type"] in GLOBAL and name is not None:
                named.append((body["Type"], json.dumps(name)))
    assert {kind for kind, _ in named} >= {
        "AWS::Budgets::Budget",
        "AWS::CloudWatch::Dashboard",
        "AWS::Route53::RecordSet",
    }
    assert len(named) == len(set(named))


def test_one_name_leads_callers_to_the_nearest_region_that_is_well(stacks: dict[str, Stack]) -> None:
    """Latency records of one name, each with a check that asks the region's own gateways."""
    for region, tier, own in (("us-east-1", "edge", ""), ("us-west-2", "us-west-2-edge", "us-west-2.")):
        edge = stacks[tier]
        (record,) = (each for each in edge.properties("Route53::RecordSet") if "SetIdentifier" in each)
        assert (record["Name"], record["Region"], record["SetIdentifier"]) == (ANY, region, region)
        check = edge.template["Resources"][record["HealthCheckId"]["Ref"]]
        assert check["Type"] == "AWS::Route53::HealthCheck"
        asked = check["Properties"]["HealthCheckConfig"]
        assert asked == {
            "Type": "HTTPS",
            "FullyQualifiedDomainName": f"media.{own}voice.example.com",
            "Port": 443,
            "ResourcePath": "/healthz",
            "RequestInterval": 10,
            "FailureThreshold": 3,
        }
        name = edge.template["Resources"][record["AliasTarget"]["DNSName"]["Fn::GetAtt"][0]]["Properties"]
        assert name["DomainName"] == ANY
        certificate = edge.template["Resources"][name["RegionalCertificateArn"]["Ref"]]["Properties"]
        assert certificate["DomainName"] == ANY
        (mapping,) = (each for each in edge.properties("ApiGateway::BasePathMapping") if "AnyRegion" in str(each))
        assert mapping["Stage"]


def test_one_region_alone_has_no_name_for_all() -> None:
    edge = shipped("small")["edge"]
    assert not edge.of_type("Route53::HealthCheck")
    assert all("SetIdentifier" not in record for record in edge.properties("Route53::RecordSet"))


def test_an_overrun_of_the_account_is_told_once(stacks: dict[str, Stack]) -> None:
    budgets = [(tier, each) for tier, stack in stacks.items() for each in stack.properties("Budgets::Budget")]
    ((tier, budget),) = budgets
    assert tier == "observability"
    assert budget["Budget"]["BudgetLimit"]["Amount"] == parsed(SMALL)["aws"]["observability"]["monthly_budget_usd"]


def test_the_budget_covers_the_hosts_of_all_regions(tmp_path: Path) -> None:
    def refused(edits: Edits) -> str:
        found = {
            each.check.id: each.violation.message for each in checks.run(load_text(edited(edits, SMALL), tmp_path))
        }
        return found.get("budget-covers-minimum", "")

    budget: Edits = {"aws.observability.monthly_budget_usd": 300}
    assert refused(budget) == ""
    assert "the fewest hosts alone cost" in refused({**TWO, **budget})


def test_health_checks_have_a_price(tmp_path: Path) -> None:
    two = in_two(tmp_path)
    found = [
        (use.item, use.amount.expected) for half in halves(two, Assumptions()) for each in half.rented
        if each.kind == "AWS::Route53::HealthCheck" for use in each.uses
    ]  # fmt: skip
    assert found == [("health-check", 1), ("health-check-option", 2)] * 2
    estimate, _ = (price(half, price_book(None)) for half in halves(two, Assumptions()))
    assert "AWS::Route53::HealthCheck" not in str(estimate.unpriced)
    assert "AWS::Route53::HealthCheck" in str(estimate.lines)


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
