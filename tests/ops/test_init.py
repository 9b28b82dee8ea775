"""`voice init` writes a file that passes all checks, or refuses the answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

import voice_blueprint
from voice_blueprint import Deployment, catalog, checks
from voice_blueprint.capacity.conversations import iter_conversation_chains
from voice_blueprint.capacity.tiers import build_azure_caller_capacities, build_caller_tier_capacities
from voice_blueprint.checks.base import Severity
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.service import size_services
from voice_blueprint.file.model.text import Name
from voice_ops.cli import app
from voice_ops.init.answers import Answers, Cloud
from voice_ops.init.drafts import create_drafts, derive_deployment_name
from voice_ops.init.sizes import (
    MAX_SMALL_CALLS,
    UnsupportedAnswersError,
    build_aws_placeholder_values,
    build_azure_placeholder_values,
    calculate_host_count,
    calculate_max_calls,
    list_supported_regions,
    offers_gpus,
)
from voice_ops.simulate.capacity import create_fleet_plans

ROOT = Path(__file__).parents[2]
AWS = ["--cloud", "aws", "--region", "us-east-1", "--calls", "500", "--budget", "20000"]
COMMON_REGIONS = sorted(
    set(catalog.instance_types()["g6e.xlarge"].regions) & set(catalog.instance_types()["c8g.4xlarge"].regions)
)
AZURE = ["--cloud", "azure", "--region", "southcentralus", "--calls", "100", "--budget", "20000"]


def init(file: Path, *options: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["init", str(file), *options], input=typed)


def change_option(options: list[str], name: str, value: str) -> list[str]:
    at = options.index(name) + 1
    return [*options[:at], value, *options[at + 1 :]]


PLACEHOLDER_CHECKS = {
    Cloud.AWS: {"placeholder-domain", "images-have-digests"},
    Cloud.AZURE: {"admin-group-is-real", "images-have-digests"},
}
"""Checks that warn of values in a new file that only the user can set."""


def drafted_files(cloud: Cloud, region: str, calls: int, *, agents: bool, budget: int = 10**9) -> Iterator[Deployment]:
    """Yield the files for these answers, and assert that only placeholder checks report warnings."""
    for draft in create_drafts(Answers(cloud, region, calls, agents), "mine"):
        with draft.load(budget) as deployment:
            findings = [each for each in checks.run_checks(deployment) if each.check.level is not Severity.INFO]
            # Large deployments require higher quotas than those of a new account.
            assert {each.check.id for each in findings} - {"limits-requested"} == PLACEHOLDER_CHECKS[cloud], findings
            yield deployment


@settings(max_examples=60, deadline=None)
@example(cloud=Cloud.AWS, index=0, calls=100_000, agents=False)  # the default rate limit of the API is too low
@example(cloud=Cloud.AWS, index=0, calls=100_000, agents=True)  # most addresses of a subnet are for agents
@given(
    cloud=st.sampled_from(list(Cloud)),
    index=st.integers(0, 1000),
    calls=st.one_of(st.integers(1, 40), st.integers(1, 2_000), st.integers(1, 100_000)),
    agents=st.booleans(),
)
def test_checks_of_a_new_file_report_only_placeholders(cloud: Cloud, index: int, calls: int, *, agents: bool) -> None:
    sold = [region for region in list_supported_regions(cloud) if offers_gpus(cloud, region) or not agents]
    region = sold[index % len(sold)]
    calls = min(calls, calculate_max_calls(cloud, region, agents=agents))
    found = list(drafted_files(cloud, region, calls, agents=agents))
    assert found
    for deployment in found:
        tiers = build_caller_tier_capacities(deployment)
        assert all(tier.max_calls >= calls for tier in tiers), tiers
        for agents_link, *others in iter_conversation_chains(deployment):
            assert agents_link.most >= calls
            assert all(other.most >= agents_link.most for other in others)
        assert any(half and half.agents for half in (deployment.aws_section, deployment.azure_section)) is agents


@pytest.mark.parametrize("cloud", list(Cloud))
@pytest.mark.parametrize("agents", [True, False])
def test_the_maximum_number_of_calls_is_accepted_and_one_more_refused(cloud: Cloud, *, agents: bool) -> None:
    region = next(region for region in list_supported_regions(cloud) if offers_gpus(cloud, region))
    most = calculate_max_calls(cloud, region, agents=agents)
    values = {Cloud.AWS: build_aws_placeholder_values, Cloud.AZURE: build_azure_placeholder_values}[cloud]
    assert values(region, most, agents=agents)
    with pytest.raises(UnsupportedAnswersError, match=r"exceed the capacity of (one state store|a VPC's subnets)"):
        values(region, most + 1, agents=agents)


@pytest.mark.parametrize("region", COMMON_REGIONS)
def test_files_for_every_region_with_gpus_support_the_calls(region: str) -> None:
    for calls in (1, 500, 7000):
        *_, deployment = drafted_files(Cloud.AWS, region, calls, agents=False) if calls > MAX_SMALL_CALLS else [None]
        if deployment:
            assert (deployment.name, deployment.aws.region) == ("mine", region)
            for plan in create_fleet_plans(deployment, {}):
                assert plan.max_hosts * plan.slots >= calls, plan.name


@pytest.mark.parametrize("calls", [1, 100, 5000])
@pytest.mark.parametrize("region", ["eastus", "eastus2", "southcentralus", "westeurope", "westus3"])
def test_the_pool_of_every_location_supports_the_calls(region: str, calls: int) -> None:
    (deployment,) = drafted_files(Cloud.AZURE, region, calls, agents=False)
    (sizing,) = size_services(deployment.azure).values()
    assert not isinstance(sizing, Exception)
    assert sizing.sessions >= calls
    assert deployment.azure.callers
    tiers = build_azure_caller_capacities(deployment.azure.callers)
    assert [each.tier for each in tiers] == [Tier.GATEWAY, Tier.VAD, Tier.ASR, Tier.STATE]
    assert all(each.units.min >= 2 for each in tiers[:3]), "a node image comes weekly and empties a node at a time"


def test_caller_tiers_grow_with_the_calls() -> None:
    files = [
        next(drafted_files(Cloud.AZURE, "southcentralus", calls, agents=False)).azure for calls in (100, 500, 5000)
    ]
    gateway = [each.callers.edge.gateway.replicas.max for each in files if each.callers]
    nodes = [each.cpu_pool.nodes.max for each in files if each.cpu_pool]
    assert gateway == sorted(set(gateway))
    assert nodes == sorted(set(nodes))
    skus = [each.callers.state.sku for each in files if each.callers]
    assert skus == ["Balanced_B3", "Balanced_B3", "Balanced_B20"]


def test_missing_options_are_prompted(tmp_path: Path) -> None:
    asked, told = tmp_path / "asked" / "mine.yaml", tmp_path / "told" / "mine.yaml"
    for file in (asked, told):
        file.parent.mkdir()
    result = init(asked, typed="aws\nus-east-1\nn\n500\n20000\n")
    assert result.exit_code == 0, result.output
    assert "Regions that offer the required hosts: af-south-1, " in result.stdout
    assert "500 calls on GPUs cost about " in result.stdout
    assert init(told, *AWS).exit_code == 0
    assert asked.read_text() == told.read_text()


def test_an_invalid_answer_is_prompted_again_immediately(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    typed = "gcp\naws\nus-esat-1\n\n\nmany\n0\n1000000000\n20\n100\n1,000\n"
    result = init(file, typed=typed)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stderr.split())
    assert "gcp is not a supported cloud; use `aws` or `azure`" in told
    assert "us-esat-1 does not offer the hosts that a first file for aws requires; did you mean `us-east-1`?" in told
    assert "many is not an integer; enter one such as 500" in told
    assert "0 calls are outside the range of one deployment in that region, 1 to 175,790" in told
    assert "1,000,000,000 calls are outside the range" in told
    assert "20 calls on CPUs cost about 523 USD" in told
    assert "more than the budget of 100 USD; raise it to 524" in told
    assert voice_blueprint.load(file).aws.observability.monthly_budget_usd == 1000


@pytest.mark.parametrize("typed", ["", "azure\n", "aws\nus-east-1\nn\n20\n"])
def test_end_of_input_reports_the_options(typed: str, tmp_path: Path) -> None:
    result = init(tmp_path / "mine.yaml", typed=typed)
    assert result.exit_code == 2
    assert "answers are missing, and standard input has ended; give --" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_value_is_written_and_open_tasks_are_marked(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    init(file, *AWS)
    text = file.read_text()
    assert "$" not in text.replace("$schema=", "")
    document = yaml.safe_load(text)
    assert document["aws"]["observability"]["monthly_budget_usd"] == 20000
    assert [line.split("#")[1].split(",")[0].strip() for line in text.splitlines() if "example.com" in line] == [
        "yours",
        "yours",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            change_option(AWS, "--region", "us-esat-1"),
            "us-esat-1 does not offer the hosts that a first file for aws requires; did you mean",
        ),
        (
            change_option(AWS, "--region", "af-south-1"),
            "500 calls are outside the range of one deployment in that region, 1 to 20",
        ),
        (
            [*change_option(change_option(AWS, "--region", "af-south-1"), "--calls", "1"), "--agents"],
            "af-south-1 offers no GPUs, which agents require",
        ),
        (
            change_option(AWS, "--region", "me-central-1"),
            "me-central-1 does not offer the hosts that a first file for aws requires",
        ),
        (change_option(AWS, "--budget", "100"), "more than the budget of 100 USD; raise it to "),
        (
            change_option(change_option(AWS, "--calls", "10000000"), "--budget", "1000000000"),
            "10,000,000 calls are outside the range of one deployment in that region, 1 to 175,790",
        ),
        (change_option(AWS, "--calls", "0"), "should be greater than or equal to 1"),
        (change_option(AWS, "--cloud", "gcp"), "'gcp' is not one of 'aws', 'azure'"),
        (
            change_option(AZURE, "--region", "mars"),
            "mars does not offer the hosts that a first file for azure requires; use `",
        ),
        (change_option(AZURE, "--budget", "13000"), "100 calls on GPUs cost about 15,"),
        (
            change_option(change_option(AZURE, "--calls", "20000"), "--budget", "1000000000"),
            "20,000 calls are outside the range of one deployment in that region, 1 to ",
        ),
    ],
)
def test_invalid_input_is_refused_with_a_remedy_and_nothing_is_written(
    options: list[str], message: str, tmp_path: Path
) -> None:
    result = init(tmp_path / "mine.yaml", *options)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("My File", "my-file"),
        ("first call (2)", "first-call-2"),
        ("2026", "voice-2026"),
        ("Über_uns", "uber-uns"),
        ("日本", "voice"),
        ("--", "voice"),
        ("a" * 40, "a" * 32),
        (f"{'a' * 31} b", "a" * 31),
        ("production", "production"),
        ("nodes", "nodes"),
        ("my-nodes", "my-node"),  # `my-nodes` is the resource group of a deployment `my`
        (f"{'a' * 26}-nodes-2", f"{'a' * 26}-node"),
    ],
)
def test_a_deployment_is_named_after_its_file(stem: str, name: str) -> None:
    assert derive_deployment_name(Path(f"{stem}.yaml")) == name
    TypeAdapter(Name).validate_python(name)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine\n")
    result = init(file, *AWS)
    assert result.exit_code == 2
    assert f"{file} exists, and is not overwritten" in result.stderr
    assert file.read_text() == "mine\n"


def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    result = init(tmp_path / "gone" / "mine.yaml", *AWS)
    assert result.exit_code == 2
    assert f"the folder {tmp_path / 'gone'} does not exist" in result.stderr


@pytest.mark.parametrize(("calls", "min_hosts", "max_hosts"), [(1, 2, 3), (190, 2, 4), (191, 2, 5), (1500, 11, 25)])
def test_hosts_follow_from_calls(calls: int, min_hosts: int, max_hosts: int) -> None:
    found = calculate_host_count(calls, capacities=100)
    assert (found.min, found.max) == (min_hosts, max_hosts)


def test_few_calls_run_on_cpus_for_the_price_of_the_small_file(tmp_path: Path) -> None:
    options = change_option(change_option(AWS, "--calls", "20"), "--budget", "600")
    file = tmp_path / "first call.yaml"
    result = init(file, *options)
    assert result.exit_code == 0, result.output
    assert "20 calls on CPUs, about 523 USD" in result.stdout
    assert f"next: voice plan '{file}'" in result.stdout
    deployment = voice_blueprint.load(file)
    assert (deployment.name, deployment.aws.region) == ("first-call", "us-east-1")
    assert deployment.aws.observability.monthly_budget_usd == 600
    assert deployment.load
    assert deployment.load.calls == 20
    done = CliRunner().invoke(app, ["cost", str(ROOT / "tests/deployments/small.yaml"), "--json"])
    (estimate,) = json.loads(done.stdout)["clouds"].values()
    assert estimate["usd_per_month"]["expected"] == pytest.approx(523, abs=1)


@pytest.mark.parametrize("options", [AWS, AZURE], ids=["aws", "azure"])
def test_requested_agents_are_written_and_priced(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    result = init(file, *change_option(options, "--budget", "40000"), "--agents")
    assert result.exit_code == 0, result.output
    calls = options[options.index("--calls") + 1]
    assert f"{calls} calls with agents on GPUs, about " in result.stdout
    deployment = voice_blueprint.load(file)
    assert any(half and half.agents for half in (deployment.aws_section, deployment.azure_section))


def test_the_schema_is_named_as_a_url(tmp_path: Path) -> None:
    """The YAML language server truncates the schema name at the first space."""
    (tmp_path / "a b").mkdir()
    file = tmp_path / "a b" / "mine.yaml"
    assert init(file, *change_option(change_option(AWS, "--calls", "20"), "--budget", "600")).exit_code == 0
    line = file.read_text().splitlines()[0]
    named = line.removeprefix("# yaml-language-server: $schema=")
    assert " " not in named
    assert (file.parent / unquote(named)).resolve() == ROOT / "deployments/schema.json"
