"""The shipped deployment files are examples: they must be valid."""

from pathlib import Path

import pytest

import voice_blueprint
from voice_blueprint.checks import run_checks

SHIPPED_FILES = sorted((Path(__file__).parents[2] / "deployments").glob("*.yaml"))


def test_there_are_files_for_both_clouds() -> None:
    shipped = [voice_blueprint.load(file) for file in SHIPPED_FILES]
    assert any(each.aws_section for each in shipped)
    assert any(each.azure_section for each in shipped)


@pytest.mark.parametrize("file", SHIPPED_FILES, ids=lambda file: file.stem)
def test_checks_accept_a_shipped_file(file: Path) -> None:
    refusals = [finding.check.id for finding in run_checks(voice_blueprint.load(file)) if finding.is_blocking]
    # The seed file implements the design document literally, which is not valid.
    assert bool(refusals) == (file.stem == "seed"), refusals
