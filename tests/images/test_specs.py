"""Every image.yaml matches the contract, the catalogue, the constructs, and its Dockerfile."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.images.dockerfile import read
from tests.nonempty import nonempty
from voice_blueprint import catalog
from voice_blueprint.contract.environment import VARIABLES_BY_IMAGE
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.engines.launch.pd_router import CellProxy
from voice_blueprint.engines.launch.services import HOST_CACHE_DIR
from voice_blueprint.file.model.azure import AggregatedService, ChatService, LmcachePool, PrefillDecodeCell, TtsService
from voice_blueprint.hosts import AGENT_IMAGES, AWS_IMAGES, CALLER_IMAGES, CLUSTER_IMAGES, list_service_images
from voice_blueprint.images import (
    IMAGES_FOLDER,
    SPEC_FILE,
    BuiltImage,
    CommandHealthCheck,
    MirroredImage,
    NoHealthCheck,
    find_port,
    load_base_images,
    load_image_spec,
    load_image_specs,
)

BUILT_IMAGES = [spec for spec in load_image_specs().values() if isinstance(spec, BuiltImage)]
MIRRORED_IMAGES = [spec for spec in load_image_specs().values() if isinstance(spec, MirroredImage)]


def missing_definitions(image: Image, running: Collection[Image]) -> list[str]:
    """Return the missing definitions of an image of the contract, one sentence per file."""
    wanted = [
        (image in load_image_specs(), f"describe it in images/{image}/{SPEC_FILE}"),
        (
            image in VARIABLES_BY_IMAGE,
            f"say what it reads: Image.{image.name} in voice_blueprint/contract/environment.py",
        ),
        (image in running, f"say who runs it: Image.{image.name} in voice_blueprint/hosts.py"),
    ]
    return [sentence for there, sentence in wanted if not there]


@pytest.mark.parametrize("image", Image)
def test_every_image_is_complete(image: Image) -> None:
    assert missing_definitions(image, {*AWS_IMAGES, *azure_images(), *AGENT_IMAGES}) == []


def test_every_folder_with_a_dockerfile_or_a_spec_is_an_image_of_the_contract() -> None:
    folders = {file.parent.name for pattern in ("Dockerfile", SPEC_FILE) for file in IMAGES_FOLDER.glob(f"*/{pattern}")}
    assert folders <= {image.value for image in Image}


@pytest.mark.parametrize("spec", BUILT_IMAGES, ids=lambda spec: spec.name)
def test_a_built_image_has_a_dockerfile(spec: BuiltImage) -> None:
    assert (spec.folder / "Dockerfile").is_file()


@pytest.mark.parametrize("spec", MIRRORED_IMAGES, ids=lambda spec: spec.name)
def test_the_folder_of_a_mirrored_image_contains_only_its_spec(spec: MirroredImage) -> None:
    assert [file.name for file in (IMAGES_FOLDER / spec.name).iterdir()] == [SPEC_FILE]


def azure_images() -> set[Image]:
    kinds: tuple[Any, ...] = (PrefillDecodeCell, AggregatedService, ChatService, TtsService)
    services = [kind.model_construct(lmcache=LmcachePool.model_construct()) for kind in kinds]
    return {*CLUSTER_IMAGES, *CALLER_IMAGES, *(image for service in services for image in list_service_images(service))}


def test_the_clouds_of_an_image_match_the_deployments_that_run_it() -> None:
    for image, spec in nonempty(load_image_specs().items()):
        running = {"aws"} if image in (*AWS_IMAGES, *AGENT_IMAGES) else set()
        running |= {"azure"} if image in {*azure_images(), *AGENT_IMAGES} else set()
        assert set(spec.clouds) == running, (
            f"clouds in images/{image}/{SPEC_FILE} are not those of voice_blueprint/hosts.py"
        )


def test_users_and_cache_folders_match_the_launchers() -> None:
    for spec in BUILT_IMAGES:
        assert spec.root_because or spec.user_id == UNPRIVILEGED_UID
        assert spec.cache_dir in {None, HOST_CACHE_DIR}
        dockerfile = (spec.folder / "Dockerfile").read_text(encoding="utf-8")
        assert set(re.findall(r"/var/cache/voice\b", dockerfile)) <= {spec.cache_dir}


def test_the_front_reads_its_file_at_the_path_of_the_launcher() -> None:
    spec = load_image_specs()[Image.PD_ROUTER]
    assert isinstance(spec, BuiltImage)
    [command] = read(spec.folder).all("CMD")
    assert tuple(command.words) == CellProxy(1, 2, 3, 4).build_command()


def test_vllm_and_vllm_omni_never_share_an_image() -> None:
    for spec in BUILT_IMAGES:
        assert not {"vllm", "vllm-omni"} <= {*spec.versions.values(), *spec.bases.values()}, spec.name


def test_an_engine_pins_its_base_image() -> None:
    """An image on an engine's image also passes that to its Dockerfile, which checks the base."""
    for spec in BUILT_IMAGES:
        for base in spec.bases.values():
            engine = catalog.engines().get(base)
            assert engine is None or engine.package is None or base in spec.versions.values(), spec.name


