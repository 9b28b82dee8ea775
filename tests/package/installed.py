"""The wheel of this repository, built and installed in a separate environment like a user does."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from voice_blueprint.shipped import CHECKOUT_FOLDER

UV = CHECKOUT_FOLDER / ".tools/bin/uv"
WHEELS, CONSTRAINTS = "dist", "constraints.txt"
"""Folder next to the environment with the built wheels and the constraints from uv.lock."""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and an empty home directory.

    Attributes:
        bin: Folder of the environment's programs.
        home: Home directory.
    """

    bin: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment without the developer's variables: no virtual environment, Node.js or PATH."""
        # Caches of npm and jsii, which verify their content.
        cache = f"{Path.home()}/.cache/aws/jsii/package-cache"
        shared = {"npm_config_cache": f"{Path.home()}/.npm", "JSII_RUNTIME_PACKAGE_CACHE_ROOT": cache}
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"} | shared | proxies

    def run(self, folder: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in a folder."""
        program, *arguments = command
        return subprocess.run(  # noqa: S603
            [self.bin / program, *arguments],
            cwd=folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def voice(self, folder: Path, *arguments: str | Path, **variables: str) -> str:
        """Run `voice` in a folder; return its standard output.

        Raises:
            AssertionError: The exit code is not 0.
        """
        done = self.run(folder, "voice", *arguments, **variables)
        assert done.returncode == 0, f"voice {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}"
        return done.stdout


def install(folder: Path, extras: str) -> Installed:
    """Build the wheel of this tree, and install it with extras at the versions of uv.lock."""
    home, environment = folder / "home", folder / "env"
    home.mkdir(parents=True)
    constraints = folder / CONSTRAINTS
    wheel = build(CHECKOUT_FOLDER, folder / WHEELS)
    uv("export", "--quiet", "--frozen", "--all-extras", "--no-dev", "--no-emit-project", "--no-hashes",
       "--output-file", constraints)  # fmt: skip
    uv("venv", "--quiet", environment, "--python", CHECKOUT_FOLDER / ".venv/bin/python")
    python = environment / "bin/python"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", constraints, f"{wheel}[{extras}]")
    return Installed(environment / "bin", home)


def build(tree: Path, folder: Path) -> Path:
    """Build the wheel of a tree into a folder, and return its path."""
    before = set(folder.glob("*.whl"))
    uv("build", "--quiet", "--wheel", "--out-dir", folder, cwd=tree)
    (wheel,) = set(folder.glob("*.whl")) - before
    return wheel


def earlier_release(folder: Path, version: str, differences: Sequence[tuple[str, str, str]]) -> Path:
    """Return a tree of the tracked files in the state of an earlier release.

    Args:
        folder: Parent of the new tree.
        version: Version of that release.
        differences: Paths, each with a text that occurs once in the file, and that release's text.
    """
    tracked = subprocess.run(["git", "ls-files"], cwd=CHECKOUT_FOLDER, capture_output=True, text=True, check=True)  # noqa: S607
    for path in tracked.stdout.splitlines():
        if not path.startswith("tests/") and (CHECKOUT_FOLDER / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT_FOLDER / path, folder / path)
    here = f'version = "{metadata.version("voice-serve")}"'
    for path, new, old in (("pyproject.toml", here, f'version = "{version}"'), *differences):
        text = (folder / path).read_text(encoding="utf-8")
        assert text.count(new) == 1, f"{path} has {text.count(new)} times {new}"
        (folder / path).write_text(text.replace(new, old), encoding="utf-8")
    return folder


def uv(*arguments: str | Path, cwd: Path = CHECKOUT_FOLDER) -> None:
    done = subprocess.run([UV, *arguments], cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
