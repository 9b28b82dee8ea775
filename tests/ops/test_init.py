"""`voice init`: four answers become a file that no check refuses; what cannot become one is answered."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import blueprint
from blueprint import catalog, checks
from blueprint.engines.sizing.service import size_services
from ops.cli import app
from ops.init.sizes import bounds
from ops.simulate.capacity import fleet_plans

AWS = ["--cloud", "aws", "--region", "us-east-1", "--calls", "500", "--budget", "20000"]
BOTH_SOLD = sorted(
    set(catalog.instance_types()["g6e.xlarge"].regions) & set(catalog.instance_types()["c8g.4xlarge"].regions)
)
AZURE = ["--cloud", "azure", "--region", "southcentralus", "--calls", "100", "--budget", "20000"]


def init(file: Path, *options: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["init", str(file), *options], input=typed)


def changed(options: list[str], name: str, value: str) -> list[str]:
    at = options.index(name) + 1
    return [*options[:at], value, *options[at + 1 :]]


@pytest.mark.parametrize("calls", ["1", "500", "7000"])
@pytest.mark.parametrize("region", BOTH_SOLD)
def test_every_region_with_gpus_gets_a_file_that_is_sound_and_carries_the_calls(
    region: str, calls: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    options = changed(changed(changed(AWS, "--region", region), "--calls", calls), "--budget", "10000000")
    result = init(file, *options)
    assert result.exit_code == 0, result.output
    deployment = blueprint.load(file)
    assert not [finding for finding in checks.run(deployment) if finding.blocks]
    assert (deployment.name, deployment.aws.region) == ("mine", region)
    for plan in fleet_plans(deployment, {}):
        assert plan.max_hosts * plan.places >= int(calls), plan.name


@pytest.mark.parametrize("calls", ["1", "100", "5000"])
@pytest.mark.parametrize("region", ["eastus", "eastus2", "southcentralus", "westeurope", "westus3"])
def test_every_location_gets_a_file_whose_pool_carries_the_calls(region: str, calls: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    options = changed(changed(changed(AZURE, "--region", region), "--calls", calls), "--budget", "10000000")
    result = init(file, *options)
    assert result.exit_code == 0, result.output
    deployment = blueprint.load(file)
    assert not [finding for finding in checks.run(deployment) if finding.blocks]
    (sizing,) = size_services(deployment.azure).values()
    assert not isinstance(sizing, Exception)
    assert sizing.sessions >= int(calls)


def test_what_no_option_answers_is_asked_for(tmp_path: Path) -> None:
    asked, told = tmp_path / "asked" / "mine.yaml", tmp_path / "told" / "mine.yaml"
    for file in (asked, told):
        file.parent.mkdir()
    result = init(asked, typed="aws\nus-east-1\n500\n20000\n")
    assert result.exit_code == 0, result.output
    assert init(told, *AWS).exit_code == 0
    assert asked.read_text() == told.read_text()


def test_every_value_has_its_place_and_what_is_left_to_do_is_marked(tmp_path: Path) -> None:
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
    ("options", "said"),
    [
        (changed(AWS, "--region", "us-esat-1"), "us-esat-1 is no AWS region; did you mean `us-west-1`?"),
        (changed(AWS, "--region", "af-south-1"), "af-south-1 sells no GPU"),
        (changed(AWS, "--region", "me-central-1"), "me-central-1 sells no c8g.4xlarge"),
        (changed(AWS, "--budget", "100"), "more than the budget of 100 USD; raise it, or ask for fewer calls"),
        (
            changed(changed(AWS, "--calls", "10000000"), "--budget", "1000000000"),
            "10,000,000 calls are more than one state store holds",
        ),
        (changed(AWS, "--calls", "0"), "should be greater than or equal to 1"),
        (changed(AWS, "--cloud", "gcp"), "'gcp' is not one of 'aws', 'azure'"),
        (changed(AZURE, "--region", "mars"), "mars is no location of the catalogue"),
        (changed(AZURE, "--budget", "100"), "more than the budget of 100 USD"),
    ],
)
def test_bad_input_is_refused_with_what_to_do_and_nothing_is_written(
    options: list[str], said: str, tmp_path: Path
) -> None:
    result = init(tmp_path / "mine.yaml", *options)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_no_deployment_may_have_is_refused(tmp_path: Path) -> None:
    result = init(tmp_path / "My_File.yaml", *AWS)
    assert result.exit_code == 2
    assert "name" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine\n")
    result = init(file, *AWS)
    assert result.exit_code == 2
    assert f"{file} exists, and is not overwritten" in result.stderr
    assert file.read_text() == "mine\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = init(tmp_path / "gone" / "mine.yaml", *AWS)
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path / 'gone'}" in result.stderr


@pytest.mark.parametrize(("calls", "least", "most"), [(1, 2, 3), (210, 2, 3), (211, 2, 4), (1500, 11, 22)])
def test_hosts_for_calls(calls: int, least: int, most: int) -> None:
    found = bounds(calls, places=100)
    assert (found.min, found.max) == (least, most)
