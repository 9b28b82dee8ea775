"""`voice calibrate`: the search, the file's text, and a local engine with tiny.en."""

import json
import wave
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS
from voice_blueprint.capacity.tiers import build_aws_tier_capacities
from voice_ops.calibrate.command import run_local_engine
from voice_ops.calibrate.edit import set_mapping_value
from voice_ops.calibrate.search import find_max_sustained_calls
from voice_ops.cli import app
from voice_ops.demo.command import SAMPLE_FILE

MEASUREMENT: dict[str, object] = {"calls": 7, "date": "2026-11-22", "conditions": "by hand, on one host"}
MEASUREMENT_YAML = 'measured: {"calls": 7, "date": "2026-11-22", "conditions": "by hand, on one host"}'


def calibrate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.mark.parametrize(
    ("carries", "max_calls", "result"),
    [(0, 64, (0, True)), (1, 64, (1, True)), (13, 64, (13, True)), (64, 64, (64, False)), (900, 50, (50, False))],
)
def test_the_exact_limit_is_found_without_exceeding_it(carries: int, max_calls: int, result: tuple[int, bool]) -> None:
    tried: list[int] = []

    def sustains(calls: int) -> bool:
        tried.append(calls)
        return calls <= carries

    assert find_max_sustained_calls(sustains, max_calls) == result
    assert max(tried) <= max_calls
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a:\n  - name: x  # one\n    b: 2\n", f"a:\n  - name: x  # one\n    {MEASUREMENT_YAML}\n    b: 2\n"),
        ("a:\n  - {name: x, b: 2}  # one\n", f"a:\n  - {{name: x, {MEASUREMENT_YAML}, b: 2}}  # one\n"),
        (
            "a:\n  - b: 2\n    measured:  # old\n      calls: 3\n      date: today  # that day\n    # more\n    c: 1\n",
            f"a:\n  - b: 2\n    {MEASUREMENT_YAML}  # that day\n    # more\n    c: 1\n",
        ),
        ("a:\n  - {b: 2}  # one\n", f"a:\n  - {{{MEASUREMENT_YAML}, b: 2}}  # one\n"),
        ("a:\n  - measured: {calls: 3}  # old\n", f"a:\n  - {MEASUREMENT_YAML}  # old\n"),
    ],
)
def test_only_the_measured_figure_is_written_to_the_file(before: str, after: str) -> None:
    assert set_mapping_value(before, ("a", 0), "measured", MEASUREMENT) == after


@pytest.fixture
def file(tmp_path: Path) -> Path:
    copy = tmp_path / "small.yaml"
    copy.write_text((DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    return copy


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    speech = tmp_path / "speech.wav"
    with wave.open(str(SAMPLE_FILE), "rb") as source, wave.open(str(speech), "wb") as short:
        short.setparams(source.getparams())
        short.writeframes(source.readframes(3 * source.getframerate()))
    return speech


def test_a_deployment_is_measured_through_its_api_per_task(file: Path, speech: Path) -> None:
    with run_local_engine(None) as (url, _):
        found = calibrate(
            file, "gateway", "--url", url, "--hosts", 2, "--audio", speech, "--max-calls", 2, "--final-ms", 60_000
        )
    assert found.exit_code == 0, found.output
    gateway, *_ = build_aws_tier_capacities(voice_blueprint.load(file).aws)
    assert (gateway.calls, gateway.limiting_bound.kind) == (1, "measured")
    assert f"2 hosts at {url}" in gateway.limiting_bound.source


def test_the_local_whisper_engine_is_measured_and_written(file: Path, speech: Path) -> None:
    before = file.read_text(encoding="utf-8")
    result = calibrate(file, "cpu", "--audio", speech, "--max-calls", 1, "--final-ms", 60_000, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["measured"]
    assert told["calls"] == 1
    assert "CPU engine with tiny.en" in told["conditions"]
    assert "more calls not tested" in told["conditions"]
    (cpu,) = [each for each in build_aws_tier_capacities(voice_blueprint.load(file).aws) if each.name == "cpu"]
    assert (cpu.calls, cpu.limiting_bound.kind) == (1, "measured")
    added = [line for line in file.read_text(encoding="utf-8").splitlines() if line not in before.splitlines()]
    assert [line.strip().partition(":")[0] for line in added] == ["measured"]
    assert before.count("#") == file.read_text(encoding="utf-8").count("#")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("gpu",), 2, "small has no fleet gpu; its fleets are gateway, vad, cpu"),
        (("vad",), 2, "only the CPU engine can be measured on this machine; vad requires --url"),
        (("gateway",), 2, "only the CPU engine can be measured on this machine; gateway requires --url"),
        (("cpu", "--url", "nowhere"), 2, "--url nowhere is not the URL of an endpoint"),
        (("cpu", "--url", "http://127.0.0.1:9"), 1, "cannot connect"),
        (("cpu", "--url", "http://127.0.0.1:9", "--audio", "none.wav"), 2, "none.wav"),
    ],
)
def test_failed_measurements_do_not_change_the_file(
    file: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = file.read_bytes()
    result = calibrate(file, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert file.read_bytes() == before
