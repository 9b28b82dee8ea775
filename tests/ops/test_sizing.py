"""The sizing as `voice plan` shows it, and the tables of docs/tuning.md."""

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

import blueprint
from blueprint.file.model.deployment import Deployment
from ops import tuning_doc
from ops.output import as_json
from ops.plan.sizing import sizing_as_dict, sizing_tables

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"


def deployment(name: str) -> Deployment:
    return blueprint.load(DEPLOYMENTS / f"{name}.yaml")


def shown(name: str) -> str:
    console = Console(file=io.StringIO(), width=400)
    for table in sizing_tables(deployment(name)):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_services_layouts_and_limits_are_shown() -> None:
    text = shown("cells")
    for expected in (
        "2 + 2 x A100-80",
        "prefill-decode-cell",
        "aggregated TP2 x 2",
        "KV memory",
        "throughput",
        "refused: a cell takes two NVLink pairs",
        "29.38",
    ):
        assert expected in text
    assert "does not fit" not in text


def test_a_refusal_shows_its_arithmetic_and_a_remedy() -> None:
    text = shown("seed")
    assert "does not fit" in text
    assert "inf2.48xlarge has Inferentia2, which is no GPU" in text
    assert "→ vLLM is sized for GPUs only" in text
    assert "whisper-large-v3" in text


def test_a_load_beyond_the_pools_is_shown() -> None:
    plan = deployment("cells")
    speech = next(service for service in plan.azure.services if service.kind == "tts")
    azure = plan.azure.model_copy(update={"services": (speech.model_copy(update={"sessions": 300}),)})
    (*_, refusals) = sizing_tables(plan.model_copy(update={"azure_half": azure}))
    assert refusals.title == "does not fit"


def test_nothing_to_size_is_nothing_to_show() -> None:
    assert sizing_tables(deployment("production-us-east-1")) == []


def test_json_has_the_same_numbers() -> None:
    answer = json.loads(as_json(sizing_as_dict(deployment("cells"))))
    cells = answer["services"]["voxtral-cells"]
    assert cells["enough"] is True
    assert cells["pools"][0]["engine"]["kv_cache_tokens"] == 604_530
    assert cells["alternatives"][0]["name"] == "prefill-decode-cell"
    assert answer["services"]["voxtral"]["alternatives"][0]["refusal"]["remedy"]
    assert answer["services"]["speech"]["pools"][0]["engine"]["sessions"] == 32
    refused = json.loads(as_json(sizing_as_dict(deployment("seed"))))["fleets"]["inf2"]
    assert set(refused) == {"arithmetic", "remedy"}


def test_the_tables_of_the_document_are_fresh() -> None:
    text = tuning_doc.DOCUMENT.read_text(encoding="utf-8")
    fresh = tuning_doc.rendered(text)
    if os.environ.get("UPDATE_GOLDEN"):
        tuning_doc.main()
    assert text == fresh, "run `python -m ops.tuning_doc`"
    assert all(f"<!-- table: {name} -->" in text for name in tuning_doc.TABLES)


def test_a_table_that_nothing_makes_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        tuning_doc.rendered("<!-- table: no-such -->\n<!-- end -->")
