"""Output of `voice cost` on a terminal and in a pipeline."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner, Result

from tests.blueprint.documents import parse_yaml, text
from tests.ops.cost.price_apis import offer
from tests.ops.cost.test_refresh import LINUX, offer_file
from tests.synthesized import ROOT
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.cli import app
from voice_ops.cost import command, estimate
from voice_ops.synthesis import synthesize_templates

Templates: TypeAlias = dict[str, dict[str, Any]]

SANDBOX = ROOT / "deployments/sandbox.yaml"
PRODUCTION = ROOT / "deployments/production-us-east-1.yaml"


@pytest.fixture(scope="module", autouse=True)
def _one_synthesis_per_file() -> Iterator[None]:
    """Keep the templates of each deployment: most tests are about the same two files."""
    templates: dict[str, Templates] = {}

    def synthesize_once(deployment: Deployment) -> Templates:
        key = deployment.model_dump_json()
        templates[key] = templates.get(key) or synthesize_templates(deployment)
        return templates[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "synthesize_templates", synthesize_once)
        yield


@pytest.fixture(autouse=True)
def _no_fetched_prices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "PRICES_FILE", tmp_path / "prices.json")


def voice_cost(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["cost", *map(str, arguments)])


def test_the_tables_list_assumptions_and_omissions() -> None:
    result = voice_cost(SANDBOX)
    assert result.exit_code == 0, result.output
    for expected in ("inf2.48xlarge", "12.9813 per instance-hour", "USD per audio hour", "70% of the smallest tier"):
        assert expected in result.stdout
    for expected in ("list prices read from", "prices of us-west-2 are used", "AWS::SNS::Topic: notifications"):
        assert expected in result.stdout


def test_json_has_every_line_with_its_price_and_source() -> None:
    report = json.loads(voice_cost(SANDBOX, "--json").stdout)["clouds"]["aws"]
    lines = [line for line in report["lines"] if line["item"] == "c8g.12xlarge"]
    assert [line["resource"][:10] for line in lines] == ["FleetGroup"] * 3
    assert all(line["price_date"] and line["price_source"] for line in report["lines"])
    assert sum(line["usd_per_month"]["peak"] for line in report["lines"]) == pytest.approx(
        report["usd_per_month"]["peak"]
    )


def test_hosts_without_an_image_are_priced_as_if_it_existed() -> None:
    report = json.loads(voice_cost(PRODUCTION, "--json").stdout)["clouds"]["aws"]
    hosts = [line for line in report["lines"] if line["item"] == "inf2.48xlarge"]
    assert (hosts[0]["amount"]["low"], hosts[0]["amount"]["peak"]) == (2, 19)
    assert 2 < hosts[0]["amount"]["expected"] < 19, "the day's mean of hosts that run"
    assert any("images without a digest" in note for note in report["notes"])


def test_the_difference_is_computed_relative_to_the_other_file() -> None:
    report = json.loads(voice_cost(PRODUCTION, "--diff", SANDBOX, "--utilization", "1", "--json").stdout)
    sandbox = json.loads(voice_cost(SANDBOX, "--json").stdout)["clouds"]["aws"]["usd_per_month"]
    production = report["clouds"]["aws"]["usd_per_month"]
    difference = report["diff"]["clouds"]["aws"]["usd_per_month"]
    assert difference["peak"] == pytest.approx(production["peak"] - sandbox["peak"])
    # Traffic depends on the configured load, not on the hosts.
    hosts = [line["usd_per_month"] for line in report["clouds"]["aws"]["lines"] if line["tier"] == "asr-inf2"]
    assert sum(usd["expected"] for usd in hosts) == pytest.approx(sum(usd["peak"] for usd in hosts))
    own = json.loads(voice_cost(SANDBOX, "--diff", SANDBOX, "--json").stdout)
    assert own["diff"]["clouds"]["aws"]["usd_per_month"] == {"low": 0, "expected": 0, "peak": 0}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a file in a separate repository without tags; its committed version has one p5 host less."""
    file = tmp_path / "ours.yaml"
    document = parse_yaml(SANDBOX.read_text(encoding="utf-8"))
    file.write_text(text(document), encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", file.name)
    git(tmp_path, "commit", "--quiet", "--message", "as released")
    document["aws"]["asr"][2]["hosts"]["max"] += 1
    file.write_text(text(document), encoding="utf-8")
    return file


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)  # noqa: S603, S607


def test_a_file_is_compared_with_its_last_release(repository: Path) -> None:
    git(repository.parent, "tag", "v1.0")
    report = json.loads(voice_cost(repository, "--diff", "last-release", "--json").stdout)["diff"]
    assert report["other"].startswith(f"{repository} at v1.0 (")
    change = report["clouds"]["aws"]["usd_per_month"]
    assert change["low"] == 0
    assert change["peak"] == pytest.approx(6.88 * 730 + 200 * 0.08 + 7 * 0.3)  # including its disk and its metrics
    by_revision = voice_cost(repository, "--diff", "HEAD")
    assert f"compared with {repository} at HEAD (" in by_revision.stdout


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("last-release", "the history of"),
        ("v9", "--diff v9 is neither a file nor a git revision"),
        ("--output=x", "--diff --output=x is neither a file nor a git revision"),
        ("none.yaml", "none.yaml: does not exist"),
    ],
)
def test_an_incomparable_revision_is_reported_in_one_line(repository: Path, revision: str, message: str) -> None:
    result = voice_cost(repository, f"--diff={revision}")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_revision_without_the_file_is_reported_in_one_line(repository: Path) -> None:
    newer = repository.with_name("newer.yaml")
    newer.write_text(repository.read_text(encoding="utf-8"), encoding="utf-8")
    result = voice_cost(newer, "--diff", "HEAD")
    assert result.exit_code == 2
    assert f"{newer} does not exist at HEAD" in result.stderr


