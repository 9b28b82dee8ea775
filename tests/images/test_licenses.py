"""No image contains a GPL library that our programs load, and each label lists the licenses."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import distribution

import pytest
from license_expression import get_spdx_licensing
from packaging.requirements import Requirement

from voice_blueprint.images import BuiltImage, load_image_specs
from voice_ops.images.licenses import (
    LicenseReview,
    Package,
    find_bundled_libraries,
    parse_declared_license,
    read_installed_package,
    read_packages,
    read_pinned_packages,
)
from voice_ops.images.locks import list_images_with_requirements

LABEL = "org.opencontainers.image.licenses"
PACKAGES = read_packages()
REVIEW = LicenseReview.read()
IMAGES_WITH_PACKAGES = list_images_with_requirements()
PYAV = read_installed_package(distribution("av"))
"""The wheel from PyPI, with which the gateway's tests run here; its image compiles PyAV instead."""


def packages(spec: BuiltImage) -> list[Package]:
    return [PACKAGES[pin] for pin in read_pinned_packages(spec).items()]


@pytest.mark.parametrize("spec", IMAGES_WITH_PACKAGES, ids=lambda spec: spec.name)
def test_every_package_of_an_image_is_permitted(spec: BuiltImage) -> None:
    assert read_pinned_packages(spec)
    assert [problem for package in packages(spec) for problem in REVIEW.find_package_problems(package)] == []


def test_the_table_matches_the_images_packages() -> None:
    assert PACKAGES.keys() == {pin for spec in IMAGES_WITH_PACKAGES for pin in read_pinned_packages(spec).items()}


@pytest.mark.parametrize("spec", IMAGES_WITH_PACKAGES, ids=lambda spec: spec.name)
def test_a_label_names_every_license_of_the_packages(spec: BuiltImage) -> None:
    licensing = get_spdx_licensing()
    labelled = {str(symbol) for symbol in licensing.license_symbols(spec.labels[LABEL])}
    inside = {identifier for each in packages(spec) for identifier in REVIEW.collect_package_identifiers(each)}
    assert inside - labelled == set()
    assert labelled <= set(REVIEW.permitted)


def test_a_wheel_that_bundles_a_library_under_the_gpl_is_refused() -> None:
    problems = REVIEW.find_package_problems(PYAV)
    assert {"libx264", "libx265"} <= set(PYAV.libraries)
    assert f"av {PYAV.version} bundles libx264, under no known license" in problems


@pytest.mark.parametrize(
    ("license_", "is_permitted"),
    [("MIT", True), ("GPL-3.0-only", False), ("AGPL-3.0-or-later", False), ("", False), ("Some License", False),
     ("MIT OR GPL-2.0-only", True), ("MIT AND GPL-2.0-only", False), ("(MIT OR GPL-2.0-only) AND ISC", True)],
)  # fmt: skip
def test_an_expression_is_permitted_as_a_whole(license_: str, is_permitted: bool) -> None:
    package = Package("any", "1", license_)
    assert (REVIEW.find_package_problems(package) == []) is is_permitted
    bundles = replace(package, license="MIT", libraries=("libany",))
    assert (replace(REVIEW, libraries={"liba*": license_}).find_package_problems(bundles) == []) is is_permitted


def test_hash_and_version_are_removed_from_names_of_bundled_libraries() -> None:
    files = [
        "av.libs/libx264-d6533a8d.so.165",
        "x/libgfortran-040039e1-0352e75f.so.5.0.0",
        "av/_core.abi3.so",
        "a/lib.py",
    ]
    assert find_bundled_libraries(files) == ("libgfortran", "libx264")


