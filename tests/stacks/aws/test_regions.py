"""Files with several regions: the first equals a single region, and global resources are created once."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import voice_blueprint
from tests.blueprint.checks.cases import CERTIFICATE
from tests.blueprint.documents import ABSENT, BASE, Edits, edit_document, load_text, parse_yaml
from tests.nonempty import nonempty
from tests.synthesized import ROOT, Stack, shipped, synthesize
from voice_blueprint import checks
from voice_blueprint.file.errors import DeploymentFileError
from voice_blueprint.file.model.aws import OtherRegion
from voice_ops.cost.estimate import Assumptions, collect_charged_sections, price_section
from voice_ops.cost.prices import load_price_book

SMALL = (ROOT / "tests/deployments/small.yaml").read_text(encoding="utf-8")
OREGON = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
TWO_REGIONS = {"aws.other_regions": [OREGON]}
SHARED_NAME = "api.any.voice.example.com"
NO_API_URL = '"VOICE_API_URL", "Value": ""'
GLOBAL_NAMES = {
    "AWS::Budgets::Budget": ("Budget", "BudgetName"),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::IAM::InstanceProfile": ("InstanceProfileName",),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName",),
    "AWS::IAM::Role": ("RoleName",),
    "AWS::S3::Bucket": ("BucketName",),
}
"""Types whose names are unique across regions or accounts, with the path of the name."""


def in_two_regions(folder: Path, edits: Edits | None = None) -> voice_blueprint.Deployment:
    return load_text(edit_document({**TWO_REGIONS, **(edits or {})}, SMALL), folder)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    return synthesize(in_two_regions(tmp_path_factory.mktemp("two")))


def test_the_first_region_equals_a_single_region(stacks: dict[str, Stack]) -> None:
    alone = shipped("small")
    for tier, stack in nonempty(alone.items()):
        # Gateways refer to the other region and to their API, and callers of all regions have an additional name.
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
        # Zones and names of the first region would refer to the first region.
        text = json.dumps(stack.template)
        assert "us-east-1" not in text
        text = text.replace("https://api.voice.example.com", "", 1)  # which its gateways name
        assert not re.search(r"(?<![\w.])(?:api|media)\.voice\.example\.com", text)


def test_global_names_are_created_once(stacks: dict[str, Stack]) -> None:
    named: list[tuple[str, Any]] = []
    for stack in stacks.values():
        for body in stack.template["Resources"].values():
            name: Any = body.get("Properties", {})
            for step in GLOBAL_NAMES.get(body["Type"], ()):
                name = name.get(step) if isinstance(name, dict) else None
            if body["Type"] == "AWS::Route53::RecordSet":
                name = [body["Properties"]["Name"], body["Properties"].get("SetIdentifier")]
                named.append((body["Type"], json.dumps(name)))
            elif body["Type"] in GLOBAL_NAMES and name is not None:
                named.append((body["Type"], json.dumps(name)))
    assert {kind for kind, _ in named} >= {
        "AWS::Budgets::Budget",
        "AWS::CloudWatch::Dashboard",
        "AWS::Route53::RecordSet",
    }
    assert len(named) == len(set(named))


def test_a_shared_name_routes_callers_to_the_nearest_healthy_region(stacks: dict[str, Stack]) -> None:
    """Latency records of one name, each with a health check of the region's gateways."""
    for region, tier, own in (("us-east-1", "edge", ""), ("us-west-2", "us-west-2-edge", "us-west-2.")):
        edge = stacks[tier]
        (record,) = (each for each in edge.properties("Route53::RecordSet") if "SetIdentifier" in each)
        assert (record["Name"], record["Region"], record["SetIdentifier"]) == (SHARED_NAME, region, region)
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
        assert name["DomainName"] == SHARED_NAME
        certificate = edge.template["Resources"][name["RegionalCertificateArn"]["Ref"]]["Properties"]
        assert certificate["DomainName"] == SHARED_NAME
        (mapping,) = (each for each in edge.properties("ApiGateway::BasePathMapping") if "AnyRegion" in str(each))
        assert mapping["Stage"]


def test_a_single_region_has_no_shared_name() -> None:
    edge = shipped("small")["edge"]
    assert not edge.of_type("Route53::HealthCheck")
    assert all("SetIdentifier" not in record for record in edge.properties("Route53::RecordSet"))


def test_an_exceeded_account_limit_is_reported_once(stacks: dict[str, Stack]) -> None:
    budgets = [(tier, each) for tier, stack in stacks.items() for each in stack.properties("Budgets::Budget")]
    ((tier, budget),) = budgets
    assert tier == "observability"
    assert budget["Budget"]["BudgetLimit"]["Amount"] == parse_yaml(SMALL)["aws"]["observability"]["monthly_budget_usd"]


def test_the_budget_covers_the_hosts_of_all_regions(tmp_path: Path) -> None:
    def refused(edits: Edits) -> str:
        found = {
            each.check.id: each.violation.message
            for each in checks.run_checks(load_text(edit_document(edits, SMALL), tmp_path))
        }
        return found.get("budget-covers-minimum", "")

    budget: Edits = {"aws.observability.monthly_budget_usd": 300}
    assert refused(budget) == ""
    assert "the minimum number of hosts costs" in refused({**TWO_REGIONS, **budget})


