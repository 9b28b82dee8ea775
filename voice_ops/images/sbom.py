"""Adds licenses to the SBOM of an image: ``python -m voice_ops.images.sbom NAME build/images/NAME.cdx.json``.

A scanner finds the packages of an image with the licenses in their metadata, but neither the libraries that a wheel
bundles nor reviewed licenses. These libraries and licenses come from ``images/packages.yaml`` and
``images/licenses.yaml``. The program exits with status 1 if a Python package of an image based on a plain distribution
is not permitted.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from voice_blueprint.images import BuiltImage, load_image_specs
from voice_ops.images.licenses import LicenseReview, Package, read_packages

LICENSES_LABEL = "org.opencontainers.image.licenses"
_PYPI_PURL_PATTERN = re.compile(r"pkg:pypi/([^@]+)@([^?#]+)")


def add_licenses(document: dict[str, Any], spec: BuiltImage) -> list[str]:
    """Add licenses to a CycloneDX document, and return the Python packages that the image may not contain.

    Args:
        document: CycloneDX in JSON (https://cyclonedx.org/docs/1.6/json/).
        spec: The described image.
    """
    review, packages = LicenseReview.read(), read_packages()
    document.setdefault("metadata", {}).setdefault("component", {})["licenses"] = [
        {"expression": spec.labels[LICENSES_LABEL]}
    ]
    problems = []
    for component in list(document.get("components", [])):
        match = _PYPI_PURL_PATTERN.match(component.get("purl", ""))
        if match is None:
            continue
        name, version = canonicalize_name(match[1]), match[2]
        package = packages.get((name, version))
        if package is None:
            # Packages in publishers' images are chosen by the publishers, with the licenses that the scanner found.
            if spec.is_buildable_offline:
                problems.append(
                    f"{match[1]} {match[2]} is in the image and not in images/packages.yaml; run `make lock`"
                )
            continue
        problems += review.find_package_problems(package)
        component["licenses"] = [{"expression": review.find_package_expression(package)}]
        document["components"] += [_build_library_component(package, library, review) for library in package.libraries]
    return problems


def _build_library_component(package: Package, library: str, review: LicenseReview) -> dict[str, Any]:
    return {
        "bom-ref": f"{package.name}@{package.version}/{library}",
        "type": "library",
        "name": library,
        "licenses": [{"expression": review.find_library_expression(library)}],
        "properties": [{"name": "voice:bundled-in", "value": f"{package.name}@{package.version}"}],
    }


def main(name: str, file: str) -> int:
    """Add licenses to an SBOM file. Print the packages that are not permitted, and return 1 if there are any."""
    spec = next(each for each in load_image_specs().values() if each.name == name)
    if not isinstance(spec, BuiltImage):  # licenses of a publisher's image are the publisher's responsibility
        return 0
    path = Path(file)
    document = json.loads(path.read_text(encoding="utf-8"))
    problems = add_licenses(document, spec)
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
