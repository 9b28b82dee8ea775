"""The named mutants still apply to the sources. `make test-mutants` takes too long to run on every change."""

from pathlib import Path

import pytest

from tests.mutants.azure import AZURE_MUTANTS
from tests.mutants.equivalent import EQUIVALENT, Equivalent
from tests.mutants.images import IMAGE_MUTANTS
from tests.mutants.named import AWS_MUTANTS, Named

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("each", [*AWS_MUTANTS, *AZURE_MUTANTS, *IMAGE_MUTANTS], ids=lambda each: each.what)
def test_the_original_text_of_a_named_mutant_is_in_its_file(each: Named) -> None:
    assert each.old in (ROOT / each.file).read_text(encoding="utf-8")
    assert all((ROOT / tests.partition("::")[0]).exists() for tests in each.tests)


@pytest.mark.parametrize("each", EQUIVALENT, ids=lambda each: each.old)
def test_the_text_of_an_equivalent_mutant_is_unique(each: Equivalent) -> None:
    assert (ROOT / each.file).read_text(encoding="utf-8").count(each.old) == 1
    assert each.why
