"""A machine's root file system with Debian, which is created once per recipe and then cached."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from voice_sandbox.hosts.certificates import CertificateAuthority

RECIPE_FOLDER = Path(__file__).parent / "guest"
CACHE_FOLDER = Path(__file__).parents[2] / ".tools" / "hosts"
DEBIAN_SUITE = "trixie"
"""Debian 13, since Docker 20.10 in Debian 12 does not support the capability BPF."""
DEBIAN_MIRROR_URL = "http://deb.debian.org"
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DISK_SIZE = "8G"
"""Size of the sparse file, of which about 1 GiB is written."""


class HostRehearsalError(Exception):
    """The host rehearsal cannot continue. The message contains the reason."""


def run_command(*command: str | Path) -> str:
    """Run a command and return its output.

    Raises:
        HostRehearsalError: The command failed; the message contains the end of its output.
    """
    # Fixed programs with our own arguments.
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise HostRehearsalError(f"`{' '.join(map(str, command))}` failed with {done.returncode}:\n{tail}")
    return done.stdout


@dataclass(frozen=True)
class Disk:
    """A machine's boot disk, which is never written to.

    Attributes:
        authority: Certificate authority that the root file system trusts.
    """

    root: Path
    kernel: Path
    initrd: Path
    authority: CertificateAuthority


def prepare_disk() -> Disk:
    """Return the disk for the current recipe. The first call creates the disk, which takes some minutes.

    Raises:
        HostRehearsalError: Debian's archive is unreachable, or a package no longer exists.
    """
    folder = CACHE_FOLDER / _calculate_recipe_hash()
    authority = CertificateAuthority(CACHE_FOLDER)
    new_disk = Disk(folder / "root.ext4", folder / "vmlinuz", folder / "initrd.img", authority)
    if not folder.exists():
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        _create_disk(making, authority)
        making.rename(folder)
    return new_disk


def _calculate_recipe_hash() -> str:
    recipe = hashlib.sha256(f"{DEBIAN_SUITE} {DISK_SIZE}".encode())
    for file in sorted(RECIPE_FOLDER.iterdir()):
        recipe.update(file.read_bytes())
    return recipe.hexdigest()[:16]


def _create_disk(folder: Path, authority: CertificateAuthority) -> None:
    root = folder / "root"
    packages = ",".join((RECIPE_FOLDER / "packages.txt").read_text(encoding="utf-8").split())
    sources = [
        f"deb {DEBIAN_MIRROR_URL}/debian {DEBIAN_SUITE} main",
        f"deb {DEBIAN_MIRROR_URL}/debian {DEBIAN_SUITE}-updates main",
        f"deb {DEBIAN_MIRROR_URL}/debian-security {DEBIAN_SUITE}-security main",
    ]
    slim = [f"--dpkgopt=path-exclude=/usr/share/{path}/*" for path in ("doc", "man", "locale", "info")]
    run_command(
        "env", f"AUTHORITY={authority.file.resolve()}",
        "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", f"--keyring={DEBIAN_KEYRING}",
        f"--include={packages}",
        *slim, f"--customize-hook={RECIPE_FOLDER / 'shims.sh'} \"$1\"", DEBIAN_SUITE, root, *sources,
    )  # fmt: skip
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    (initial,) = (root / "boot").glob("initrd.img-*")
    shutil.copy(kernel, folder / "vmlinuz")
    shutil.copy(initial, folder / "initrd.img")
    run_command("mke2fs", "-q", "-t", "ext4", "-d", root, folder / "root.ext4", DISK_SIZE)
    shutil.rmtree(root)
