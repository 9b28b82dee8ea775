"""Writes the hash-locked requirements of the images: ``python -m ops.images.locks``, which ``make lock`` runs.

An image over a base that has Python packages already (``base.in``) locks only what its layer adds: packages that the
base lacks, and those that the base would have at another version because nothing narrowed them there. The layer is
installed without dependencies, so torch, CUDA and the engine itself cannot be replaced by it.
"""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from blueprint import catalog
from blueprint.images import BuiltImage, specs

UV = Path(__file__).parents[2] / ".tools/bin/uv"
PYTHONS = {"vllm": "3.12", "neuron-vllm": "3.12", "debian": "3.13"}
"""Python of each base that images install requirements on."""
TARGET = "x86_64-manylinux_2_28"
FROM_THE_BASE = "certifi"
"""vLLM 0.33 wants a certifi that indexes serve only some days later than it; the base has one, the layer never does."""

REQUIREMENTS = "requirements.in"
BASE = "base.in"
HEADER = "# Written by `make lock` from requirements.in and the catalogue's versions (ops/images/locks.py).\n"

_BLOCK = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+).*?(?=^[a-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
Locked = dict[str, tuple[str, str]]
"""Version and text of each locked package."""


def locked(text: str) -> Locked:
    """Read a requirements file that uv wrote."""
    return {found[1]: (found[2], found[0]) for found in _BLOCK.finditer(text)}


def layer(wanted: Locked, base: Locked) -> Locked:
    """Return what has to be installed over a base."""
    return {name: block for name, block in wanted.items() if name not in base or base[name][0] != block[0]}


def pins(spec: BuiltImage) -> list[str]:
    """Return the versions that the catalogue gives to an image's packages."""
    engines = [catalog.engines()[name] for name in spec.versions.values()]
    return [f"{engine.package}=={engine.version}" for engine in engines if engine.package]


def resolve(spec: BuiltImage, source: Path) -> Locked:
    """Let uv resolve one requirements file at the catalogue's versions."""
    with TemporaryDirectory() as folder:
        constraints, overrides = Path(folder, "constraints.txt"), Path(folder, "overrides.txt")
        constraints.write_text("\n".join(pins(spec)), encoding="utf-8")
        overrides.write_text(FROM_THE_BASE if (spec.folder / BASE).exists() else "", encoding="utf-8")
        command: list[str | Path] = [UV, "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        command += ["--python-version", PYTHONS[spec.bases["BASE_IMAGE"]], "--python-platform", TARGET]
        command += ["--constraints", constraints, "--overrides", overrides, source]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  uv of this folder
    return locked(done.stdout)


def lock(spec: BuiltImage) -> str:
    """Return the requirements that an image installs, as a file."""
    wanted = resolve(spec, spec.folder / REQUIREMENTS)
    if (spec.folder / BASE).exists():
        wanted = layer(wanted, resolve(spec, spec.folder / BASE))
    return HEADER + "".join(text.rstrip() + "\n" for _, text in wanted.values())


def with_requirements() -> list[BuiltImage]:
    """Return the images that install Python packages."""
    return [spec for spec in specs().values() if isinstance(spec, BuiltImage) and (spec.folder / REQUIREMENTS).exists()]


def main() -> None:
    """Write the requirements of every image that has some."""
    for spec in with_requirements():
        (spec.folder / "requirements.txt").write_text(lock(spec), encoding="utf-8")


if __name__ == "__main__":
    main()
