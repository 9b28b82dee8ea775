"""Pipelines that bake host images."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import voice_userdata
from tests.synthesized import Stack, Stacks, edited_sandbox, shipped
from voice_blueprint.aws import machine_images
from voice_constructs.aws import host_images
from voice_sandbox.aws.adapters.schemas import list_create_only_paths


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


def recipe_names(stacks: Stacks) -> dict[str, str]:
    """Return the names of the recipes by fleet."""
    recipes = [recipe["Name"] for recipe in stacks["host-images"].properties("ImageBuilder::ImageRecipe")]
    return {name.split("-")[1]: name for name in recipes}


def renamed_fleets(sandbox: Stacks, tmp_path: Path, edits: dict[str, Any]) -> set[str]:
    """Return the fleets whose recipe and component have another name in an edited file or in changed code."""
    old, new = sandbox["host-images"], edited_sandbox(edits, tmp_path)["host-images"]
    names = [each["Name"] for each in new.properties("ImageBuilder::Component")]
    assert sorted(names) == sorted(recipe_names({"host-images": new}).values())
    newer = recipe_names({"host-images": new})
    return {fleet for fleet, name in recipe_names({"host-images": old}).items() if newer[fleet] != name}


def test_changed_content_gives_a_new_recipe(sandbox: Stacks, tmp_path: Path) -> None:
    """Recipes are immutable, so changed content under the same name would be rejected."""
    assert renamed_fleets(sandbox, tmp_path, {"images.vad-dataplane": f"sha256:{'a' * 64}"}) == {"vad"}
    assert renamed_fleets(sandbox, tmp_path, {"aws.vad.root_volume_gib": 99}) == {"vad"}
    assert renamed_fleets(sandbox, tmp_path, {"aws.host_images": {"vfio": True}}) == {"vad"}
    assert renamed_fleets(sandbox, tmp_path, {}) == set()


ALL_FLEETS = {"vad", "inf2", "trn1", "p5"}


def test_a_new_base_image_gives_a_new_recipe(sandbox: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine_images.PUBLIC_IMAGE_PARAMETERS, "cpu", "/aws/service/another/image_id")
    assert renamed_fleets(sandbox, tmp_path, {}) == {"vad"}


def test_another_root_device_gives_a_new_recipe(
    sandbox: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_images, "ROOT_DEVICE", "/dev/sda1")
    assert renamed_fleets(sandbox, tmp_path, {}) == ALL_FLEETS


def test_a_changed_check_gives_a_new_component(
    sandbox: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document contains more than the script that bakes: the check, the phases and the reboot."""
    render = voice_userdata.render_bake_script
    monkeypatch.setattr(
        voice_userdata, "render_bake_script", lambda bake, step: render(bake, step) + ("\n:" if step == "check" else "")
    )
    assert renamed_fleets(sandbox, tmp_path, {}) == ALL_FLEETS


@pytest.mark.parametrize("kind", ["Component", "ImageRecipe"])
def test_the_name_covers_every_property_whose_change_replaces(sandbox: Stacks, kind: str) -> None:
    """A property that is added later must be added to the fingerprint as well."""
    fixed = {path[0] for path in list_create_only_paths(f"AWS::ImageBuilder::{kind}")}
    named = {"Component": {"Data", "Platform"}, "ImageRecipe": {"BlockDeviceMappings", "Components", "ParentImage"}}
    for properties in sandbox["host-images"].properties(f"ImageBuilder::{kind}"):
        assert fixed & properties.keys() == named[kind] | {"Name", "Version"}


def test_builders_match_the_architecture_of_the_fleet(sandbox: Stacks) -> None:
    builders = {
        builder["Name"]: builder["InstanceTypes"]
        for builder in sandbox["host-images"].properties("ImageBuilder::InfrastructureConfiguration")
    }
    assert builders["sandbox-vad"] == ["c8g.12xlarge"]
    assert builders["sandbox-p5"] == ["m7i.2xlarge"]
