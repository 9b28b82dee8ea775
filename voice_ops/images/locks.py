"""Hash-locked requirements of the images: ``python -m voice_ops.images.locks``, which ``make lock`` runs.

If the base of an image contains Python packages (``base.in``), the lock contains only the packages that the image's
layer adds. These are the packages that the base lacks, and those that ``base.in`` resolves to another version. The
layer is installed without dependencies, so it cannot replace torch, CUDA or the engine itself.
"""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from voice_blueprint import catalog
from voice_blueprint.images import BuiltImage, load_image_specs

UV_PROGRAM = Path(__file__).parents[2] / ".tools/bin/uv"
PYTHON_VERSION_BY_BASE = {"vllm": "3.12", "neuron-vllm": "3.12", "debian": "3.13"}
"""Python version of each base on which images install packages."""
TARGET_PLATFORM = "x86_64-manylinux_2_28"
BASE_OVERRIDES = "certifi"
"""vLLM 0.33 requires a version of certifi that package indexes served only some days later. The base contains certifi,
so the layer never does."""

REQUIREMENTS_FILE = "requirements.in"
BASE_FILE = "base.in"
LOCK_FILE_HEADER = (
    "# Written by `make lock` from requirements.in and the catalogue's versions (voice_ops/images/locks.py).\n"
)

_REQUIREMENT_PATTERN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+).*?(?=^[a-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
LockedPackages = dict[str, tuple[str, str]]
"""Version and text of each locked package."""


def parse_lock(text: str) -> LockedPackages:
    """Parse a requirements file that uv wrote."""
    return {result[1]: (result[2], result[0]) for result in _REQUIREMENT_PATTERN.finditer(text)}


def select_layer_packages(required: LockedPackages, base: LockedPackages) -> LockedPackages:
    """Return the packages that a layer adds to a base."""
    return {name: block for name, block in required.items() if name not in base or base[name][0] != block[0]}


def create_version_pins(spec: BuiltImage) -> list[str]:
    """Return a requirement for each engine of an image, with the version in the catalogue."""
    engines = [catalog.engines()[name] for name in spec.versions.values()]
    return [f"{engine.package}=={engine.version}" for engine in engines if engine.package]


def resolve_requirements(spec: BuiltImage, source: Path) -> LockedPackages:
    """Resolve a requirements file at the catalogue's versions with uv."""
    with TemporaryDirectory() as folder:
        constraints, overrides = Path(folder, "constraints.txt"), Path(folder, "overrides.txt")
        constraints.write_text("\n".join(create_version_pins(spec)), encoding="utf-8")
        overrides.write_text(BASE_OVERRIDES if (spec.folder / BASE_FILE).exists() else "", encoding="utf-8")
        command: list[str | Path] = [UV_PROGRAM, "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        command += [
            "--python-version",
            PYTHON_VERSION_BY_BASE[spec.bases["BASE_IMAGE"]],
            "--python-platform",
            TARGET_PLATFORM,
        ]
        command += ["--constraints", constraints, "--overrides", overrides, source]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  pinned uv of this checkout
    return parse_lock(result.stdout)


def lock_requirements(spec: BuiltImage) -> str:
    """Return the content of an image's requirements file."""
    desired = resolve_requirements(spec, spec.folder / REQUIREMENTS_FILE)
    if (spec.folder / BASE_FILE).exists():
        desired = select_layer_packages(desired, resolve_requirements(spec, spec.folder / BASE_FILE))
    return LOCK_FILE_HEADER + "".join(text.rstrip() + "\n" for _, text in desired.values())


def list_images_with_requirements() -> list[BuiltImage]:
    """Return the images that install Python packages."""
    return [
        spec
        for spec in load_image_specs().values()
        if isinstance(spec, BuiltImage) and (spec.folder / REQUIREMENTS_FILE).exists()
    ]


def main() -> None:
    """Write ``requirements.txt`` for every image that installs Python packages."""
    for spec in list_images_with_requirements():
        (spec.folder / "requirements.txt").write_text(lock_requirements(spec), encoding="utf-8")


if __name__ == "__main__":
    main()
