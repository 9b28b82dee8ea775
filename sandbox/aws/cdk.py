"""The real CDK command line, pointed at the local AWS, or at any other."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from blueprint.file.model.deployment import Deployment

ROOT = Path(__file__).resolve().parents[2]
LAST_LINES = 40
NEEDED_MIB = 32
"""What a rehearsal's folder and the temporary files beside it take, rounded up: 20 MiB of production's templates."""
_FULL = ("ENOSPC", "No space left on device")
_PACKAGES = ".cache/aws/jsii/package-cache"
"""Where jsii unpacks aws-cdk-lib (200 MB), below the home directory."""


class CdkError(Exception):
    """A CDK command failed; the message holds the end of its output."""


class Target(Protocol):
    """An AWS that the CDK works on."""

    @property
    def account(self) -> str: ...

    @property
    def region(self) -> str: ...

    def environment(self, home: Path) -> dict[str, str]:
        """Return the environment with which a tool reaches it; ``home`` takes the tool's caches."""


class Cdk:
    """Runs CDK commands for one deployment against one AWS.

    Args:
        aws: Where the stacks are.
        deployment: What is deployed.
        home: A folder for the CLI's caches, which hold account ids, and for the cloud assembly.

    Attributes:
        on_line: Called with each line of output, for progress.
    """

    def __init__(self, aws: Target, deployment: Deployment, home: Path) -> None:
        self._aws = aws
        self._deployment = deployment
        self._home = home
        self._app = f"{sys.executable} {ROOT / 'app.py'}"
        self.on_line: Callable[[str], None] = lambda _: None

    def bootstrap(self) -> None:
        """Make the CDK's own bucket, repository and roles; that needs no app, whose synthesis takes longest here."""
        regions = [regional.aws.region for regional in self._deployment.in_regions()]
        self._run("bootstrap", *(f"aws://{self._aws.account}/{region}" for region in regions), app="")

    def take(self, assembly: Path) -> None:
        """Take a cloud assembly that is there; the commands that follow synthesize nothing."""
        self._app = str(assembly)

    def deploy_only(self, *stacks: str) -> None:
        """Deploy stacks as an operator would, without those that they need."""
        self._run("deploy", *stacks, "--exclusively", "--require-approval", "never")

    def deploy(self) -> None:
        """Deploy every stack; a second time, only what has changed.

        The ``direct`` method, since a change set needs a review that a rehearsal has nobody for.
        """
        self._run("deploy", "--all", "--method", "direct", "--require-approval", "never", "--progress", "events")

    def diff(self) -> str:
        """Return what a deploy would change."""
        return self._run("diff", "--all", "--method", "template")

    def destroy(self) -> None:
        """Delete every stack."""
        self._run("destroy", "--all", "--force")

    def _run(self, command: str, *arguments: str, app: str | None = None) -> str:
        """Run a command; the first one that needs the app leaves its assembly to those that follow."""
        app = self._app if app is None else app
        cli = ROOT / "node_modules" / ".bin" / "cdk"
        if not cli.exists():
            raise CdkError(f"the CDK command line is not installed in {ROOT}; run `make setup`")
        assembly = str(self._home / "cdk.out")
        process = subprocess.Popen(  # noqa: S603
            [
                *(str(cli), command, *arguments),
                *("--app", app, "--output", assembly, "--no-notices", "--ci", "--no-color"),
                *("--context", f"deployment={self._deployment.source.file.resolve()}"),
            ],
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101  asked for above
        lines: list[str] = []
        with process:
            try:
                for line in process.stdout:
                    lines.append(line.rstrip())
                    self.on_line(lines[-1])
            except BaseException:
                # Ctrl-C reaches the whole process group only from a terminal.
                process.terminate()
                raise
        if process.returncode and any(word in line for line in lines for word in _FULL):
            free = shutil.disk_usage(self._home).free // 2**20
            raise CdkError(
                f"cdk {command} failed: no space is left on the disk of {self._home.parent} ({free} MiB are free now; "
                f"a rehearsal takes up to {NEEDED_MIB}), or on that of ~/{_PACKAGES}: free some, or set TMPDIR to a "
                "folder that has more, and run the command again"
            )
        if process.returncode:
            raise CdkError(f"cdk {command} failed:\n" + "\n".join(lines[-LAST_LINES:]))
        if app:
            self._app = assembly
        return "\n".join(lines)

    def _environment(self) -> dict[str, str]:
        environment = self._aws.environment(self._home)
        # jsii and the CLI are to find this project's Node, also when the virtual environment is not activated.
        # A home of its own would have each rehearsal unpack them again.
        environment.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(Path.home() / _PACKAGES))
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        return environment
