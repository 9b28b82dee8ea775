"""The command line of `voice loadtest`."""

import json
from pathlib import Path

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner, Result

from tests.ops.loadtest.conftest import Server, write_wav
from voice_ops.cli import app
from voice_ops.exits import FAILED, INVALID_INPUT

FAST = '{"first_s": 0.05, "gap_s": 0.02}'
NOWHERE = "http://127.0.0.1:9"


def loadtest(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["loadtest", *map(str, arguments)])


@pytest.mark.parametrize("api", ["chat", "speech", "transcription", "realtime"])
def test_every_api_is_reported(api: str, server: Server, tmp_path: Path) -> None:
    write_wav(tmp_path / "short.wav", 0.4)
    audio = ["--audio", tmp_path / "short.wav"] if api in {"transcription", "realtime"} else []
    load = ["--concurrency", "1,3", "--requests", 6]
    result = loadtest(server.url + "/v1/", "--api", api, *audio, *load, "--body", FAST, "--output", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(result.stdout) == report
    assert [found["load"] for found in report["results"]] == ["1 at a time", "3 at a time"]
    assert all(found["requests"] == 6 and not found["failures"] for found in report["results"])
    assert all(found["metrics"]["first"]["p50"] > 50 for found in report["results"])
    assert report["setup"]["measured"] == f"{server.url}, model reference"
    assert "| requests, failed | 6, 0 | 6, 0 |" in (tmp_path / "report.md").read_text()
    picture = imread(tmp_path / "results.png")
    assert picture.shape[1] > 1000
    assert picture.std() > 0.05


def test_a_table_compares_published_figures_with_ours(server: Server, wav: Path) -> None:
    write_wav(wav.parent / "voice.wav", 10.0)
    voice = wav.parent / "voice.wav"
    result = loadtest(server.url, "--scenario", "table-8", "--requests", 32, "--body", FAST, "--reference", voice)
    assert result.exit_code == 0, result.output
    assert "published: arXiv 2603.25551" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["published", "70.0", "331", "552"] in rows
    assert ["published", "119", "879", "1,431"] in rows
    assert ["published", "0.0%", "0.0%", "0.0%"] in rows
    assert "1 at a time" in result.stdout
    assert "32 at a time" in result.stdout


def test_two_endpoints_are_compared_in_turn(server: Server, slower_server: Server, tmp_path: Path) -> None:
    result = loadtest(
        *(server.url, "--scenario", "table-7", "--baseline", slower_server.url, "--requests", 16, "--rounds", 4),
        *("--body", FAST, "--output", tmp_path, "--instance-type", "p5.4xlarge"),
    )
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [found["endpoint"] for found in report["results"]] == ["cuda-graph", "eager"]
    assert [found["published"]["first"] for found in report["results"]] == [70, 133]
    (first,) = (
        found
        for found in report["comparisons"][0]["differences"]
        if (found["metric"], found["statistic"]) == ("first", "p50")
    )
    assert first["shown"]
    ours, theirs = (one.take_records()["records"][2:] for one in (server, slower_server))
    firsts = [[record["sent_s"][0] - record["received_s"] for record in side] for side in (ours, theirs)]
    planted = 1000 * (sorted(firsts[0])[8] - sorted(firsts[1])[8])
    late = sum(found["harness"]["loop_lag_ms"]["max"] for found in report["results"])
    assert first["difference"] == pytest.approx(planted, abs=30 + late)
    order = sorted([(one["received_s"], "A") for one in ours] + [(one["received_s"], "B") for one in theirs])
    assert "".join(side for _, side in order) == "AAAABBBBBBBBAAAA" * 2
    assert imread(tmp_path / "comparison.png").std() > 0.05
    assert all(found["usd_per_audio_hour"] > 0 for found in report["results"])


def test_failed_requests_are_reported_and_do_not_stop_the_load(server: Server) -> None:
    result = loadtest(server.url, "--api", "chat", "--requests", 9, "--body", '{"first_s": 0.05, "fail_every": 3}')
    assert result.exit_code == 0
    assert "3 of 9 failed: HTTP 503: overloaded" in result.stderr


def test_a_load_without_a_response_fails(server: Server) -> None:
    body = '{"first_s": 0.05, "gap_s": 0.01, "fail_every": 2}'
    result = loadtest(server.url, "--api", "chat", "--requests", 1, "--warmup", 1, "--body", body)
    assert result.exit_code == FAILED
    assert "1 of 1 failed: HTTP 503: overloaded" in result.stderr


def test_the_key_is_sent_and_never_shown(
    locked_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_wav(tmp_path / "short.wav", 0.4)
    monkeypatch.setenv("BENCH_KEY", "open-sesame")
    for api in ("chat", "realtime"):
        audio = ["--audio", tmp_path / "short.wav"] if api == "realtime" else []
        result = loadtest(
            *(locked_server.url, "--api", api, *audio, "--requests", 1, "--body", FAST, "--output", tmp_path),
            *("--api-key-env", "BENCH_KEY", "--json"),
        )
        assert result.exit_code == 0, result.output
        written = "".join(file.read_text() for file in tmp_path.glob("report.*"))
        assert "open-sesame" not in result.output + written


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        ([NOWHERE, "--api", "chat"], "cannot connect: Connection refused", "check that the endpoint is running"),
        (["LOCKED", "--api", "chat"], "HTTP 401: Incorrect API key provided", "--api-key-env NAME"),
        (["SERVER", "--api", "chat", "--model", "other"], "does not serve the model other; it serves reference", ""),
        (["SERVER/nothing", "--api", "chat", "--model", "m"], "HTTP 404: Not Found", "--model NAME"),
        (["SERVER/nothing", "--api", "chat"], "does not list exactly one model", "--model NAME"),
        (
            ["SERVER", "--api", "chat", "--timeout", "0.2", "--body", '{"first_s": 5}'],
            "timeout: no complete response within 0.2 s",
            "--timeout SECONDS",
        ),
    ],
    ids=["refused", "401", "model", "404", "no-list", "timeout"],
)
def test_an_endpoint_that_cannot_be_measured_fails_with_a_remedy(
    server: Server, locked_server: Server, arguments: list[str], problem: str, remedy: str
) -> None:
    filled = [text.replace("SERVER", server.url).replace("LOCKED", locked_server.url) for text in arguments]
    result = loadtest(*filled, "--requests", 1)
    assert result.exit_code == FAILED
    assert problem in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            [],
            "openai, deepgram, conversation) or --scenario",
        ),
        (["--api", "chat", "--scenario", "table-8"], "--scenario table-8 tests speech, not chat"),
        (["--scenario", "table-9"], "--scenario table-9 is unknown; the scenarios are table-7, table-8"),
        (["--scenario", "table-7"], "compares cuda-graph with eager: specify --baseline URL"),
        (["--scenario", "table-8", "--rate", "2"], "a scenario sets the concurrency"),
        (["--api", "chat", "--rate", "2", "--concurrency", "2"], "specify one of them"),
        (["--api", "chat", "--concurrency", "1,x"], "--concurrency 1,x is not a list of positive int values"),
        (["--api", "chat", "--rate", "0"], "--rate 0 is not a list of positive float values"),
        (["--api", "chat", "--rate", "nan"], "--rate nan is not a list"),
        (
            ["--api", "chat", "--concurrency", "500", "--requests", "100"],
            "is too small for 500 concurrent requests; specify 500 or more",
        ),
        (
            ["--api", "chat", "--baseline", NOWHERE, "--concurrency", "16", "--requests", "40"],
            "is too small for 16 concurrent requests in each of 6 rounds; specify 96 or more",
        ),
        (["--api", "transcription"], "transcription requires recordings of speech: specify --audio FILE.wav"),
        (["--api", "realtime", "--audio", "TEXT"], "is not a PCM WAV file"),
        (["--api", "realtime", "--audio", "MISSING"], "No such file or directory"),
        (["--api", "realtime", "--audio", "EMPTY"], "contains no audio"),
        (["--api", "chat", "--audio", "FAST"], "--audio applies to transcription, realtime and session, not to chat"),
        (["--api", "chat", "--reference", "FAST"], "--reference applies to speech, not to chat"),
        (["--scenario", "table-8", "--reference", "FAST"], "is 1.0 s long; the published runs used 10 s"),
        (["--api", "chat", "--text", "MISSING"], "No such file or directory"),
        (["--api", "chat", "--body", "[1]"], "--body is not a JSON object"),
        (["--api", "chat", "--body", "{"], "--body is not valid JSON"),
        (["--api", "chat", "--slo", "first"], "--slo first has no number; the format is METRIC:LIMIT"),
        (["--api", "chat", "--slo", "speed:9"], "the metric speed is unknown; the metrics are first, gap"),
        (["--api", "chat", "--names", "one"], "--names one is not a pair"),
        (["--api", "chat", "--api-key-env", "NO_SUCH_KEY"], "export NO_SUCH_KEY=... first"),
        (["--api", "chat", "--instance-type", "x1.huge"], "the catalogue has no instance type x1.huge"),
        (
            ["--api", "chat", "--instance-type", "p5.4xlarge", "--usd-per-hour", "3"],
            "both set the price; specify one of them",
        ),
        (["--api", "chat", "--baseline", "ftp://host"], "--baseline ftp://host is not the URL of an endpoint"),
        (["--api", "chat", "--baseline", "http://user:EXAMPLE@host"], "--baseline must not contain a key"),
        (["--api", "chat", "--output", "TEXT"], "File exists"),
    ],
    ids=lambda value: "-".join(value).replace("--", "") if isinstance(value, list) else "",
)
def test_a_wrong_option_is_refused(arguments: list[str], problem: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name.lower()}.wav" for name in ("FAST", "TEXT", "MISSING", "EMPTY")}
    write_wav(files["FAST"], 1.0, rate=24_000)
    write_wav(files["EMPTY"], 0.0)
    files["TEXT"].write_text("no audio")
    result = loadtest(NOWHERE, *(files.get(text, text) for text in arguments))
    assert result.exit_code == INVALID_INPUT, result.output
    assert problem in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
