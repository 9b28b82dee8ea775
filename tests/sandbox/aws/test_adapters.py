"""Every adapter creates, shows what was asked for, changes it, and leaves nothing behind."""

from __future__ import annotations

from sandbox.aws.adapters import ADAPTERS
from tests.sandbox.aws.samples import ALL


def test_every_adapter_is_deployed_by_a_sample() -> None:
    deployed = {body["Type"] for sample in ALL for body in sample().values()}
    assert set(ADAPTERS) - deployed == set()
