"""A local AWS for all tests of this folder, and stacks that are deleted after each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.aws.samples import ZONE
from tests.sandbox.aws.stacks import Deployed
from voice_sandbox.aws.process import LocalAws

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the sockets of Valkey processes."""
    return tmp_path_factory.mktemp("aws")


@pytest.fixture(scope="session")
def aws(stores: Path) -> Iterator[LocalAws]:
    with LocalAws(stores / "aws.log", hosted_zone=(ZONE, "example.com"), stores=stores) as local:
        yield local


@pytest.fixture
def stack(aws: LocalAws) -> Iterator[Deployed]:
    """Return an uncreated stack with a unique name, and delete it afterwards."""
    deployed = Deployed(aws, f"test-{next(_numbers)}")
    yield deployed
    if deployed.exists:
        deployed.cloudformation.update_termination_protection(
            StackName=deployed.name, EnableTerminationProtection=False
        )
        deployed.delete()
