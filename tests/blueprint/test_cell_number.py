"""`cells.number` selects one cell, which has its own name and domain."""

from pathlib import Path

import pytest

from tests.blueprint.documents import DEPLOYMENTS, Edits, edit_document, load_text
from voice_blueprint import Deployment, DeploymentFileError

LOAD = {"calls": 60, "peak_factor": 2}


def sandbox(folder: Path, number: int, **edits: object) -> Deployment:
    of_cell: Edits = {"load": LOAD, "cells": {"calls": 100, "number": number}, **edits}
    return load_text(edit_document(of_cell, (DEPLOYMENTS / "sandbox.yaml").read_text(encoding="utf-8")), folder)


def test_a_cell_has_its_own_name_and_lists_the_other_cells(tmp_path: Path) -> None:
    (cell,) = sandbox(tmp_path, 2).split_by_region()
    assert cell.name == "sandbox-2"
    assert cell.aws.edge.domain
    assert cell.aws.edge.domain.name == "c2.voice.example.com"
    assert cell.list_cell_domains("c2.voice.example.com") == tuple(
        f"c{number}.voice.example.com" for number in (1, 2, 3)
    )


def test_a_domain_that_contains_a_cell_prefix_is_not_truncated(tmp_path: Path) -> None:
    cell = sandbox(tmp_path, 2, **{"aws.edge.domain.name": "abc2.example.com"})
    assert cell.list_cell_domains("c2.abc2.example.com")[2] == "c3.abc2.example.com"


def test_a_cell_number_beyond_the_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeploymentFileError, match="cell 4 does not exist: the load requires 3 per region"):
        sandbox(tmp_path, 4)
