"""The locked requirements match the catalogue, and a layer cannot replace packages of its base."""

import re

import pytest

from voice_blueprint import catalog
from voice_blueprint.images import BuiltImage
from voice_ops.images.locks import (
    BASE_FILE,
    PYTHON_VERSION_BY_BASE,
    create_version_pins,
    list_images_with_requirements,
    parse_lock,
    select_layer_packages,
)

IMAGES_WITH_LOCKS = list_images_with_requirements()
BASE_PACKAGES = re.compile(
    r"^(vllm|torch.*|triton|nvidia-.*|flashinfer.*|xgrammar|transformers|tokenizers|numba|cuda-toolkit)$"
)


@pytest.mark.parametrize("spec", [spec for spec in IMAGES_WITH_LOCKS if spec.versions], ids=lambda spec: spec.name)
def test_locks_match_the_versions_of_the_catalogue(spec: BuiltImage) -> None:
    found = parse_lock((spec.folder / "requirements.txt").read_text(encoding="utf-8"))
    wanted = dict(pin.split("==") for pin in create_version_pins(spec))
    if (spec.folder / BASE_FILE).exists():
        del wanted[(spec.folder / BASE_FILE).read_text(encoding="utf-8").split()[-1]]
    assert wanted
    for package, version in wanted.items():
        assert found[package][0] == version, (
            f"voice_blueprint/catalog/engines.yaml has another; run `make lock`: {package} is {found[package][0]}"
        )


@pytest.mark.parametrize("spec", IMAGES_WITH_LOCKS, ids=lambda spec: spec.name)
def test_every_locked_package_has_its_hashes(spec: BuiltImage) -> None:
    text = (spec.folder / "requirements.txt").read_text(encoding="utf-8")
    assert len(parse_lock(text)) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 20
    assert all("--hash=sha256:" in block for _, block in parse_lock(text).values())


def test_images_that_install_python_packages_have_a_base_with_python() -> None:
    assert IMAGES_WITH_LOCKS
    assert {spec.bases["BASE_IMAGE"] for spec in IMAGES_WITH_LOCKS} <= PYTHON_VERSION_BY_BASE.keys()


def test_the_layer_on_vllm_does_not_change_packages_of_the_base() -> None:
    spec = next(spec for spec in IMAGES_WITH_LOCKS if spec.name == "asr-vllm")
    names = parse_lock((spec.folder / "requirements.txt").read_text(encoding="utf-8"))
    assert [name for name in names if BASE_PACKAGES.match(name)] == []
    # Packages for audio input, the KV pool and KV transfer, built for the CUDA version of the base.
    assert {"soundfile", "soxr", "scipy", "lmcache", "cupy-cuda13x", "nixl", "nixl-cu13"} <= names.keys()
    assert catalog.engines()["vllm"].source.endswith("CUDA 13)")


def test_a_layer_contains_missing_or_different_packages() -> None:
    base = parse_lock("a==1 \\\n    --hash=sha256:aa\nb==1 \\\n    --hash=sha256:bb\n")
    wanted = parse_lock(
        "a==1 \\\n    --hash=sha256:aa\nb==0.9 \\\n    --hash=sha256:b9\nc==2 \\\n    --hash=sha256:cc\n"
    )
    assert list(select_layer_packages(wanted, base)) == ["b", "c"]
    assert select_layer_packages(wanted, base)["b"] == ("0.9", "b==0.9 \\\n    --hash=sha256:b9\n")