def test_every_budget_and_package_has_a_source() -> None:
    for spec in load_image_specs().values():
        assert len(spec.size.source) > 10
    for spec in BUILT_IMAGES:
        assert all(len(package.source) > 10 for package in spec.packages.values())


def test_base_images_are_distributions_rather_than_engines() -> None:
    assert not load_base_images().keys() & catalog.engines().keys()


def test_health_endpoint_is_served() -> None:
    for spec in nonempty(load_image_specs().values()):
        if not isinstance(spec.health, CommandHealthCheck | NoHealthCheck):
            assert spec.health.port in spec.ports, spec.name


def test_port_names_are_in_the_contract() -> None:
    assert find_port("cluster_contract.ENGINE_HTTP").number == 8000
    for wrong in ("cluster_contract.NAMESPACE", "contract.NONE", "ENGINE_HTTP", "os.PORT"):
        with pytest.raises(ValueError, match="is no port of"):
            find_port(wrong)


MISTAKES = [
    ("asr-vllm", {"versions": {"VLLM_VERSION": "vlm"}}, "vlm is no engine in the catalogue"),
    ("asr-vllm", {"versions": {"VLLM_VERSION": "0.33.0"}}, "0.33.0 is no engine"),
    ("asr-vllm", {"bases": {"BASE_IMAGE": "pd-router"}}, "no engine with an upstream image"),
    ("asr-vllm", {"versions": {"BASE_IMAGE": "vllm"}}, "one build argument is given two meanings"),
    ("asr-vllm", {"ports": ["8000"]}, "is no port of"),
    ("asr-vllm", {"platforms": ["linux/amd46"]}, "linux/arm64"),
    ("asr-vllm", {"user_id": 0}, "needs root_because"),
    ("asr-vllm", {"size": {"budget_gib": 0, "source": "x"}}, "greater than 0"),
    ("asr-vllm", {"clouds": ["gcp"]}, "clouds"),
    ("asr-vllm", {"health": {}}, "health"),
    ("asr-vllm", {"packages": {"X": {"name": "x", "version": "2.*", "source": "x"}}}, "packages"),
    ("lmcache", {"versions": {"X": "vllm"}}, "Extra inputs are not permitted"),
    ("lmcache", {"upstream": "nixl"}, "no engine with an upstream image"),
    ("router", {"name": "gateway"}, "describes gateway"),
    ("lmcache", {"tag": "latest"}, "Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("image", "change", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_an_invalid_spec_is_refused(tmp_path: Path, image: str, change: dict[str, object], message: str) -> None:
    document = yaml.safe_load((IMAGES_FOLDER / image / SPEC_FILE).read_text(encoding="utf-8")) | change
    file = tmp_path / image / SPEC_FILE
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises((ValidationError, ValueError), match=re.escape(message)):
        load_image_spec(file)
