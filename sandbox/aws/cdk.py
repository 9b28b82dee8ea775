"""The real CDK command line, pointed at the local AWS, or at any other."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from blueprint.file.model.deployment import Deployment

ROOT = Path(__file__).resolve().parents[2]
LAST_LINES = 40


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
        """Make the CDK's own bucket, repository and roles."""
        self._run("bootstrap", f"aws://{self._aws.account}/{self._aws.region}")

    def synthesize(self) -> Path:
        """Write the cloud assembly, which the commands that follow then take as it is, and return its folder."""
        self._run("synth", "--quiet")
        self._app = str(self._home / "cdk.out")
        return Path(self._app)

    def deploy_one(self, stack: str) -> None:
        """Deploy one stack as an operator would, without those that it needs."""
        self._run("deploy", stack, "--exclusively", "--require-approval", "never")

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

    def _run(self, command: str, *arguments: str) -> str:
        cli = ROOT / "node_modules" / ".bin" / "cdk"
        if not cli.exists():
            raise CdkError(f"the CDK command line is not installed in {ROOT}; run `make setup`")
        process = subprocess.Popen(  # noqa: S603
            [
                *(str(cli), command, *arguments),
                *("--app", self._app, "--output", str(self._home / "cdk.out"), "--no-notices", "--ci", "--no-color"),
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
        if process.returncode:
            raise CdkError(f"cdk {command} failed:\n" + "\n".join(lines[-LAST_LINES:]))
        return "\n".join(lines)

    def _environment(self) -> dict[str, str]:
        environment = self._aws.environment(self._home)
        # jsii and the CLI are to find this project's Node, also when the virtual environment is not activated.
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        return environment
