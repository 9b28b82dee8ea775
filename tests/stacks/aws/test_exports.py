"""Exports of a stack do not depend on the file, because CloudFormation cannot delete an export in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.blueprint.documents import ABSENT, Edits, parse_yaml
from tests.synthesized import ROOT, Stacks, edited_sandbox, shipped

PRODUCERS = ("network", "registry", "state", "vad", "asr", "edge")
"""Stacks that others import from, in deployment order."""
FLEETS: list[dict[str, Any]] = parse_yaml((ROOT / "tests/deployments/sandbox.yaml").read_text(encoding="utf-8"))["aws"][
    "asr"
]


def instance_type_edit(index: int, instance_type: str) -> dict[str, Any]:
    return {f"aws.asr.{index}.instance_type": instance_type}


@cache
def exports(name: str) -> dict[str, str]:
    return exported_values(shipped(name))


def exported_values(stacks: Stacks) -> dict[str, str]:
    """Return the value of each export by tier and logical id."""
    return {
        f"{tier} {id_}": json.dumps(output["Value"], sort_keys=True)
        for tier in PRODUCERS
        for id_, output in stacks[tier].template["Outputs"].items()
        if "Export" in output
    }


def imported_names(node: object) -> Iterator[str]:
    match node:
        case {"Fn::ImportValue": str(name)}:
            yield name
        case dict():
            for item in node.values():
                yield from imported_names(item)
        case list():
            for item in node:
                yield from imported_names(item)


REMOVALS: dict[str, Edits] = {
    "every fleet but one": {"aws.asr": FLEETS[2:]},
    "the Neuron fleets": {"aws.asr": FLEETS[2:], "images.asr-neuron": ABSENT},
    "every GPU fleet": {"aws.asr": FLEETS[:2]},
    "the agents": {"aws.agents": ABSENT},
    "host images": {"aws.host_images": ABSENT},
    "artifacts": {"aws.asr.0.artifacts": True},
    "all of these": {
        "aws.asr": FLEETS[2:],
        "aws.agents": ABSENT,
        "aws.host_images": ABSENT,
        "aws.vad.data_path.mode": "vfio",
    },
}


@pytest.mark.parametrize("leaves", REMOVALS)
def test_exports_do_not_depend_on_importers(leaves: str, tmp_path: Path) -> None:
    assert exported_values(edited_sandbox(REMOVALS[leaves], tmp_path)) == exports("sandbox")


def test_files_with_the_same_number_of_zones_have_the_same_exports() -> None:
    assert exports("production-us-east-1").keys() == exports("sandbox").keys()


def test_imports_come_from_stacks_that_cannot_be_removed() -> None:
    """Only the alarms import from the agents' stack, and they are deployed before it can be deleted."""
    stacks = shipped("sandbox")
    importers = {
        (name.partition(":")[0].removeprefix("sandbox-"), tier)
        for tier, stack in stacks.items()
        for name in imported_names(stack.template["Resources"])
    }
    assert {producer for producer, _ in importers} == {*PRODUCERS, "agents"}
    assert {tier for producer, tier in importers if producer == "agents"} == {"observability"}
