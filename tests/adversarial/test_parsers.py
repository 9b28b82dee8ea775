"""Parsers raise only the errors that their callers expect, for the stored corpus and mutations of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adversarial.parsers import CORPUS, PARSERS
from tests.synthesized import ROOT

SAVED_INPUTS = {name: [file.read_bytes() for file in sorted((CORPUS / name).iterdir())] for name in PARSERS}


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_fixed_defects_stay_fixed(file: Path) -> None:
    PARSERS[file.parent.name].parse_with(file.read_bytes())


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=200)
def test_any_bytes_are_parsed_or_rejected(name: str, data: st.DataObject) -> None:
    PARSERS[name].parse_with(data.draw(_inputs(name)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARSERS)
def test_inputs_that_increase_coverage_are_parsed_or_rejected(name: str, tmp_path: Path) -> None:
    """Each parser is fuzzed for a tenth of the time of the data plane's parsers; inputs with new coverage are saved."""
    corpus = Path(os.environ.get("VOICE_FUZZ_CORPORA", tmp_path)) / name
    corpus.mkdir(parents=True, exist_ok=True)
    seconds = int(os.environ.get("VOICE_FUZZ_S", "60")) // 10
    options = [f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.adversarial.fuzz", name, str(corpus), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr[-3000:]


def _inputs(name: str) -> st.SearchStrategy[bytes]:
    """Draw arbitrary bytes, or a stored input in which a slice is replaced by one of another input."""
    kept = st.sampled_from(SAVED_INPUTS[name])
    piece = st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode), kept)
    places = st.integers(0, 200)
    return st.one_of(
        st.binary(max_size=1500),
        st.builds(lambda old, at, length, new: old[:at] + new + old[at + length :], kept, places, places, piece),
    )