@pytest.mark.parametrize(
    ("metadata", "stated"),
    [("License-Expression: MIT\nClassifier: License :: OSI Approved :: BSD License\n", "MIT"),
     ("License: long\n  text\nClassifier: License :: OSI Approved :: BSD License\n", "BSD License"),
     ("License: ISC\n", "ISC"), (f"License: {'text ' * 30}\n", ""), ("Name: any\n", "")],
)  # fmt: skip
def test_metadata_states_a_license_in_one_of_three_ways(metadata: str, stated: str) -> None:
    assert parse_declared_license(metadata) == stated


def test_licenses_of_dependencies_are_permitted() -> None:
    """Packages installed by all extras, as installed here."""
    seen: dict[str, Package] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [
        ("voice-serve", ("aws", "azure", "sandbox", "call", "loadtest", "simulate"))
    ]
    while waiting:
        name, extras = waiting.pop()
        found = distribution(name)
        for requirement in map(Requirement, found.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                package = read_installed_package(distribution(requirement.name))
                if package.name not in seen:
                    seen[package.name] = package
                    waiting.append((requirement.name, tuple(requirement.extras)))
    assert len(seen) > 50
    assert [problem for package in seen.values() for problem in REVIEW.find_package_problems(package)] == []


BUILT_IMAGES = [spec for spec in load_image_specs().values() if isinstance(spec, BuiltImage)]
TEST_LIBRARIES = ("libgtest-dev",)
RUN_TIME = ("libc6",)
"""Part of every base image, whose publisher states the licenses."""
_APT_PACKAGE = re.compile(r'"((?:lib|nlohmann-)[a-z0-9.+-]+)=\$')


def native_libraries(spec: BuiltImage) -> list[str]:
    """Return the packages that add Debian libraries to an image or to one of its programs."""
    text = (spec.folder / "Dockerfile").read_text(encoding="utf-8")
    return sorted(set(_APT_PACKAGE.findall(text)) - set(TEST_LIBRARIES))


IMAGES_WITH_LIBRARIES = [spec for spec in BUILT_IMAGES if native_libraries(spec)]


def test_programs_linked_to_debian_libraries_are_detected() -> None:
    assert {spec.name for spec in IMAGES_WITH_LIBRARIES} == {"gateway", "vad-dataplane"}


@pytest.mark.parametrize("spec", IMAGES_WITH_LIBRARIES, ids=lambda spec: spec.name)
def test_every_debian_library_is_permitted_and_in_the_label(spec: BuiltImage) -> None:
    packages = dependencies(native_libraries(spec))
    assert REVIEW.find_debian_problems(packages) == []
    labelled = {str(symbol) for symbol in get_spdx_licensing().license_symbols(spec.labels[LABEL])}
    assert REVIEW.collect_debian_identifiers(packages) - labelled == set()
    assert labelled <= set(REVIEW.permitted)


def dependencies(packages: Iterable[str]) -> set[str]:
    """Return packages with their dependencies that are installed here; header packages also depend on tools."""
    found: set[str] = set()
    waiting = list(packages)
    while waiting:
        package = waiting.pop()
        if package in found or package in RUN_TIME:
            continue
        found.add(package)
        if not package.endswith("-dev") and shutil.which("dpkg-query"):
            told = subprocess.run(  # noqa: S603
                ["dpkg-query", "-W", "-f", "${Depends}, ${Pre-Depends},", package],  # noqa: S607
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
            ).stdout  # fmt: skip
            waiting += [match for each in told.split(",") for match in re.findall(r"^ *([a-z0-9.+-]+)", each)]
    return found


def test_a_debian_library_under_the_gpl_is_refused() -> None:
    review = replace(REVIEW, debian={"libx264-*": "GPL-2.0-or-later", **REVIEW.debian})
    assert review.find_debian_problems(["libopus0", "libx264-164", "libnew1"]) == [
        "Debian's libx264-164 is under GPL-2.0-or-later",
        "Debian's libnew1 is under no known license",
    ]


def test_every_built_image_has_a_license_label() -> None:
    assert BUILT_IMAGES
    assert [spec.name for spec in BUILT_IMAGES if LABEL not in spec.labels] == []
