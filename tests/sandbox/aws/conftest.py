"""One local AWS for all tests of this folder, and stacks that go when a test ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.aws.process import LocalAws
from tests.sandbox.aws.stacks import Deployed


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as local:
        yield local


_numbers = itertools.count(1)


@pytest.fixture
def stack(aws: LocalAws) -> Iterator[Deployed]:
    """A stack yet to be created, with a name of its own; deleted afterwards if the test has not."""
    deployed = Deployed(aws, f"test-{next(_numbers)}")
    yield deployed
    live = [item["StackName"] for item in deployed.cloudformation.describe_stacks()["Stacks"]]
    if deployed.name in live:
        deployed.cloudformation.update_termination_protection(
            StackName=deployed.name, EnableTerminationProtection=False
        )
        deployed.delete()


@pytest.fixture
def network() -> dict[str, Any]:
    """A VPC with two subnets, for whatever needs one."""
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "SubnetA": _subnet("10.0.0.0/20", 0),
        "SubnetB": _subnet("10.0.16.0/20", 1),
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "test", "VpcId": {"Ref": "Vpc"}},
        },
    }


def _subnet(cidr: str, zone: int) -> dict[str, Any]:
    return {
        "Type": "AWS::EC2::Subnet",
        "Properties": {
            "VpcId": {"Ref": "Vpc"},
            "CidrBlock": cidr,
            "AvailabilityZone": {"Fn::Select": [zone, {"Fn::GetAZs": ""}]},
        },
    }
