"""The named mistakes can still be made: `make test-mutants` itself is too long for every change."""

from pathlib import Path

import pytest

from tests.mutants.azure import UNDONE
from tests.mutants.named import NAMED, Named

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("each", [*NAMED, *UNDONE], ids=lambda each: each.what)
def test_the_text_that_a_named_mutant_changes_still_stands_in_its_file(each: Named) -> None:
    assert each.old in (ROOT / each.file).read_text(encoding="utf-8")
    assert all((ROOT / tests.partition("::")[0]).exists() for tests in each.tests)
