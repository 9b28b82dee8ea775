"""Images install the versions with which their tests run."""

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from voice_ops.images.locks import parse_lock

IMAGES = Path(__file__).parents[2] / "images"
ONLY_WITH_A_GPU = {"nvidia-cublas-cu12"}
"""Half a gigabyte that no test loads."""
PYTHON_IMAGES = ("agent", "gateway", "telemetry", "whisper-engine")


@pytest.mark.parametrize("image", PYTHON_IMAGES)
def test_images_pin_the_versions_of_the_tests(image: str) -> None:
    lines = (IMAGES / image / "requirements.in").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
    assert wanted
    here = [each for each in wanted if each.name not in ONLY_WITH_A_GPU]
    other = [str(each) for each in here if not each.specifier.contains(importlib.metadata.version(each.name))]
    assert other == []


def test_the_neuron_image_pins_the_versions_of_the_engine() -> None:
    engine, neuron = (
        parse_lock((IMAGES / image / "requirements.txt").read_text(encoding="utf-8"))
        for image in ("whisper-engine", "asr-neuron")
    )
    asked = {
        Requirement(line).name
        for line in (IMAGES / "asr-neuron/requirements.in").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    ours = asked & neuron.keys() - {"openai-whisper"}
    assert ours
    assert {name: neuron[name][0] for name in ours} == {name: engine[name][0] for name in ours}
