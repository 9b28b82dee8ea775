"""The schema of deployment files is complete, documented and up to date."""

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

from tests.nonempty import nonempty
from tests.synthesized import ROOT
from voice_ops.cli import app
from voice_ops.schema import markdown
from voice_ops.schema.document import build_schema

SHIPPED_FILES = sorted((ROOT / "deployments").glob("*.yaml"))


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    whole = build_schema()
    for name, part in (("Deployment", whole), *whole["$defs"].items()):
        for setting, what in part.get("properties", {}).items():
            yield f"{name}.{setting}", what


def schema_output(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["schema", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_setting_has_a_description() -> None:
    silent = [name for name, setting in settings() if len(setting.get("description", "").split()) < 3]
    assert not silent, f"write a docstring below these fields in voice_blueprint/file/model: {', '.join(silent)}"


@pytest.mark.parametrize(
    ("ending", "unit"),
    [("_s", "second"), ("_days", "days"), ("_gib", "GiB"), ("_mib", "MiB"), ("_usd", "USD"), ("_usd_per_hour", "USD")],
)
def test_a_setting_with_a_unit_in_its_name_describes_the_unit(ending: str, unit: str) -> None:
    named = {name: setting["description"] for name, setting in settings() if name.endswith(ending)}
    assert named
    assert not [name for name, description in named.items() if unit not in description]


@pytest.mark.parametrize("file", SHIPPED_FILES, ids=lambda file: file.stem)
def test_shipped_files_fit_the_schema_and_name_it_for_editors(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    errors = list(jsonschema.Draft202012Validator(build_schema()).iter_errors(yaml.safe_load(text)))
    marked = [inner.instance for error in errors for inner in error.context or [error] if inner.validator != "type"]
    # The seed file intentionally contains two mistakes of this kind.
    assert marked == (["EnaRxQueueDepth", "NcclBusy"] if file.stem == "seed" else [])


@pytest.mark.parametrize(
    ("where", "wrong", "message"),
    [
        ("network", {"nat_gateway": 1}, "'nat_gateway' was unexpected"),
        ("network", {"nat_gateways": "1"}, "'1' is not of type 'integer'"),
        ("state", {"replicas": 6}, "6 is greater than the maximum of 5"),
        ("vad", {"data_path": {"mode": "tun"}}, "'tun' is not one of ['af_xdp', 'vfio']"),
        ("vad", {"instance_type": "m7i.xlarge"}, "'m7i.xlarge' is not one of ['c8g.12xlarge', "),
        ("state", {"node_type": "r7g.large"}, "'r7g.large' is not one of ['cache.m7g.12xlarge', "),
    ],
)
def test_the_schema_rejects_values_that_the_model_rejects(where: str, wrong: dict[str, Any], message: str) -> None:
    document = yaml.safe_load((ROOT / "deployments/sandbox.yaml").read_text(encoding="utf-8"))
    document["aws"][where] |= wrong
    found = best_match(jsonschema.Draft202012Validator(build_schema()).iter_errors(document))
    assert found is not None
    assert message in found.message


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("Aws.region", "us-east-1"),
        ("OtherRegion.region", "us-west-2"),
        ("StateStore.node_type", "cache.r7g.large"),
        ("VadFleet.instance_type", "c8g.12xlarge"),
        ("AsrFleet.instance_type", "g6e.xlarge"),
        ("VllmOptions.model", "qwen3-8b"),
        ("ScalingRule.metric", "SlotsTaken"),
        ("Azure.location", "westeurope"),
        ("SystemPool.vm_size", "Standard_D8ds_v5"),
        ("CpuPool.vm_size", "Standard_D8ds_v5"),
        ("GpuPool.vm_size", "Standard_NC96ads_A100_v4"),
        ("JumpHost.vm_size", "Standard_D4ds_v5"),
        ("ChatService.model", "qwen3-8b"),
        ("AsrPods.model", "voxtral-small-24b"),
        ("ModelAgreement.model", "voxtral-4b-tts"),
    ],
)
def test_the_schema_lists_names_of_the_catalogue(setting: str, value: str) -> None:
    names = dict(settings())[setting]["enum"]
    assert value in names
    assert len(names) == len(set(names)) > 3


def test_the_schema_file_is_up_to_date() -> None:
    path = "deployments/schema.json"
    assert schema_output() == (ROOT / path).read_text(encoding="utf-8"), f"{path} is stale: run `make generate`"


def test_the_reference_pages_list_every_setting_of_each_type_once() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", "\n".join(markdown.render_schema_pages(build_schema()).values()), re.MULTILINE)
    assert sorted(rows) == sorted(name.partition(".")[2] for name, _ in settings())


def test_every_section_is_linked_from_the_first_page_and_by_its_earlier_anchor() -> None:
    pages = markdown.render_schema_pages(build_schema())
    first = pages[markdown.ENTRY_PAGE]
    for page, text in nonempty(pages.items()):
        for title in re.findall(r"^## (.+)$", text, re.MULTILINE):
            assert f"[{title}](" in first
            anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            assert page == markdown.ENTRY_PAGE or f'<a id="{anchor}"></a>' in first


def test_output_is_json() -> None:
    assert json.loads(schema_output()) == build_schema()
