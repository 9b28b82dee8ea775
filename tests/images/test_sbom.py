"""The SBOM of an image contains the reviewed licenses, including licenses of bundled libraries."""

import json
from pathlib import Path
from typing import Any

import pytest

from voice_blueprint.images import BuiltImage, load_image_specs
from voice_ops.images.licenses import LicenseReview, read_packages, read_pinned_packages
from voice_ops.images.locks import list_images_with_requirements
from voice_ops.images.sbom import LICENSES_LABEL, add_licenses, main

PACKAGES = read_packages()


def syft_output(spec: BuiltImage, **more: str) -> dict[str, Any]:
    """Return syft's output for an image: packages of Debian and of Python, without reviewed licenses."""
    python = read_pinned_packages(spec) | more
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"component": {"type": "container", "name": f"registry/{spec.name}"}},
        "components": [
            {"type": "library", "name": "libc6", "purl": "pkg:deb/debian/libc6@2.41-12?arch=amd64"},
            {"type": "operating-system", "name": "debian"},
            *(
                {"type": "library", "name": name, "purl": f"pkg:pypi/{name}@{version}"}
                for name, version in python.items()
            ),
        ],
    }


@pytest.mark.parametrize("spec", list_images_with_requirements(), ids=lambda spec: spec.name)
def test_every_package_and_bundled_library_has_a_license(spec: BuiltImage) -> None:
    document = syft_output(spec)
    assert add_licenses(document, spec) == []
    assert document["metadata"]["component"]["licenses"] == [{"expression": spec.labels[LICENSES_LABEL]}]
    licensed = {each["name"]: each["licenses"] for each in document["components"] if "licenses" in each}
    review = LicenseReview.read()
    for name, version in read_pinned_packages(spec).items():
        package = PACKAGES[name, version]
        assert licensed[name] == [{"expression": review.find_package_expression(package)}]
        assert licensed.keys() >= set(package.libraries)
    references = [each["bom-ref"] for each in document["components"] if "bom-ref" in each]
    assert len(references) == len(set(references))
    assert "libc6" not in licensed, "the scanner reads those of Debian"


def test_a_package_that_is_not_reviewed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = next(each for each in list_images_with_requirements() if each.name == "gateway")
    file = tmp_path / "gateway.cdx.json"
    file.write_text(json.dumps(syft_output(gateway, **{"x264-python": "1.0"})))
    assert main("gateway", str(file)) == 1
    assert "x264-python 1.0 is in the image and not in images/packages.yaml" in capsys.readouterr().err
    file.write_text(json.dumps(syft_output(gateway)))
    assert main("gateway", str(file)) == 0
    assert "licenses" in json.loads(file.read_text())["metadata"]["component"]


def test_an_upstream_image_is_not_changed(tmp_path: Path) -> None:
    mirrored = next(each.name for each in load_image_specs().values() if not isinstance(each, BuiltImage))
    assert main(mirrored, str(tmp_path / "not read")) == 0
