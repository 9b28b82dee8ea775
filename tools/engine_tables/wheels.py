"""Downloads published wheels with pip, and caches them outside the repository."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "voice-serve" / "wheels"
PYTHON_VERSION = "3.12"
PLATFORM_TAGS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (17, 27, 28, 31, 34, 35))
_MAX_ERROR_LINES = 5


class DownloadError(Exception):
    """A published file cannot be downloaded."""


def fetch_wheel(package: str, version: str, known_sha256: str | None = None) -> Path:
    """Return the path of a published wheel. Download the wheel unless it is in the cache.

    Args:
        known_sha256: Hash of the wheel that was used last time. A wheel with another hash is rejected. By default, pip
            verifies the hash from the package index.

    Raises:
        DownloadError: There is no such wheel, its hash differs, or the index is unreachable.
    """
    cached = next(
        (
            file
            for file in CACHE_FOLDER.glob(f"{package.replace('-', '_')}-{version}-*.whl")
            if known_sha256 in {None, hash_file(file)}
        ),
        None,
    )
    if cached is not None:
        return cached
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE_FOLDER) as folder:
        _download_wheel(package, version, known_sha256, Path(folder))
        arrived = next(Path(folder).glob("*.whl"))
        return arrived.rename(CACHE_FOLDER / arrived.name)


def hash_file(file: Path) -> str:
    """Return the SHA-256 hash of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download_wheel(package: str, version: str, known_sha256: str | None, folder: Path) -> None:
    """Download a wheel with pip, which uses the index, proxy and certificates that are configured on the machine."""
    desired = folder / "wanted.txt"
    desired.write_text(f"{package}=={version}" + (f" --hash=sha256:{known_sha256}" if known_sha256 else "") + "\n")
    command = [
        *(_find_pip(), "download", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON_VERSION),
        *(f"--platform={platform}" for platform in PLATFORM_TAGS),
        *("--dest", str(folder), "--requirement", str(desired)),
    ]
    # pip prints its progress bar on stdout, and errors on stderr.
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        raise DownloadError(f"pip cannot download {package} {version}: {' '.join(lines[-_MAX_ERROR_LINES:])}")


def _find_pip() -> str:
    pip = Path(__file__).parents[2] / ".tools" / "bin" / "pip"
    result = str(pip) if pip.exists() else shutil.which("pip")
    if result is None:
        raise DownloadError("pip is missing: `make setup` installs it in .tools/bin")
    return result
