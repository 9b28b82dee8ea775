"""Every adapter is exercised: the other tests deploy, change and delete these samples."""

from __future__ import annotations

from sandbox.aws.adapters.base import ADAPTERS
from tests.sandbox.aws.samples import ALL


def test_every_adapter_is_deployed_by_a_sample() -> None:
    deployed = {body["Type"] for sample in ALL for body in sample().values()}
    assert set(ADAPTERS) - deployed == set()
