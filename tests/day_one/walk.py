"""Execution of a guide: the commands of its shell blocks in order, in one shell, and its edits of files."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.day_one import stand_in
from tests.registry import Registry

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LIMIT_S = 1500
"""Timeout of one command: publishing all images of a file takes minutes on a busy machine."""


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a document's shell blocks, without comments; an indented line continues a command."""
    for block in BLOCK.findall(text):
        for command in re.findall(r"^(\S.*(?:\n .*)*)", block, re.MULTILINE):
            yield re.sub(r"\s#\s.*", "", command)


GIT = {f"GIT_{who}_{what}": f"reader{at}" for who in ("AUTHOR", "COMMITTER")
       for what, at in (("NAME", ""), ("EMAIL", "@example.com"))}  # fmt: skip


def repository_of_the_tree(folder: Path) -> Path:
    """Create a repository to clone from and push to, from the tracked files of this tree."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603
    work, bare = folder / "work", folder / "origin.git"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, work / name)
    for command in (
        "git init --quiet --initial-branch main",
        "git add --all",
        "git commit --quiet --message 'a release of the suite'",
        f"git clone --quiet --bare . {shlex.quote(str(bare))}",
    ):
        subprocess.run(shlex.split(command), cwd=work, check=True, env=os.environ | GIT)  # noqa: S603
    shutil.rmtree(work)
    return bare


@dataclass
class Reader:
    """The state of a user at a shell.

    Attributes:
        home: Home folder of the user, where shells on other machines start; contains the state of the fakes.
        origin: Repository that the user has cloned, and pushes to.
        registry: Replaces the registry that the user's machine reaches.
        places: Values of the placeholders in the guide.
        outputs: Output of each command, in order.
    """

    home: Path
    origin: Path
    registry: Registry
    places: Mapping[str, str]
    outputs: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        (self.home / "installed").mkdir()
        for name in (*stand_in.PROGRAMS, *stand_in.RECORDED_PROGRAMS):
            installed = name in {"voice", "pulumi"}
            self._program(self.home / ("installed" if installed else "bin") / name, f"-m tests.day_one.stand_in {name}")
        self._program(self.home / "installed/python", "")
        self._state = self.home / "shell"
        subprocess.run(["git", "clone", "--quiet", self.origin, self.repository], check=True)  # noqa: S603, S607
        self._state.write_text(f"cd {shlex.quote(str(self.repository))}\n")

    @property
    def repository(self) -> Path:
        """Return the folder in which the shell starts."""
        return self.home / "clone"

    def _program(self, file: Path, runs: str) -> None:
        path = f"PYTHONPATH={shlex.quote(str(ROOT))} " if runs else ""
        file.write_text(f'#!/bin/sh\n{path}exec {shlex.quote(sys.executable)} {runs} "$@"\n')
        file.chmod(0o755)

    def run(self, command: str) -> str:
        """Run one command in the shell state of the previous one, and return its output.

        Raises:
            AssertionError: The command fails.
        """
        for placeholder, own in self.places.items():
            command = command.replace(placeholder, own)
        keep = f'{{ export -p; set | grep -E "^(REGISTRY|VAULT)="; printf "cd %q\\n" "$PWD"; }} >{self._state}'
        script = f"source {self._state}\nset -eu -o pipefail\n{command}\nset +e\nwait\n{keep}"
        environment = {
            "PATH": f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "DAY_ONE_STATE": str(self.home),
            "DAY_ONE_REGISTRY": self.registry.host,
            "DAY_ONE_SKOPEO": shutil.which("skopeo") or "skopeo",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **GIT,
            **self.registry.environment,
        }
        done = subprocess.run(  # noqa: S603
            ["bash", "-c", script],  # noqa: S607
            env=environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        self.outputs.append((command, done.stdout))
        if command.startswith("az network bastion ssh"):  # another machine
            self._state.write_text("")
        return done.stdout

    @property
    def calls(self) -> list[str]:
        """Return the recorded calls of the fakes."""
        return (self.home / "calls").read_text().splitlines()
