"""`voice plan --calls N` leads to a valid file: its remedies are followed, by a program, until nothing is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ops.cli import app
from tests.blueprint.documents import DEPLOYMENTS

REMEDY = re.compile(r"(?:set |, )((?:aws|azure|load)[\w.\[\]]*) to (\{[^}]*\}|[\w.-]+)")
ROUNDS = 6


def plan(file: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["plan", str(file), "--json", *map(str, arguments)])
    return result.exit_code, json.loads(result.stdout)


def follow(document: dict[str, Any], remedy: str) -> None:
    """Do what a remedy says, such as "set aws.asr[0].hosts to {min: 1, max: 2}"."""
    changes = REMEDY.findall(remedy)
    assert changes, f"nothing that a program could do: {remedy}"
    for place, value in changes:
        *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", place)]
        at: Any = document
        for part in parents:
            at = at[part]
        at[last] = yaml.safe_load(value)


@pytest.mark.parametrize("name", ["small", "production-us-east-1"])
@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_remedies_lead_to_a_valid_file(calls: int, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    document = yaml.safe_load((DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    for _ in range(ROUNDS):
        code, report = plan(file, "--calls", calls)
        blocking = [finding for finding in report["findings"] if finding["blocks"]]
        assert code == (2 if blocking else 0)
        if not blocking:
            break
        for finding in blocking:
            follow(document, finding["remedy"])
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
    document["load"]["calls"] = calls
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    code, report = plan(file)
    assert code == 0, [finding["remedy"] for finding in report["findings"] if finding["blocks"]]
    peak = calls * document["load"].get("peak_factor", 2)
    assert all(row["most"] >= peak for row in report["capacity"] if row["tier"] in {"gateway", "vad", "state"})
    assert sum(row["most"] for row in report["capacity"] if row["tier"] == "asr") >= peak
