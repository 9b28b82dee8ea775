"""`voice loadtest` of the local voice path: store, gateway, VAD stage, Whisper engine with tiny.en."""

import json
import urllib.request
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.ops.loadtest.test_command import NOWHERE, loadtest
from voice_ops.demo.command import SAMPLE_FILE, find_weights
from voice_ops.demo.services import VoicePath
from voice_ops.exits import FAILED

SPOKEN_S = 4


@pytest.fixture
def path(tmp_path: Path) -> Iterator[VoicePath]:
    with VoicePath(tmp_path, find_weights(None), data_plane=None) as path:
        path.start_store().wait_until_ready()
        yield path


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Return the beginning of the demo's sample: "Good morning. The whole system ..."."""
    file = tmp_path / "speech.wav"
    with wave.open(str(SAMPLE_FILE), "rb") as source, wave.open(str(file), "wb") as out:
        out.setparams(source.getparams())
        out.writeframes(source.readframes(SPOKEN_S * source.getframerate()))
    return file


def test_the_whisper_engine_under_load_is_reported(path: VoicePath, speech: Path, tmp_path: Path) -> None:
    gateway = path.start_gateway()
    path.wait_until_ready()
    load = ("--api", "session", "--audio", speech, "--concurrency", 2, "--requests", 4, "--warmup", 1)
    refused = loadtest(gateway.url, *load)
    assert refused.exit_code == FAILED
    assert "HTTP 503" in refused.stderr
    path.start_vad()
    engine = path.start_engine()
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    output = tmp_path / "report"
    result = loadtest(gateway.url, *load, "--slo", "final:30000", "--output", output, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["results"]
    assert (found["requests"], found["failures"], found["goodput_share"]) == (4, {}, 1.0)
    metrics = found["metrics"]
    # No partial arrives before speech or after the session.
    assert 300 < metrics["first"]["p50"] < metrics["total"]["p50"]
    assert metrics["total"]["p50"] == pytest.approx(1000 * SPOKEN_S + metrics["final"]["p50"], rel=0.1)
    assert 0 < found["audio_s_per_s"] < 2
    port = engine.environment["VOICE_HEALTH_PORT"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics.json") as answer:
        counters = json.load(answer)["counters"]
    assert counters["finals"] >= 5  # one per session at least, including the warm-up
    assert counters["lost_chunks"] == 0
    report = (output / "report.md").read_text(encoding="utf-8")
    assert "end of session after last frame, ms" in report
    assert imread(output / "results.png").std() > 0.05


def test_an_unreachable_gateway_is_reported_once(speech: Path) -> None:
    result = loadtest(NOWHERE, "--api", "session", "--audio", speech)
    assert result.exit_code == FAILED
    assert "cannot connect: Connection refused" in result.stderr


def test_a_session_load_test_rejects_a_model(speech: Path) -> None:
    result = loadtest(NOWHERE, "--api", "session", "--audio", speech, "--model", "tiny.en")
    assert result.exit_code == 2
    assert "--model does not apply to session" in result.stderr
