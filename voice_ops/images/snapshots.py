"""Snapshots of the Debian bases: ``python -m voice_ops.images.snapshots``, which ``make lock`` runs.

A snapshot is a time at which Debian's archive contained every version that the images pin. A snapshot is only written
while the archive contains all of these versions, so that https://snapshot.debian.org keeps them permanently.
"""

import lzma
import re
import urllib.request
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from voice_blueprint.images import IMAGES_FOLDER, BaseImage, BuiltImage, load_base_images, load_image_specs
from voice_ops.images.rehearsal import MIRROR_URL

BASES_FILE = IMAGES_FOLDER / "bases.yaml"
PACKAGE_LIST_FILES = ("binary-amd64/Packages", "source/Sources")
DOWNLOAD_TIMEOUT_S = 60.0
PackageVersions = Mapping[str, Collection[str]]
"""Versions of each package."""


def list_suite_folders(suite: str) -> tuple[str, ...]:
    """Return the folders of a suite's archives on a Debian mirror."""
    return (
        f"debian/dists/{suite}/main",
        f"debian/dists/{suite}-updates/main",
        f"debian-security/dists/{suite}-security/main",
    )


def parse_package_versions(lists: str) -> PackageVersions:
    """Parse Debian's package and source lists."""
    results: defaultdict[str, set[str]] = defaultdict(set)
    for name, version in re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", lists, re.MULTILINE | re.DOTALL):
        results[name].add(version)
    return results


def download_package_versions(suite: str) -> PackageVersions:
    """Download the current versions of the packages in a suite from Debian's archive."""
    lists = []
    for archive_suite in list_suite_folders(suite):
        for each in PACKAGE_LIST_FILES:
            url = f"{MIRROR_URL}/{archive_suite}/{each}.xz"
            with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:  # noqa: S310  a fixed HTTP URL
                lists.append(lzma.decompress(answer.read()).decode())
    return parse_package_versions("\n".join(lists))


def find_missing_versions(base: BaseImage, archive_versions: PackageVersions) -> Iterator[str]:
    """Yield a line for each version that an image with this base pins, but that the archive does not contain."""
    for spec in load_image_specs().values():
        if isinstance(spec, BuiltImage) and base.name in spec.bases.values():
            for argument, package in spec.packages.items():
                if package.version not in (available := archive_versions.get(package.name, ())):
                    yield (
                        f"{spec.name}: {argument} is {package.name} {package.version}, but {base.bootstrap} has "
                        f"{', '.join(sorted(available)) or 'no such package'}: update {spec.folder}/image.yaml"
                    )


def replace_snapshot(text: str, base: BaseImage, snapshot: str) -> str:
    """Return the text of ``bases.yaml`` with a new snapshot for one base."""
    row = re.compile(rf"(name: {re.escape(base.name)},.*?snapshot: )\w+", re.DOTALL)
    return row.sub(rf"\g<1>{snapshot}", text, count=1)


def main() -> None:
    """Write the current time as the snapshot of each base, if the archive contains all pinned versions."""
    problems: list[str] = []
    text = BASES_FILE.read_text(encoding="utf-8")
    for base in load_base_images().values():
        now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        if results := list(find_missing_versions(base, download_package_versions(base.bootstrap))):
            problems += results
        else:
            text = replace_snapshot(text, base, now)
    BASES_FILE.write_text(text, encoding="utf-8")
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
