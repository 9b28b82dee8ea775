"""Fails the build of the image when the layer and its base do not fit: ``layer_check.py REQUIREMENTS PACKAGE==X ...``.

The layer is installed without dependencies so that it cannot replace the base's torch, CUDA or vLLM. What the resolver
would have found out is checked here, in the image: each package that the layer brought, and each one named, has every
requirement met by what is installed; and each one named has that version.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)


def locked_names(text: str) -> list[str]:
    """Return the packages that a locked requirements file installs."""
    return [canonicalize_name(name) for name in _PINNED.findall(text)]


def unmet(package: str) -> Iterator[str]:
    """Yield each requirement of an installed package, without extras, that the environment does not meet."""
    for text in distribution(package).requires or []:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield f"{package} needs {requirement}, which is not installed"
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield f"{package} needs {requirement}, but {found} is installed"


def misfits(layer: Iterable[str], pins: dict[str, str]) -> Iterator[str]:
    """Yield everything that does not fit."""
    for name, wanted in pins.items():
        # A build number after + says which CUDA a wheel was built for, not which release it is.
        found = version(name).partition("+")[0]
        if found != wanted:
            yield f"{name} {wanted} was asked for, but the image has {found}"
    for name in dict.fromkeys([*layer, *pins]):
        yield from unmet(name)


def main(arguments: list[str]) -> int:
    """Print what does not fit; return the exit code."""
    requirements, *pins = arguments
    found = list(
        misfits(locked_names(Path(requirements).read_text(encoding="utf-8")), dict(p.split("==") for p in pins))
    )
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
