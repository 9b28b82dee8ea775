"""A mutable copy of a sandbox deployment's templates, and a store for programs."""

import copy

import pytest

from images.conftest import store, store_server
from tests.contract.sources import SANDBOX
from tests.contract.templates import Template

__all__ = ["store", "store_server", "templates"]


@pytest.fixture
def templates() -> dict[str, Template]:
    return copy.deepcopy(SANDBOX)
