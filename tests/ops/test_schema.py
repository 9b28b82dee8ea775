"""The schema of deployment files: whole, described, and the same in the tree."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.exceptions import best_match
from typer.testing import CliRunner

from ops.cli import app
from ops.schema.document import schema
from tests.synthesized import ROOT

SHIPPED = sorted((ROOT / "deployments").glob("*.yaml"))


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    whole = schema()
    for name, part in (("Deployment", whole), *whole["$defs"].items()):
        for setting, what in part.get("properties", {}).items():
            yield f"{name}.{setting}", what


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["schema", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_setting_says_what_it_is() -> None:
    silent = [name for name, setting in settings() if len(setting.get("description", "").split()) < 3]
    assert not silent, f"write a docstring below these fields in blueprint/file/model: {', '.join(silent)}"


@pytest.mark.parametrize(
    ("ending", "unit"),
    [("_s", "second"), ("_days", "days"), ("_gib", "GiB"), ("_mib", "MiB"), ("_usd", "USD"), ("_usd_per_hour", "USD")],
)
def test_a_setting_with_a_unit_in_its_name_says_it(ending: str, unit: str) -> None:
    named = {name: setting["description"] for name, setting in settings() if name.endswith(ending)}
    assert named
    assert not [name for name, description in named.items() if unit not in description]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_fit_the_schema_and_lead_editors_to_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    jsonschema.Draft202012Validator(schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("where", "wrong", "said"),
    [
        ("network", {"nat_gateway": 1}, "'nat_gateway' was unexpected"),
        ("network", {"nat_gateways": "1"}, "'1' is not of type 'integer'"),
        ("state", {"replicas": 6}, "6 is greater than the maximum of 5"),
        ("vad", {"data_path": {"mode": "tun"}}, "'tun' is not one of ['af_xdp', 'vfio']"),
    ],
)
def test_an_editor_marks_what_the_model_refuses(where: str, wrong: dict[str, Any], said: str) -> None:
    document = yaml.safe_load((ROOT / "deployments/sandbox.yaml").read_text(encoding="utf-8"))
    document["aws"][where] |= wrong
    found = best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    assert found is not None
    assert said in found.message


@pytest.mark.parametrize(
    ("arguments", "path"), [((), "deployments/schema.json"), (("--markdown",), "docs/deployment-file.md")]
)
def test_the_tree_has_what_the_model_says(arguments: tuple[str, ...], path: str) -> None:
    assert printed(*arguments) == (ROOT / path).read_text(encoding="utf-8"), f"{path} is stale: run `make schema`"


def test_the_page_has_every_setting_once_in_each_type_that_has_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", printed("--markdown"), re.MULTILINE)
    assert sorted(rows) == sorted(name.partition(".")[2] for name, _ in settings())


def test_what_is_printed_is_json() -> None:
    assert json.loads(printed()) == schema()
