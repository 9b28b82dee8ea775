"""The locked requirements agree with the catalogue, and a layer cannot replace its base."""

import re

import pytest

from blueprint import catalog
from blueprint.images import BuiltImage
from ops.images.locks import BASE, PYTHONS, layer, locked, pins, with_requirements

LOCKED = with_requirements()
THE_BASES_OWN = re.compile(
    r"^(vllm|torch.*|triton|nvidia-.*|flashinfer.*|xgrammar|transformers|tokenizers|numba|cuda-toolkit)$"
)


@pytest.mark.parametrize("spec", [spec for spec in LOCKED if spec.versions], ids=lambda spec: spec.name)
def test_locks_have_the_versions_of_the_catalogue(spec: BuiltImage) -> None:
    found = locked((spec.folder / "requirements.txt").read_text(encoding="utf-8"))
    wanted = dict(pin.split("==") for pin in pins(spec))
    if (spec.folder / BASE).exists():
        del wanted[(spec.folder / BASE).read_text(encoding="utf-8").split()[-1]]
    assert wanted
    for package, version in wanted.items():
        assert found[package][0] == version, (
            f"blueprint/catalog/engines.yaml has another; run `make lock`: {package} is {found[package][0]}"
        )


@pytest.mark.parametrize("spec", LOCKED, ids=lambda spec: spec.name)
def test_every_locked_package_has_its_hashes(spec: BuiltImage) -> None:
    text = (spec.folder / "requirements.txt").read_text(encoding="utf-8")
    assert len(locked(text)) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 20
    assert all("--hash=sha256:" in block for _, block in locked(text).values())


def test_images_that_install_python_packages_have_a_base_with_python() -> None:
    assert LOCKED
    assert {spec.bases["BASE_IMAGE"] for spec in LOCKED} <= PYTHONS.keys()


def test_the_layer_over_vllm_leaves_the_base_alone() -> None:
    spec = next(spec for spec in LOCKED if spec.name == "asr-vllm")
    names = locked((spec.folder / "requirements.txt").read_text(encoding="utf-8"))
    assert [name for name in names if THE_BASES_OWN.match(name)] == []
    # Audio input, the KV pool and the transfer library: for the base's CUDA, through the module that vLLM imports.
    assert {"av", "soundfile", "soxr", "scipy", "lmcache", "cupy-cuda13x", "nixl", "nixl-cu13"} <= names.keys()
    assert catalog.engines()["vllm"].source.endswith("CUDA 13)")


def test_a_layer_is_what_the_base_lacks_or_has_otherwise() -> None:
    base = locked("a==1 \\\n    --hash=sha256:aa\nb==1 \\\n    --hash=sha256:bb\n")
    wanted = locked("a==1 \\\n    --hash=sha256:aa\nb==0.9 \\\n    --hash=sha256:b9\nc==2 \\\n    --hash=sha256:cc\n")
    assert list(layer(wanted, base)) == ["b", "c"]
    assert layer(wanted, base)["b"] == ("0.9", "b==0.9 \\\n    --hash=sha256:b9\n")
