"""One local AWS for all tests of this folder, and stacks that go when a test ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.aws.process import LocalAws
from tests.sandbox.aws.samples import ZONE
from tests.sandbox.aws.stacks import Deployed

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sockets of the replication groups' processes are."""
    return tmp_path_factory.mktemp("aws")


@pytest.fixture(scope="session")
def aws(stores: Path) -> Iterator[LocalAws]:
    with LocalAws(stores / "aws.log", hosted_zone=(ZONE, "example.com"), stores=stores) as local:
        yield local


@pytest.fixture
def stack(aws: LocalAws) -> Iterator[Deployed]:
    """A stack yet to be created, with a name of its own; deleted afterwards if the test has not."""
    deployed = Deployed(aws, f"test-{next(_numbers)}")
    yield deployed
    if deployed.exists:
        deployed.cloudformation.update_termination_protection(
            StackName=deployed.name, EnableTerminationProtection=False
        )
        deployed.delete()
