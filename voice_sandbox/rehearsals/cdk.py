"""The CDK CLI, configured for the local AWS or for another AWS environment."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.shipped import ROOT
from voice_sandbox.npm import NpmError, ensure_node_modules

MAX_OUTPUT_LINES = 40
MIN_FREE_DISK_MIB = 32
"""Disk space for a rehearsal's folder and temporary files, rounded up from 20 MiB for the production templates."""
_DISK_FULL_ERRORS = ("ENOSPC", "No space left on device")
_PACKAGE_CACHE = ".cache/aws/jsii/package-cache"
"""jsii cache for the unpacked aws-cdk-lib (200 MB), relative to the home directory."""


class CdkError(Exception):
    """A CDK command failed. The message contains the end of its output."""


class CdkTarget(Protocol):
    """An AWS environment to which the CDK deploys."""

    @property
    def account(self) -> str: ...

    @property
    def region(self) -> str: ...

    def build_environment(self, home: Path) -> dict[str, str]:
        """Return the environment for a tool, in which a folder for the tool's caches replaces the home directory."""


class Cdk:
    """Runs CDK commands for a deployment.

    Args:
        aws: The AWS that contains the stacks.
        deployment: The deployment.
        home: Folder for the CLI's caches, which contain account ids, and for the cloud assembly.

    Attributes:
        app: Shell command of the app, or a folder with its output.
        on_line: Receives each line of output, for progress.
    """

    def __init__(self, aws: CdkTarget, deployment: Deployment, home: Path) -> None:
        self._aws = aws
        self._deployment = deployment
        self._home = home
        # A shell runs the command. The CLI strips quotes around the whole command.
        self.app = f"exec {shlex.join([sys.executable, str(ROOT / 'app.py')])}"
        self._process: subprocess.Popen[str] | None = None
        self.on_line: Callable[[str], None] = lambda _: None

    def bootstrap(self) -> None:
        """Create the CDK's own bucket, repository and roles. The app, whose synthesis takes longest, is not needed."""
        regions = [regional.aws.region for regional in self._deployment.split_by_region()]
        self._run("bootstrap", *(f"aws://{self._aws.account}/{region}" for region in regions), app="")

    def use_assembly(self, assembly: Path) -> None:
        """Use an existing cloud assembly, so that the following commands need not synthesize one."""
        self.app = str(assembly)

    def deploy_only(self, *stacks: str) -> None:
        """Deploy individual stacks, without their dependencies.

        Named resources that an earlier deployment of a stack has retained are imported, since removed agents or regions
        may be added again.
        """
        self._run("deploy", *stacks, "--exclusively", "--import-existing-resources", "--require-approval", "never")

    def stop_command(self) -> None:
        """Stop the running command, if any; CloudFormation continues."""
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def deploy(self) -> None:
        """Deploy every stack. Later calls deploy only the changes.

        The deployment uses the ``direct`` method, since a change set requires a review.
        """
        self._run("deploy", "--all", "--method", "direct", "--require-approval", "never", "--progress", "events")

    def deploy_again(self) -> None:
        """Deploy every stack of a deployment that was torn down.

        Named resources that the teardown has retained are imported.
        """
        self._run("deploy", "--all", "--import-existing-resources", "--require-approval", "never")

    def diff(self) -> str:
        """Return the changes that a deployment would make."""
        return self._run("diff", "--all", "--method", "template")

    def destroy(self) -> None:
        """Delete every stack."""
        self._run("destroy", "--all", "--force")

    def _run(self, command: str, *arguments: str, app: str | None = None) -> str:
        """Run a command. The first command that synthesizes the app keeps the assembly for later commands."""
        app = self.app if app is None else app
        try:
            cli = ensure_node_modules("aws-cdk", self.on_line) / ".bin" / "cdk"
        except NpmError as error:
            raise CdkError(str(error)) from None
        assembly = str(self._home / "cdk.out")
        process = subprocess.Popen(  # noqa: S603
            [
                *(str(cli), command, *arguments),
                *("--app", app, "--output", assembly, "--no-notices", "--ci", "--no-color"),
                *("--context", f"deployment={self._deployment.source.file.resolve()}"),
            ],
            cwd=ROOT,
            env=self._build_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._process = process
        assert process.stdout is not None  # noqa: S101  asked for above
        lines: list[str] = []
        with process:
            try:
                for line in process.stdout:
                    lines.append(line.rstrip())
                    self.on_line(lines[-1])
            except BaseException:
                # Only a terminal sends Ctrl-C to the whole process group.
                process.terminate()
                raise
        if process.returncode and any(word in line for line in lines for word in _DISK_FULL_ERRORS):
            free = shutil.disk_usage(self._home).free // 2**20
            raise CdkError(
                f"cdk {command} failed: no space left on the disk of {self._home.parent} ({free} MiB are available; "
                f"a rehearsal takes up to {MIN_FREE_DISK_MIB}), or on that of ~/{_PACKAGE_CACHE}: free some space, "
                "or set TMPDIR to a folder with more space, and run the command again"
            )
        if process.returncode:
            raise CdkError(f"cdk {command} failed:\n" + "\n".join(lines[-MAX_OUTPUT_LINES:]))
        if app:
            self.app = assembly
        return "\n".join(lines)

    def _build_environment(self) -> dict[str, str]:
        environment = self._aws.build_environment(self._home)
        # jsii and the CLI must find this project's Node even without an activated virtual environment. If each
        # rehearsal had its own home directory, it would unpack the packages again.
        environment.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(Path.home() / _PACKAGE_CACHE))
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        return environment
