"""The sizing in `voice plan`, and the tables of docs/tuning.md."""

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

import voice_blueprint
from tools import tuning_doc
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import to_json
from voice_ops.plan.sizing import create_sizing_tables, serialize_sizing

DEPLOYMENTS = Path(__file__).parents[2] / "tests/deployments"
SESSION_TOKENS = 1500
"""Tokens per session of the service in cells.yaml."""


def deployment(name: str) -> Deployment:
    return voice_blueprint.load(DEPLOYMENTS / f"{name}.yaml")


def sizing_output(name: str) -> str:
    console = Console(file=io.StringIO(), width=400)
    for table in create_sizing_tables(deployment(name)):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_services_layouts_and_limits_are_shown() -> None:
    text = sizing_output("cells")
    for expected in (
        "2 + 2 x A100-80",
        "prefill-decode-cell",
        "aggregated TP2 x 2",
        "KV memory",
        "throughput",
        "refused: a cell requires two NVLink pairs",
        "29.38",
    ):
        assert expected in text
    assert "does not fit" not in text


def test_capacity_and_reload_time_of_kv_cache_outside_the_gpus_are_shown() -> None:
    levels = serialize_sizing(deployment("cells"))["kv_levels"]
    assert isinstance(levels, dict)
    memory, nvme = levels["voxtral-cells"]
    # 163,840 bytes a token; two GPUs with 32 GB/s each, and four disks with 7.88
    assert memory.session_gb == nvme.session_gb == pytest.approx(163_840 * SESSION_TOKENS / 1e9)
    assert memory.sessions == 200 * 2**30 // (163_840 * SESSION_TOKENS)
    assert memory.read_ms == pytest.approx(1000 * memory.session_gb / 64)
    assert nvme.read_ms == pytest.approx(1000 * nvme.session_gb / 31.52)
    assert "KV cache outside the GPUs" in sizing_output("cells")


def test_a_refusal_shows_its_arithmetic_and_a_remedy() -> None:
    text = sizing_output("seed")
    assert "does not fit" in text
    assert "inf2.48xlarge has Inferentia2, which is not a GPU" in text
    assert "→ vLLM is sized for GPUs only" in text
    assert "whisper-large-v3" in text


def test_a_load_beyond_the_pools_is_shown() -> None:
    plan = deployment("cells")
    speech = next(service for service in plan.azure.services if service.kind == "tts")
    azure = plan.azure.model_copy(update={"services": (speech.model_copy(update={"sessions": 300}),)})
    (*_, refusals) = create_sizing_tables(plan.model_copy(update={"azure_section": azure}))
    assert refusals.title == "does not fit"


def test_a_file_without_engines_shows_no_sizing() -> None:
    assert create_sizing_tables(deployment("production-us-east-1")) == []


def test_json_contains_the_same_numbers() -> None:
    answer = json.loads(to_json(serialize_sizing(deployment("cells"))))
    cells = answer["services"]["voxtral-cells"]
    assert cells["enough"] is True
    assert cells["pools"][0]["engine"]["kv_cache_tokens"] == 604_530
    assert cells["alternatives"][0]["name"] == "prefill-decode-cell"
    assert answer["services"]["voxtral"]["alternatives"][0]["refusal"]["remedy"]
    assert answer["services"]["speech"]["pools"][0]["engine"]["sessions"] == 32
    refused = json.loads(to_json(serialize_sizing(deployment("seed"))))["fleets"]["inf2"]
    assert set(refused) == {"arithmetic", "remedy"}


def test_the_tables_in_docs_are_up_to_date() -> None:
    text = tuning_doc.DOCUMENT_PATH.read_text(encoding="utf-8")
    fresh = tuning_doc.render_document(text)
    if os.environ.get("UPDATE_GOLDEN"):
        tuning_doc.main()
    assert text == fresh, "run `python -m tools.tuning_doc`"
    assert all(f"<!-- table: {name} -->" in text for name in tuning_doc.TABLE_FORMATTER_BY_NAME)


def test_a_table_without_a_generator_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        tuning_doc.render_document("<!-- table: no-such -->\n<!-- end -->")
