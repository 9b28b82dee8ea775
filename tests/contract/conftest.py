"""A sandbox deployment's templates, to be changed by hand."""

import copy

import pytest

from tests.contract.sources import SANDBOX
from tests.contract.templates import Template


@pytest.fixture
def templates() -> dict[str, Template]:
    return copy.deepcopy(SANDBOX)
