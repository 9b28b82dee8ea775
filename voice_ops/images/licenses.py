"""Licenses of the images' Python packages: ``python -m voice_ops.images.licenses``, which ``make lock`` runs.

A wheel may bundle libraries under licenses other than its own: PyAV, under the BSD license, contains x264 and x265,
which are under the GPL. Metadata and file lists are read from the index without downloading the wheel, and written to
``images/packages.yaml``. ``images/licenses.yaml`` contains reviewed licenses.
"""

import email.parser
import io
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from importlib.metadata import Distribution
from pathlib import PurePosixPath
from typing import Any

import yaml
from license_expression import AND, OR, LicenseExpression, get_spdx_licensing
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

from voice_blueprint.images import IMAGES_FOLDER, BuiltImage
from voice_ops.images.locks import PYTHON_VERSION_BY_BASE, list_images_with_requirements, parse_lock

PACKAGES_FILE = IMAGES_FOLDER / "packages.yaml"
REVIEW_FILE = IMAGES_FOLDER / "licenses.yaml"
PYPI_INDEX_URL = "https://pypi.org/simple"
INDEX_FORMAT = "application/vnd.pypi.simple.v1+json"
TIMEOUT_S = 60
PACKAGES_FILE_HEADER = (
    "# Written by `make lock` from the wheels that the images install (voice_ops/images/licenses.py).\n"
)

_BUNDLED_LIBRARY_PATTERN = re.compile(r"(?:^|/)(lib[\w+-]+?)(?:-[0-9a-f]{8}){0,2}(?:-[\d.]+)?\.so(?:\.[\d.]+)?$")
_SOURCE_BUILD_PATTERN = re.compile(r"--no-binary[ =]([a-z0-9-]+)")
_MAX_NAME_LENGTH = 80
"""Maximum length of a license name. A longer field contains the text of the license."""


@dataclass(frozen=True)
class Package:
    """A Python package as described by its wheel.

    Attributes:
        license: License according to the package's metadata: an SPDX expression, a name, or an empty string.
        libraries: Names of the shared libraries that the wheel bundles.
    """

    name: str
    version: str
    license: str
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class LicenseReview:
    """Reviewed licenses of packages and libraries.

    Attributes:
        permitted: SPDX identifiers that images may contain.
        spellings: SPDX expression for each other spelling that packages use.
        packages: SPDX expression of packages that do not specify one.
        libraries: SPDX expression of each bundled library, by name or pattern.
        debian: SPDX expression of each Debian library, by the name of its package or a pattern.
    """

    permitted: tuple[str, ...]
    spellings: Mapping[str, str]
    packages: Mapping[str, str]
    libraries: Mapping[str, str]
    debian: Mapping[str, str]

    @classmethod
    def read(cls) -> "LicenseReview":
        """Read ``images/licenses.yaml``."""
        document: dict[str, Any] = yaml.safe_load(REVIEW_FILE.read_text(encoding="utf-8"))
        libraries, debian = (
            {name: each for each, names in document[section].items() for name in names}
            for section in ("libraries", "debian")
        )
        packages = {name: row["license"] for name, row in document["packages"].items()}
        return cls(tuple(document["permitted"]), document["spellings"], packages, libraries, debian)

    def find_package_expression(self, package: Package) -> str:
        """Return the SPDX expression of a package, excluding its bundled libraries; empty if unknown."""
        return self.packages.get(package.name) or self.spellings.get(package.license, package.license)

    def collect_package_identifiers(self, package: Package) -> set[str]:
        """Return the permitted identifiers of a package and its bundled libraries."""
        return self._parse_spdx_identifiers(
            self.find_package_expression(package), *map(self.find_library_expression, package.libraries)
        )

    def find_library_expression(self, library: str) -> str:
        """Return the SPDX expression of a library that a wheel bundles; empty if the library is not reviewed."""
        return _find_matching_expression(self.libraries, library)

    def collect_debian_identifiers(self, packages: Iterable[str]) -> set[str]:
        """Return the permitted identifiers of Debian libraries."""
        return self._parse_spdx_identifiers(*(_find_matching_expression(self.debian, each) for each in packages))

    def find_debian_problems(self, packages: Iterable[str]) -> list[str]:
        """Return a sentence for each Debian library that an image may not contain."""
        licenses = {each: _find_matching_expression(self.debian, each) for each in packages}
        return [
            f"Debian's {each} is under {license_ or 'no known license'}"
            for each, license_ in licenses.items()
            if not self._is_permitted(license_)
        ]

    def _parse_spdx_identifiers(self, *expressions: str) -> set[str]:
        licensing = get_spdx_licensing()
        symbols = {str(symbol) for each in expressions if each for symbol in licensing.license_symbols(each)}
        return symbols & set(self.permitted)

    def find_package_problems(self, package: Package) -> list[str]:
        """Return the reasons why an image may not contain a package."""
        results = []
        licenses = self.find_package_expression(package)
        if not self._is_permitted(licenses):
            results.append(
                f"{package.name} {package.version} is under {licenses or 'a license that it does not declare'}"
            )
        for library in package.libraries:
            bundled = self.find_library_expression(library)
            if not self._is_permitted(bundled):
                results.append(
                    f"{package.name} {package.version} bundles {library}, under {bundled or 'no known license'}"
                )
        return results

    def _is_permitted(self, expression: str) -> bool:
        return bool(expression) and _is_satisfied(get_spdx_licensing().parse(expression), self.permitted)


