"""No input makes a parser raise what its callers do not expect: the kept corpus, and changes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adversarial.parsers import CORPUS, PARSERS
from tests.synthesized import ROOT

KEPT = {name: [file.read_bytes() for file in sorted((CORPUS / name).iterdir())] for name in PARSERS}


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_what_was_found_stays_mended(file: Path) -> None:
    PARSERS[file.parent.name].try_on(file.read_bytes())


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    PARSERS[name].try_on(data.draw(_inputs(name)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARSERS)
def test_inputs_that_cover_more_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Each a tenth of the time that a parser of the data plane gets; what covers more stays with theirs."""
    corpus = Path(os.environ.get("VOICE_FUZZ_CORPORA", tmp_path)) / name
    corpus.mkdir(parents=True, exist_ok=True)
    seconds = int(os.environ.get("VOICE_FUZZ_S", "60")) // 10
    options = [f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.adversarial.fuzz", name, str(corpus), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr[-3000:]


def _inputs(name: str) -> st.SearchStrategy[bytes]:
    """Draw anything, or a kept input with a piece of it replaced by another's."""
    kept = st.sampled_from(KEPT[name])
    piece = st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode), kept)
    places = st.integers(0, 200)
    return st.one_of(
        st.binary(max_size=1500),
        st.builds(lambda old, at, length, new: old[:at] + new + old[at + length :], kept, places, places, piece),
    )