def test_health_checks_have_a_price(tmp_path: Path) -> None:
    two = in_two_regions(tmp_path)
    found = [
        (use.item, use.amount.expected)
        for section in collect_charged_sections(two, Assumptions()) for each in section.charged_resources
        if each.kind == "AWS::Route53::HealthCheck" for use in each.uses
    ]  # fmt: skip
    assert found == [("health-check", 1), ("health-check-option", 2)] * 2
    estimate, _ = (
        price_section(section, load_price_book(None)) for section in collect_charged_sections(two, Assumptions())
    )
    assert "AWS::Route53::HealthCheck" not in str(estimate.unpriced_items)
    assert "AWS::Route53::HealthCheck" in str(estimate.lines)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"aws.other_regions": [{**OREGON, "region": "us-east-1"}]}, "regions.0.region`: us-east-1 is listed twice"),
        ({"aws.other_regions": [OREGON, OREGON]}, "`aws.other_regions.1.region`: us-west-2 is listed twice"),
        ({"aws.other_regions": [{**OREGON, "region": "us-west-9"}]}, "`us-west-9` is not a known AWS region"),
        ({"name": "a" * 24}, f"{'a' * 24}-us-west-2, the name of a cell or in another region, is longer"),
        ({"aws.network.nat_gateways": 2, "aws.availability_zones": ["us-east-1a", "us-east-1b"]},
         "in us-west-2 nat_gateways 2 is more than the 1 availability zones"),
        ({"aws.other_regions": [{**OREGON, "availability_zones": ["us-west-2a"] * 2}]}, "us-west-2a is listed twice"),
    ],
)  # fmt: skip
def test_single_region_settings_are_refused_in_two_regions(edits: Edits, message: str, tmp_path: Path) -> None:
    with pytest.raises(DeploymentFileError) as refused:
        in_two_regions(tmp_path, edits)
    assert message in str(refused.value)


def test_a_regions_settings_override_the_first_ones(tmp_path: Path) -> None:
    own = parse_yaml(SMALL)["aws"]
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
    first, there = load_text(edit_document(edits, SMALL), tmp_path).split_by_region()
    made = synthesize(there)
    assert made["network"].only("EC2::VPC")["CidrBlock"] == "10.77.0.0/16"
    store = made["state"].only("ElastiCache::ReplicationGroup")
    assert (store["CacheNodeType"], store["SnapshotName"]) == ("cache.t4g.medium", "of-there")
    assert len(made["vad"].of_type("AutoScaling::AutoScalingGroup")) == 2
    assert "c8g.xlarge" in json.dumps(made["vad"].template)
    assert "asr-arm" in made
    assert "asr-cpu" not in made
    assert first.aws.state.restore_from == "of-here"
    with_firsts = load_text(
        edit_document({**TWO_REGIONS, "aws.state.restore_from": "of-here"}, SMALL), tmp_path
    ).split_by_region()[1]
    assert with_firsts.aws.state.restore_from is None, "a snapshot is of its region"


def test_regions_without_a_shared_domain_name_are_refused(tmp_path: Path) -> None:
    nameless: Edits = {
        "aws.edge.domain": ABSENT,
        "aws.edge.certificate_arn": CERTIFICATE,
        "aws.network.nat_gateways": 1,
    }
    with pytest.raises(DeploymentFileError) as refused:
        load_text(edit_document({**TWO_REGIONS, **nameless}, BASE), tmp_path)
    assert "other_regions need an `edge.domain`" in str(refused.value)


def test_checks_examine_each_region_and_report_its_name(tmp_path: Path) -> None:
    """An unavailable instance type and a zone of the first region are reported at the lines of the second."""
    zone = {**OREGON, "region": "me-south-1", "availability_zones": ["us-east-1a"]}
    deployment = in_two_regions(tmp_path, {"aws.other_regions": [zone]})
    told = {found.check.id: found.violation for found in checks.run_checks(deployment) if found.is_blocking}
    zones = told["zones-belong-to-region"]
    assert zones.message == "in me-south-1 us-east-1a is not an availability zone of me-south-1"
    assert zones.location == ("aws", "other_regions", 0, "availability_zones", 0)
    assert "is not offered in me-south-1" in told["instance-type-in-region"].message
    assert not [finding for finding in checks.run_checks(in_two_regions(tmp_path)) if finding.is_blocking]


def test_each_region_is_priced_with_its_share_of_the_calls(tmp_path: Path) -> None:
    book = load_price_book(None)
    east, west = (
        price_section(section, book) for section in collect_charged_sections(in_two_regions(tmp_path), Assumptions())
    )
    (alone,) = (
        price_section(section, book) for section in collect_charged_sections(load_text(SMALL, tmp_path), Assumptions())
    )
    assert (east.region, west.region) == ("us-east-1", "us-west-2")
    assert east.audio.hours
    assert alone.audio.hours
    assert east.audio.hours.expected == west.audio.hours.expected == alone.audio.hours.expected / 2  # type: ignore[union-attr]
    assert east.calculate_usd_by_tier()["traffic"].expected < alone.calculate_usd_by_tier()["traffic"].expected
    hosts = [estimate.calculate_usd_by_tier()["network"].low for estimate in (east, alone)]
    assert hosts[0] == hosts[1]