def _find_matching_expression(expressions: Mapping[str, str], name: str) -> str:
    """Return the expression of the first matching name or pattern, or an empty string."""
    return next((each for pattern, each in expressions.items() if fnmatchcase(name, pattern)), "")


def _is_satisfied(node: LicenseExpression, permitted: Iterable[str]) -> bool:
    if isinstance(node, AND):
        return all(_is_satisfied(each, permitted) for each in node.args)
    if isinstance(node, OR):
        return any(_is_satisfied(each, permitted) for each in node.args)
    return str(node) in permitted


def parse_declared_license(metadata: str) -> str:
    """Return the license that a package's metadata declares, as one line.

    The expression takes precedence over the classifiers, and the classifiers over the name.
    """
    message = email.parser.HeaderParser().parsestr(metadata)
    if expression := message.get("License-Expression"):
        return str(expression)
    classifiers = [line for line in message.get_all("Classifier", []) if line.startswith("License :: OSI Approved :: ")]
    if classifiers:
        return " AND ".join(sorted(line.rpartition(" :: ")[2] for line in classifiers))
    name = str(message.get("License", "")).strip()
    return name if len(name) <= _MAX_NAME_LENGTH and "\n" not in name else ""


def find_bundled_libraries(files: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the shared libraries in a wheel, without Python extension modules."""
    return tuple(sorted({match[1] for path in files if (match := _BUNDLED_LIBRARY_PATTERN.search(path))}))


def read_installed_package(distribution: Distribution) -> Package:
    """Return the description of a package that is installed in this environment."""
    files = [str(PurePosixPath(file)) for file in distribution.files or ()]
    name, licenses = (
        canonicalize_name(distribution.name),
        parse_declared_license(distribution.read_text("METADATA") or ""),
    )
    return Package(name, distribution.version, licenses, find_bundled_libraries(files))


def fetch_package(name: str, version: str, python: str) -> Package:
    """Read a package's wheel for Linux on x86-64 from the index.

    Raises:
        LookupError: The index has neither a wheel nor a source distribution of that version.
        requests.RequestException: The index does not respond.
    """
    import requests  # noqa: PLC0415  development dependency, like remotezip
    from remotezip import RemoteZip  # noqa: PLC0415

    answer = requests.get(f"{PYPI_INDEX_URL}/{name}/", headers={"Accept": INDEX_FORMAT}, timeout=TIMEOUT_S)
    answer.raise_for_status()
    ends = re.compile(rf"-{re.escape(version)}(-[0-9][^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
    for file in answer.json()["files"]:
        if not ends.search(file["filename"]) or not any(
            _is_compatible(tag, python) for tag in parse_wheel_filename(file["filename"])[3]
        ):
            continue
        with RemoteZip(file["url"]) as wheel:
            files = wheel.namelist()
            metadata = wheel.read(next(each for each in files if each.endswith(".dist-info/METADATA"))).decode()
        return Package(name, version, parse_declared_license(metadata), find_bundled_libraries(files))
    for file in answer.json()["files"]:
        if file["filename"].endswith(f"-{version}.tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(requests.get(file["url"], timeout=TIMEOUT_S).content)) as source:
                metadata_file = next(each for each in source.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", each))
                metadata = (source.extractfile(metadata_file) or io.BytesIO()).read().decode()
            return Package(name, version, parse_declared_license(metadata))
    raise LookupError(f"{PYPI_INDEX_URL} has no release {version} of {name} for Linux")


def _is_compatible(tag: Tag, python: str) -> bool:
    is_python = tag.interpreter in (f"cp{python.replace('.', '')}", "py3") or tag.abi == "abi3"
    return is_python and (tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith("x86_64")))


def find_source_built_packages(spec: BuiltImage) -> set[str]:
    """Return the packages that an image builds from source. Unlike their wheels, they bundle no libraries."""
    return set(_SOURCE_BUILD_PATTERN.findall((spec.folder / "Dockerfile").read_text(encoding="utf-8")))


def read_pinned_packages(spec: BuiltImage) -> dict[str, str]:
    """Return the version of each package that an image installs."""
    text = (spec.folder / "requirements.txt").read_text(encoding="utf-8")
    return {name: version for name, (version, _) in parse_lock(text).items()}


def main() -> None:
    """Write ``images/packages.yaml`` from the pinned packages of all images."""
    rows: dict[tuple[str, str], Package] = {}
    for spec in list_images_with_requirements():
        for name, version in read_pinned_packages(spec).items():
            if (name, version) not in rows:
                row = fetch_package(name, version, PYTHON_VERSION_BY_BASE[spec.bases["BASE_IMAGE"]])
                rows[name, version] = replace(row, libraries=()) if name in find_source_built_packages(spec) else row
    lines = [_format_package_row(row) for _, row in sorted(rows.items())]
    PACKAGES_FILE.write_text(PACKAGES_FILE_HEADER + "".join(lines), encoding="utf-8")


def _format_package_row(package: Package) -> str:
    row = asdict(package) | {"libraries": list(package.libraries)}
    return yaml.safe_dump([row], default_flow_style=None, sort_keys=False, width=200)


def read_packages() -> dict[tuple[str, str], Package]:
    """Read ``images/packages.yaml`` by name and version."""
    rows = yaml.load(PACKAGES_FILE.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {(row["name"], row["version"]): Package(**row | {"libraries": tuple(row["libraries"])}) for row in rows}


if __name__ == "__main__":
    main()
