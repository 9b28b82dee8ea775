"""npm packages that commands run: the CDK CLI, and Graphviz as WebAssembly."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from voice_blueprint.shipped import CHECKOUT_FOLDER, IS_INSTALLED, ROOT
from voice_stacks.node import NODE_EXECUTABLE

LOCK_FILE = "package-lock.json"
"""File with the version and the checksum of each package. npm installs no other packages."""
_NPM_PROGRAM = NODE_EXECUTABLE.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
_MAX_OUTPUT_LINES = 10


class NpmError(Exception):
    """The packages could not be installed. The message contains the reason and the remedy."""


def ensure_node_modules(package: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the folder ``node_modules`` that contains a package in the version that this release was tested with.

    In a checkout, `make setup` installs the packages. An installed `voice` uses those in the current folder if they
    were installed from the same lock file (which `voice new` writes). Otherwise, it installs them once in the user's
    cache.

    Args:
        package: Name, such as ``aws-cdk``.
        report: Receives a line before a download.

    Raises:
        NpmError: The package is not installed and cannot be installed.
    """
    if not IS_INSTALLED:
        folder = CHECKOUT_FOLDER / "node_modules"
        if not (folder / package).is_dir():
            raise NpmError(f"the npm package {package} is not installed in {CHECKOUT_FOLDER}; run `make setup`")
        return folder
    lock = (ROOT / LOCK_FILE).read_bytes()
    working_folder = Path.cwd()
    is_current = (working_folder / LOCK_FILE).is_file() and (working_folder / LOCK_FILE).read_bytes() == lock
    if is_current and (working_folder / "node_modules" / package).is_dir():
        return working_folder / "node_modules"
    folder = get_cache_folder() / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not (folder / "node_modules" / package).is_dir():
        _install_packages(folder, report)
    return folder / "node_modules"


def get_cache_folder() -> Path:
    """Return the user's cache folder for this program."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "voice-serve"


def _install_packages(folder: Path, report: Callable[[str], None]) -> None:
    """Install the packages of the lock file atomically."""
    report(f"installing the CDK CLI and Graphviz from npm into {folder} (35 MB, once)")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix="npm-", dir=folder.parent))
    except OSError as error:
        raise NpmError(f"{folder.parent}: {error.strerror}; set XDG_CACHE_HOME to a writable folder") from None
    try:
        for name in ("package.json", LOCK_FILE):
            shutil.copy(ROOT / name, draft / name)
        done = subprocess.run(  # noqa: S603
            [NODE_EXECUTABLE, _NPM_PROGRAM, "ci", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=draft,
            env=os.environ | {"PATH": os.pathsep.join([str(NODE_EXECUTABLE.parent), os.environ.get("PATH", "")])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = "\n".join((done.stdout + done.stderr).splitlines()[-_MAX_OUTPUT_LINES:])
            raise NpmError(
                f"npm could not install {LOCK_FILE} into {folder}; check the connection to the npm registry:\n{lines}"
            )
        try:
            draft.rename(folder)
        except OSError:
            # Another process has installed the packages already, or an older folder is incomplete.
            if not (folder / "node_modules").is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
