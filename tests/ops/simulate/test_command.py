"""Output, files and refusals of `voice simulate`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.ops.simulate.worlds import PRODUCTION, ROOT
from voice_ops.cli import app
from voice_ops.simulate.capacity import calculate_default_peak, create_fleet_plans
from voice_ops.simulate.traces import BUILT_IN_TRACES, LoadTrace

PNG = b"\x89PNG\r\n\x1a\n"


def simulate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """Write a trace of three times the calls in ten minutes."""
    file = tmp_path / "course.csv"
    file.write_text("second,calls\n0,1000\n60,1000\n120,3000\n600,3000\n")
    return file


def test_rollout_fleet_must_exist_in_the_file(course: Path) -> None:
    result = simulate(PRODUCTION, "--load", course, "--rollout", "inf3")
    assert result.exit_code == 2
    assert "--rollout inf3: unknown fleet; specify one of vad, inf2, trn1, p5, gateway" in result.stderr


def test_policies_are_compared_in_a_table_with_their_assumptions(course: Path, tmp_path: Path) -> None:
    result = simulate(PRODUCTION, "--load", course, "--compare-autoscalers", "--output", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    for policy in ("seed's table alone", "CPU target 50 %", "KEDA on the queue", "file, warm pool"):
        assert policy in result.stdout
    assert "time to capacity" in result.stdout
    for assumed in ("900", "420 s", "90 s", "a ceiling,"):
        assert assumed in result.stdout
    assert "file, warm pool: calls exceeded the 2,171 slots in service after" in result.stdout
    assert (tmp_path / "plots/calls.png").read_bytes().startswith(PNG)
    assert "calls.png" in result.stderr


def test_json_contains_figures_assumptions_and_time_series(course: Path) -> None:
    result = simulate(
        PRODUCTION, "--load", course, "--boot", "inf2=200/40", "--quota", "inf=384", "--json",
        "--seed", "5",
    )  # fmt: skip
    report = json.loads(result.stdout)
    assert (report["trace"], report["peak_calls"], report["seed"]) == ("course", 3_000, 5)
    inf2 = report["fleets"][1]
    assert inf2["places_per_host"] == 900
    assert inf2["boot"] == [{"name": "whole", "cold_s": 200, "warm_s": 40, "source": "--boot"}]
    assert report["shortfall"]["peak"] == 3_000
    (file,) = report["policies"]
    assert file["policy"] == "file, warm pool"
    assert file["launches_refused"] > 0
    assert max(file["course"]["hosts"]["inf2"]) == 2
    assert len(file["course"]["second"]) == 10


@pytest.mark.parametrize("name", ["small", "production-us-east-1", "production-azure"])
def test_a_spike_is_simulated_for_several_utilizations_of_a_full_host(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILT_IN_TRACES, "spike", lambda peak: LoadTrace("spike", (0.0, 60.0), (peak / 10, peak)))
    spike = simulate(ROOT / f"tests/deployments/{name}.yaml", "--peak", "20")
    assert spike.exit_code == 0, spike.output
    assert "by how busy a full host is" in spike.stdout
    for busy in ("40% busy", "70% busy", "100% busy", "150% busy"):
        assert busy in spike.stdout


def test_replicas_on_azure_are_simulated_with_kedas_settings(course: Path) -> None:
    result = simulate(ROOT / "tests/deployments/production-azure.yaml", "--load", course, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    pairs, voxtral, *tiers = report["fleets"]
    # See docs/tuning.md; a node with four GPUs runs two replicas.
    assert (pairs["fleet"], pairs["places_per_host"]) == ("voxtral-pairs on pairs", 403)
    assert pairs["usd_per_host_hour"] == pytest.approx(14.692 / 2)
    assert sum(phase["cold_s"] for phase in voxtral["boot"]) == 300 + 993
    # Limits of `voice plan`: a gateway core, a polled core, and the configured sessions.
    places = {each["fleet"]: each["places_per_host"] for each in tiers}
    assert places == {"gateway": 107, "vad": 500, "asr": 400, "agent": 8}
    assert all(each["usd_per_host_hour"] for each in tiers)


def test_a_spike_on_azure_is_limited_by_the_smallest_tier() -> None:
    plans = create_fleet_plans(voice_blueprint.load(ROOT / "tests/deployments/production-azure.yaml"), {})
    # Six ASR pods with 400 calls; five data-plane pods support 2,500, and the replicas 3,551.
    assert calculate_default_peak(plans) == 0.8 * 2_400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--load", "tide"],
            "unknown trace tide: specify diurnal, spike, az-outage, region-loss, ",
        ),
        (["--load", "none.csv"], "none.csv: No such file"),
        (["--load", "none.csv", "--peak", "5"], "--peak only applies to built-in traces"),
        (["--load", "spot-wave"], "--load spot-wave: the file has no spot fleet"),
        (
            ["--silent", "GpuBizy"],
            "--silent GpuBizy: unknown metric of a rule; specify one of SlotsTaken, RxRingSustained",
        ),
        (["--boot", "inf9=4/4"], "has no fleet inf9"),
        (["--boot", "inf2=60"], "--boot inf2=60 does not have the format NAME=VALUE"),
        (["--quota", "inff=60"], "--quota inff: unknown family; specify one of standard, inf, trn, p, g-vt"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: list[str], message: str) -> None:
    result = simulate(PRODUCTION, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_invalid_row_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "course.csv"
    file.write_text("second,calls\n0,1000\n60,lots\n")
    result = simulate(PRODUCTION, "--load", file)
    assert result.exit_code == 2
    assert f"{file}:3: '60,lots' is not two numbers" in result.stderr


def test_a_file_with_an_error_is_refused() -> None:
    seed = simulate(ROOT / "tests/deployments/seed.yaml")
    assert seed.exit_code == 2
    assert "huge-pages-fit-memory" in seed.stderr


def test_a_folder_that_cannot_be_written_is_reported(course: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    result = simulate(PRODUCTION, "--load", course, "--output", tmp_path / "taken")
    assert result.exit_code == 2
    assert "taken" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--peak", "1e19", "at most 1e+19 calls; the simulator carries up to 100,000,000"),
        ("--peak", "inf", "--peak inf is not a finite number"),
        ("--peak", "nan", "Invalid value for '--peak'"),
        ("--call-seconds", "nan", "Invalid value for '--call-seconds'"),
        ("--spot-interruptions", "inf", "--spot-interruptions inf is not a finite number"),
    ],
)
def test_numbers_that_cannot_be_simulated_are_refused(option: str, value: str, message: str) -> None:
    result = simulate(PRODUCTION, option, value)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
