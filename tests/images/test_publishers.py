"""Rendered containers of upstream images match the table of their Dockerfiles and release workflows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from tests.blueprint.launch.samples import VOXTRAL_LOAD, p5
from tests.images.dockerfile import Dockerfile, read
from tests.stacks.azure.manifests import DIGESTS, Pod, pods, production, workloads
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint import catalog
from voice_blueprint.catalog.publishers import PublishedImage, published_images
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.engines.launch.services import create_fleet_launcher, create_preparation_launcher
from voice_blueprint.images import BuiltImage, MirroredImage, find_port, load_image_specs

ROWS = published_images()
MIRRORED_IMAGES = {spec.name: spec for spec in load_image_specs().values() if isinstance(spec, MirroredImage)}
IMAGES_BY_BASE = {
    spec.name: (spec, ROWS[engine])
    for spec in load_image_specs().values()
    if isinstance(spec, BuiltImage)
    for engine in spec.bases.values()
    if engine in ROWS
}
"""Images of this project with an upstream base image."""
FILES = {
    "cells": production(),
    "callers": edit_deployment({"images": DIGESTS}, "production-azure"),
}
IMAGE_BY_DIGEST = {digest: Image(name) for name, digest in DIGESTS.items()}

Found = tuple[Pod, dict[str, Any], PublishedImage]


def containers(name: str) -> Iterator[tuple[Pod, dict[str, Any], Image]]:
    for pod in pods(workloads(FILES[name])):
        for container in pod.containers:
            yield pod, container, IMAGE_BY_DIGEST[container["image"].partition("@")[2]]


def rendered_containers(name: str, *, mirrored: bool) -> Iterator[Found]:
    """Yield the containers of upstream images and of images based on one."""
    for pod, container, image in containers(name):
        if mirrored and image in MIRRORED_IMAGES:
            yield pod, container, ROWS[MIRRORED_IMAGES[image].upstream]
        elif not mirrored and image in IMAGES_BY_BASE:
            yield pod, container, IMAGES_BY_BASE[image][1]


def packages(dockerfile: Dockerfile) -> set[str]:
    """Return the distribution packages that a Dockerfile adds to its base."""
    text = " ".join(each.text for each in dockerfile.all("RUN"))
    return set(re.findall(r'"([a-z0-9-]+)=\$\{', text))


def start_problems(container: dict[str, Any], row: PublishedImage, added: set[str]) -> list[str]:
    """Return why a container's command would not start; Kubernetes' ``command`` replaces the image's ENTRYPOINT."""
    command = container.get("command") or list(row.entrypoint)
    if not command:
        return [f"{container['name']} has no command, and {row.engine} has no entrypoint"]
    program = command[0]
    if row.contains_program(program) or program in added or program == "/".join(row.entrypoint[:1]):
        return []
    return [f"{container['name']} starts {program}, which is not on the PATH of {row.engine} ({row.file})"]


def user_problems(pod: Pod, container: dict[str, Any], row: PublishedImage) -> list[str]:
    """Return the missing permissions of the container's user."""
    own, shared = container.get("securityContext", {}), pod.spec.get("securityContext", {})
    if own.get("privileged") or own.get("runAsUser", shared.get("runAsUser")) == 0:
        return []
    if row.unprivileged is None:
        return [f"{row.engine} needs root, and {container['name']} runs as another user"]
    if shared.get("runAsUser") != UNPRIVILEGED_UID:
        return [f"{container['name']} runs as {shared.get('runAsUser')}"]
    values = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    missing = [f"{container['name']} lacks {name}" for name in row.unprivileged.variables if not values.get(name)]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    home = values.get("HOME", "")
    if own.get("readOnlyRootFilesystem") and "HOME" in values and not any(home.startswith(each) for each in mounts):
        missing.append(f"HOME of {container['name']} is {home}, which no volume makes writable")
    return missing


