"""Fails the image build if the layer and its base are incompatible.

Usage: ``layer_check.py REQUIREMENTS PACKAGE==X ...``.

The layer is installed without dependencies, so that it cannot replace the base's torch, CUDA or vLLM. This program
therefore repeats the checks of a resolver in the image:

- The installed packages meet the requirements of each package of the layer, and of each named package.
- Each named package has the given version.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PINNED_PACKAGE_PATTERN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)


def parse_locked_packages(text: str) -> list[str]:
    """Return the packages that a locked requirements file installs."""
    return [canonicalize_name(name) for name in _PINNED_PACKAGE_PATTERN.findall(text)]


def find_unmet_requirements(package: str) -> Iterator[str]:
    """Yield each requirement of an installed package that the environment does not meet. Extras are ignored."""
    for text in distribution(package).requires or []:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed_version = version(requirement.name)
        except PackageNotFoundError:
            yield f"{package} needs {requirement}, which is not installed"
            continue
        if not requirement.specifier.contains(installed_version, prereleases=True):
            yield f"{package} needs {requirement}, but {installed_version} is installed"


def find_incompatibilities(layer: Iterable[str], pins: dict[str, str]) -> Iterator[str]:
    """Yield each package whose version differs from its pin, and each unmet requirement."""
    for name, expected_version in pins.items():
        # A local version after + identifies the CUDA build of a wheel, not its release.
        installed_version = version(name).partition("+")[0]
        if installed_version != expected_version:
            yield f"{name} {expected_version} is required, but the image has {installed_version}"
    for name in dict.fromkeys([*layer, *pins]):
        yield from find_unmet_requirements(name)


def main(arguments: list[str]) -> int:
    """Print all incompatibilities, and return the exit code."""
    requirements, *pins = arguments
    problems = list(
        find_incompatibilities(
            parse_locked_packages(Path(requirements).read_text(encoding="utf-8")), dict(p.split("==") for p in pins)
        )
    )
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
