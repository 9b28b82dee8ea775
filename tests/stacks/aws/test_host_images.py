"""Pipelines that bake host images."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.synthesized import Stack, Stacks, edited_sandbox, shipped


@pytest.fixture(scope="module")
def sandbox() -> Stacks:
    return shipped("sandbox")


def scripts(stack: Stack, fleet: str) -> dict[str, str]:
    """Return a fleet's scripts by step, without values known only at deployment."""
    (data,) = [
        component["Data"]
        for component in stack.properties("ImageBuilder::Component")
        if f"-{fleet}-" in component["Name"]
    ]
    text = "".join(part if isinstance(part, str) else "" for part in data["Fn::Join"][1])
    document: dict[str, Any] = json.loads(text)
    steps = [step for phase in document["phases"] for step in phase["steps"]]
    return {step["name"]: "".join(step["inputs"].get("commands", [])) for step in steps}


def test_every_fleet_has_a_pipeline_that_pulls_its_containers(sandbox: Stacks) -> None:
    stack = sandbox["host-images"]
    names = {pipeline["Name"] for pipeline in stack.properties("ImageBuilder::ImagePipeline")}
    assert names == {f"sandbox-{fleet}" for fleet in ("vad", "inf2", "trn1", "p5")}
    assert [*scripts(stack, "vad")] == ["bake", "reboot", "check"]
    pulled = {
        fleet: re.findall(r"\[([a-z-]+)\]=\S+@sha256:(\d)", scripts(stack, fleet)["bake"]) for fleet in ("vad", "p5")
    }
    assert pulled == {
        "vad": [("vad-dataplane", "2"), ("telemetry", "5")],
        "p5": [("whisper-engine", "3"), ("telemetry", "5")],
    }


def test_huge_pages_are_only_baked_for_vad_hosts(sandbox: Stacks) -> None:
    assert "PAGE_COUNT=256" in scripts(sandbox["host-images"], "vad")["bake"]
    assert "PAGE_COUNT=" not in scripts(sandbox["host-images"], "inf2")["bake"]


def test_vfio_is_baked_if_configured(sandbox: Stacks, tmp_path: Path) -> None:
    assert "VFIO_DRIVERS=" not in scripts(sandbox["host-images"], "vad")["bake"]
    asked = edited_sandbox({"aws.host_images": {"vfio": True}}, tmp_path)["host-images"]
    assert "VFIO_DRIVERS=" in scripts(asked, "vad")["bake"]
    assert "VFIO_DRIVERS=" not in scripts(asked, "inf2")["bake"]


def test_changed_content_gives_a_new_recipe(sandbox: Stacks, tmp_path: Path) -> None:
    """Recipes are immutable, so changed content under the same name would be rejected."""

    def names(stacks: Stacks) -> dict[str, str]:
        recipes = [recipe["Name"] for recipe in stacks["host-images"].properties("ImageBuilder::ImageRecipe")]
        return {name.split("-")[1]: name for name in recipes}

    newer = names(edited_sandbox({"images.vad-dataplane": f"sha256:{'a' * 64}"}, tmp_path))
    assert {fleet for fleet, name in names(sandbox).items() if newer[fleet] != name} == {"vad"}


def test_builders_match_the_architecture_of_the_fleet(sandbox: Stacks) -> None:
    builders = {
        builder["Name"]: builder["InstanceTypes"]
        for builder in sandbox["host-images"].properties("ImageBuilder::InfrastructureConfiguration")
    }
    assert builders["sandbox-vad"] == ["c8g.12xlarge"]
    assert builders["sandbox-p5"] == ["m7i.2xlarge"]