def test_an_unavailable_price_api_is_reported_and_the_catalogue_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    result = voice_cost(SANDBOX, "--refresh-prices")
    assert result.exit_code == 1
    assert "the AWS Price List API did not respond" in result.stderr
    assert "inf2.48xlarge" in result.stdout


def test_a_corrupt_price_cache_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    monkeypatch.setattr(command, "PRICES_FILE", broken)
    result = voice_cost(SANDBOX)
    assert result.exit_code == 2
    assert "delete it and fetch the prices again" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


FIXED_COSTS = {
    *("images and secrets", "users", "sessions of operators", "operations"),
    *("transcripts and the requests for them", "messages", "notifications", "queries of alerts"),
    "requests, and two yearly rotations of each key",
}


@pytest.mark.parametrize("name", ["production-us-east-1", "production-azure", "cells"])
def test_every_host_and_all_traffic_of_production_are_in_the_total(name: str) -> None:
    result = voice_cost(ROOT / f"deployments/{name}.yaml", "--strict", "--json")
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)["clouds"].values()
    assert report["hosts_without_price"] == []
    elsewhere = {each["what"] for each in report["unpriced"] if "external endpoint" in each["what"]}
    assert {each["what"] for each in report["unpriced"]} - elsewhere <= FIXED_COSTS
    assert len(elsewhere) == (2 if name == "production-us-east-1" else 0)
    assert {each["item"] for each in report["lines"] if each["tier"] == "traffic"}


def test_the_readme_shows_the_cost_of_its_first_step() -> None:
    report = json.loads(voice_cost(ROOT / "deployments/small.yaml", "--strict", "--json").stdout)["clouds"]["aws"]
    said = re.search(r"20 concurrent calls on Graviton CPUs for about (\d+) USD", (ROOT / "README.md").read_text())
    assert said
    assert report["usd_per_month"]["expected"] == pytest.approx(int(said[1]), rel=0.02)


@pytest.fixture
def paris_file(tmp_path: Path) -> Path:
    """Return the sandbox's file with one ASR fleet, in a region where the catalogue has only prices of inf2."""
    file = tmp_path / "paris.yaml"
    document = parse_yaml(SANDBOX.read_text(encoding="utf-8"))
    document["aws"] |= {"region": "eu-west-3", "availability_zones": ["eu-west-3a"], "asr": document["aws"]["asr"][:1]}
    file.write_text(text(document), encoding="utf-8")
    return file


def test_hosts_without_a_price_give_a_lower_bound(paris_file: Path, tmp_path: Path) -> None:
    without = voice_cost(paris_file, "--strict")
    assert without.exit_code == 1
    # 1 to 10 hosts at 2.04672 USD an hour in eu-west-1 and 2.26656 in eu-west-2; one host serves the simulated day
    hosts = r"and c8g\.12xlarge, as in eu-west-1, eu-west-2 +1,494-1,655 +1,494-1,655 +14,941-16,546"
    assert re.search(hosts, without.stdout)
    assert "and cache.t4g.small, as in us-east-1" in without.stdout
    assert re.search(r"at least +[\d,]+ ", without.stdout)
    paris = {"regionCode": "eu-west-3"}
    host = offer("AmazonEC2", "EUW3-BoxUsage:c8g.12xlarge", ("0", "2.2"), **LINUX | paris)
    node = {"instanceType": "cache.t4g.small", "cacheEngine": "Valkey", **paris}
    nodes = offer("AmazonElastiCache", "EUW3-NodeUsage:cache.t4g.small", ("0", "0.03"), **node)
    files = [offer_file(tmp_path, "AmazonEC2", host), offer_file(tmp_path, "AmazonElastiCache", nodes)]
    listed = voice_cost(paris_file, "--strict", "--json", *(part for file in files for part in ("--price-list", file)))
    assert listed.exit_code == 0, listed.output
    assert listed.stderr.count(": 1 prices in 1 regions") == 2
    (line,) = (each for each in json.loads(listed.stdout)["clouds"]["aws"]["lines"] if each["item"] == "c8g.12xlarge")
    assert line["usd_per_month"]["low"] == pytest.approx(2.2 * 730)


def test_an_invalid_price_list_is_reported_in_one_line() -> None:
    result = voice_cost(SANDBOX, "--price-list", SANDBOX)
    assert result.exit_code == 2
    assert "is not an offer file of the AWS Price List" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_share_above_one_is_refused() -> None:
    assert voice_cost(SANDBOX, "--utilization", "1.5").exit_code == 2