def health_problems(container: dict[str, Any], row: PublishedImage) -> list[str]:
    """Return the probes with another path or port than the program serves."""
    found = []
    argv = [*container.get("command", []), *container.get("args", [])]
    listening = {str(row.port.default)} if row.port else set()
    if row.port and row.port.flag in argv:
        listening = {argv[argv.index(row.port.flag) + 1].rpartition(":")[2]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        if asked := container.get(name, {}).get("httpGet"):
            if asked["path"] != row.health:
                found.append(
                    f"{name} of {container['name']} asks for {asked['path']}; {row.engine} serves {row.health}"
                )
            if str(asked["port"]) not in listening:
                found.append(f"{name} of {container['name']} asks port {asked['port']}, not {listening}")
    return found


def all_problems(found: Found, added: set[str]) -> list[str]:
    pod, container, row = found
    return [
        *start_problems(container, row, added),
        *user_problems(pod, container, row),
        *health_problems(container, row),
    ]


# --- The table ------------------------------------------------------------------------------------------


def test_every_upstream_image_has_a_row_and_every_row_an_image() -> None:
    assert set(ROWS) == {name for name, engine in catalog.engines().items() if engine.upstream_image}, (
        "describe the publisher's image in voice_blueprint/catalog/publishers.yaml"
    )


@pytest.mark.parametrize("name", ROWS)
def test_the_tag_is_pushed_by_the_release_workflow(name: str) -> None:
    engine, row = catalog.engines()[name], ROWS[name]
    assert engine.upstream_image is not None
    tag = engine.upstream_image.rpartition(":")[2]
    assert tag == row.tag.format(version=engine.version), f"{row.tag_file} of {row.repository} pushes no tag {tag}"


@pytest.mark.parametrize("name", ROWS)
def test_a_row_describes_the_pinned_version(name: str) -> None:
    version = catalog.engines()[name].version
    assert ROWS[name].version == version, (
        f"read {ROWS[name].file} of {name} {version} and write its row of voice_blueprint/catalog/publishers.yaml again"
    )


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_another_commit_is_reported(name: str) -> None:
    row = ROWS[name]
    assert row.is_from_release == (row.nearest is None)


# --- What is rendered -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_containers_of_upstream_images_start(name: str) -> None:
    found = list(rendered_containers(name, mirrored=True))
    assert {row.engine for _, _, row in found} == {
        MIRRORED_IMAGES[image].upstream for _, _, image in containers(name) if image in MIRRORED_IMAGES
    }
    assert [problem for each in found for problem in all_problems(each, set())] == []


@pytest.mark.parametrize("name", FILES)
def test_containers_with_upstream_base_images_start(name: str) -> None:
    found = list(rendered_containers(name, mirrored=False))
    assert found
    added = {image: packages(read(spec.folder)) for image, (spec, _) in IMAGES_BY_BASE.items()}
    for _, container, image in containers(name):
        if image in IMAGES_BY_BASE:
            assert start_problems(container, IMAGES_BY_BASE[image][1], added[image]) == []


def test_hosts_with_upstream_base_images_start() -> None:
    row = IMAGES_BY_BASE[Image.ASR_VLLM][1]
    fleet = p5("voxtral-small-24b", VOXTRAL_LOAD)
    assert row.contains_program(create_fleet_launcher(fleet).build_command()[0])
    assert row.contains_program(create_preparation_launcher(fleet).build_command()[0])


@pytest.mark.parametrize("image", IMAGES_BY_BASE)
def test_dockerfiles_only_use_programs_of_their_base(image: Image) -> None:
    spec, row = IMAGES_BY_BASE[image]
    dockerfile = read(spec.folder)
    used = {
        program
        for each in dockerfile.all("RUN")
        for program in re.findall(r"(?:^|&& |\()\s*(apt-get|uv|python3|useradd)\b", each.text)
    }
    assert {program for program in used if not row.contains_program(program)} == set()
    assert row.user in {"0", "root", "root:root", "0:0"}, "its RUN needs root, and the base has another user"
    # Entrypoint and working directory of the base have no effect.
    assert [each.words for each in dockerfile.all("ENTRYPOINT")] == [[]]
    assert dockerfile.all("WORKDIR")
    (command,) = dockerfile.all("CMD")
    assert row.contains_program(command.words[0])
    homes = [word for each in dockerfile.all("ENV") for word in each.text.split() if word.startswith("HOME=")]
    assert homes == [f"HOME={spec.cache_dir}"]
    assert "useradd" in used, "torch asks for the name of the user"


@pytest.mark.parametrize("name", MIRRORED_IMAGES)
def test_specified_ports_are_rendered(name: Image) -> None:
    """The health check in the specification of a mirrored image uses the path of its publisher."""
    row, health = ROWS[MIRRORED_IMAGES[name].upstream], MIRRORED_IMAGES[name].health
    path = getattr(health, "path", None)
    assert path == row.health
    if path is not None:
        assert find_port(getattr(health, "port")).number  # noqa: B009  one of a union's members


# --- A changed row ---------------------------------------------------------------------------------------


def changes(row: PublishedImage) -> Iterator[dict[str, Any]]:
    """Yield changes of a row after which the rendered container would fail."""
    moved = {program: f"/opt/elsewhere/{program}" for program in row.programs}
    yield {"programs": moved, "entrypoint": ()}
    if row.unprivileged:
        yield {"unprivileged": None}
        yield {"unprivileged": row.unprivileged.model_copy(update={"variables": ("SOME_OTHER_HOME",)})}
    if row.health and row.port:
        yield {"health": "/ready"}
        yield {"port": row.port.model_copy(update={"flag": None, "default": 1})}


@pytest.mark.parametrize("engine", [spec.upstream for spec in MIRRORED_IMAGES.values()])
def test_a_changed_row_is_detected(engine: str) -> None:
    found = [each for each in rendered_containers("cells", mirrored=True) if each[2].engine == engine]
    assert found
    for change in changes(ROWS[engine]):
        broken = ROWS[engine].model_copy(update=change)
        problems = [problem for pod, container, _ in found for problem in all_problems((pod, container, broken), set())]
        assert problems, change


def test_a_program_outside_the_path_is_detected() -> None:
    """production-stack's router is in /opt/venv/bin, which its Dockerfile (66b60661) puts on no PATH."""
    router = ROWS["lmcache"].model_copy(
        update={"path": (), "programs": {"vllm-router": "/opt/venv/bin/vllm-router"}, "engine": "router"}
    )
    container = {"name": "router", "command": ["vllm-router", "--port", "8080"]}
    assert start_problems(container, router, set()) != []
    assert start_problems(container | {"command": ["/opt/venv/bin/vllm-router"]}, router, set()) == []


@pytest.mark.parametrize("field", ["commit", "tag_commit"])
def test_a_row_contains_complete_commit_hashes(field: str) -> None:
    row = next(iter(ROWS.values()))
    with pytest.raises(ValidationError, match=field):
        PublishedImage.model_validate(row.model_dump() | {field: "main"})
