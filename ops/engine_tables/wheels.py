"""Published wheels: downloaded by pip, kept in a cache outside the repository, told apart by their hash."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "voice-serve" / "wheels"
PYTHON = "3.12"
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (17, 27, 28, 31, 34, 35))
_LAST_LINES = 5


class UnavailableError(Exception):
    """Something published cannot be had here and now; the message says what and why."""


def wheel(package: str, version: str, known_sha256: str | None = None) -> Path:
    """Return a published wheel, from the cache or downloaded into it.

    Args:
        known_sha256: Of the wheel that was read last time; another one is refused. Without it, the hash that
            the package index states is what pip checks.

    Raises:
        UnavailableError: There is no such wheel, its hash is another one, or the index cannot be reached.
    """
    cached = next(
        (
            file
            for file in CACHE.glob(f"{package.replace('-', '_')}-{version}-*.whl")
            if known_sha256 in {None, sha256(file)}
        ),
        None,
    )
    if cached is not None:
        return cached
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        _download(package, version, known_sha256, Path(folder))
        arrived = next(Path(folder).glob("*.whl"))
        return arrived.rename(CACHE / arrived.name)


def sha256(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(package: str, version: str, known_sha256: str | None, folder: Path) -> None:
    """Let pip download, so that the machine's index, proxy and certificates are the ones used."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package}=={version}" + (f" --hash=sha256:{known_sha256}" if known_sha256 else "") + "\n")
    command = [
        *(_pip(), "download", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON),
        *(f"--platform={platform}" for platform in PLATFORMS),
        *("--dest", str(folder), "--requirement", str(wanted)),
    ]
    # pip draws its progress bar on stdout; its complaints are what an error message needs.
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        raise UnavailableError(f"pip cannot download {package} {version}: {' '.join(lines[-_LAST_LINES:])}")


def _pip() -> str:
    own = Path(__file__).parents[2] / ".tools" / "bin" / "pip"
    found = str(own) if own.exists() else shutil.which("pip")
    if found is None:
        raise UnavailableError("there is no pip: `make setup` puts one into .tools/bin")
    return found
