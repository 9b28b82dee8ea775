"""Applying the remedies of `voice plan` for N calls repeatedly results in a valid file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.blueprint.documents import DEPLOYMENTS
from voice_ops.cli import app

REMEDY = re.compile(r"(?:set |, )((?:aws|azure|load)[\w.\[\]]*) to (\{[^}]*\}|[\w.-]+)")
ROUNDS = 6


def plan(file: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["plan", str(file), "--json", *map(str, arguments)])
    return result.exit_code, json.loads(result.stdout)


def apply_remedy(document: dict[str, Any], remedy: str) -> None:
    """Apply a remedy, such as "set aws.asr[0].hosts to {min: 1, max: 2}"."""
    changes = REMEDY.findall(remedy)
    assert changes, f"nothing that a program could do: {remedy}"
    for place, value in changes:
        *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", place)]
        at: Any = document
        for part in parents:
            at = at[part]
        at[last] = yaml.safe_load(value)


@pytest.mark.parametrize(
    ("name", "option", "calls"),
    [
        *((name, "--calls", calls) for name in ("small", "production-us-east-1") for calls in (20, 500, 10_000)),
        ("production-azure", "--calls", 100),
        ("production-azure", "--calls", 1500),
        *(
            (name, "--conversations", calls)
            for name in ("production-us-east-1", "production-azure")
            for calls in (100, 700)
        ),
    ],
)
def test_following_the_remedies_gives_a_valid_file(name: str, option: str, calls: int, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    document = yaml.safe_load((DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    for _ in range(ROUNDS):
        code, report = plan(file, option, calls)
        blocking = [finding for finding in report["findings"] if finding["blocks"]]
        assert code == (2 if blocking else 0)
        if not blocking:
            break
        for finding in blocking:
            apply_remedy(document, finding["remedy"])
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
    document["load"]["calls"] = calls
    if option == "--conversations":
        document["load"]["conversation_share"] = 1.0
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    code, report = plan(file)
    assert code == 0, [finding["remedy"] for finding in report["findings"] if finding["blocks"]]
    peak = calls * document["load"].get("peak_factor", 2)
    assert all(row["most"] >= peak for row in report["capacity"] if row["tier"] in {"gateway", "vad", "state"})
    assert sum(row["most"] for row in report["capacity"] if row["tier"] == "asr") >= peak
    conversations = peak * document["load"].get("conversation_share", 1)
    assert all(row["most"] >= conversations for row in report["conversations"])
    assert (len(report["conversations"]) > 0) == (name != "small")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        # For 100 conversations, 1,000 at the peak, with 70 % of the slots in use.
        (
            "production-us-east-1",
            {"agent": (18, 179), "gateway": (2, 14), "vad": (1, 1), "asr": (1, 4), "state": (1, 1)},
        ),
        # Sized for 100 conversations, 200 at the peak; agents speak half of the time, so two share a stream of text to
        # speech.
        (
            "production-azure",
            {"agent": (18, 36), "gateway": (2, 3), "vad": (1, 1), "asr": (1, 1), "state": (1, 1)}
            | {"voxtral-small-24b": (1, 1), "qwen": (1, 1), "speech": (3, 5)},
        ),
    ],
)
def test_the_whole_chain_is_sized_for_a_hundred_conversations(name: str, parts: dict[str, tuple[int, int]]) -> None:
    _, report = plan(DEPLOYMENTS / f"{name}.yaml", "--conversations", 100)
    assert {row["name"]: tuple(row["for_load"]) for row in report["conversations"]} == parts
    shown = CliRunner().invoke(app, ["plan", str(DEPLOYMENTS / f"{name}.yaml"), "--conversations", "100"]).stdout
    assert "limited by agent" in shown
    assert set(parts) <= set(re.findall(r"^  ([\w-]+) ", shown.partition("concurrent conversations")[2], re.MULTILINE))


def test_conversations_without_agents_and_two_call_counts_are_refused() -> None:
    file = str(DEPLOYMENTS / "small.yaml")
    for options, says in ((["--conversations", "9"], "no section `agents`"), (["--calls", "9"], "one of them")):
        both = options if "agents" in says else [*options, "--conversations", "9"]
        result = CliRunner().invoke(app, ["plan", file, *both])
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_audio_for_a_language_model_uses_no_asr_slot(cloud: str, tmp_path: Path) -> None:
    name = {"aws": "production-us-east-1", "azure": "production-azure"}[cloud]
    document = yaml.safe_load((DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8"))
    document["load"] = {"calls": 400, "conversation_share": 0.75}
    document[cloud]["agents"]["listening"] = "audio"
    document[cloud]["agents"]["chat"] = {
        "aws": {"url": "https://chat.callers.dev/v1", "model": "gpt-audio"},
        "azure": {"kind": "service", "service": "voxtral"},
    }[cloud]
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    _, report = plan(file)
    parts = {row["name"] for row in report["conversations"]}
    assert {"agent", "gateway", "state"} <= parts
    assert not parts & {"vad", "asr", "voxtral-small-24b"}
    document["load"]["calls"], document[cloud]["agents"]["listening"] = 100, "transcript"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    _, hundred = plan(file)
    # A quarter of the calls is transcribed, and all of them use the gateway.
    recognised = [{row["name"]: row["for_load"] for row in each["capacity"] if row["tier"] in {"vad", "asr"}}
                  for each in (report, hundred)]  # fmt: skip
    assert recognised[0] == recognised[1]
