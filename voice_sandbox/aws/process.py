"""Starts the local AWS as a child process, and provides its endpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3

from voice_sandbox.aws.server import RELEASE_COMMAND
from voice_sandbox.loopback import bypass_proxy_for_loopback

_STOP_TIMEOUT_S = 10


class LocalAws:
    """Local AWS emulator in a child process, which ends with the `with` block or with this process.

    Args:
        log: File for the server's errors.
        region: Region in `environment`.
        hosted_zone: Id and name of a DNS zone that exists from the start.
        real_hosts: Whether machines complete lifecycle hooks; otherwise, simulated hosts do.
        stores: Folder for the Redis servers of the replication groups; without a folder, the groups store no data.
        faults: File of resources that cannot be created; it may change while the server runs.

    Attributes:
        endpoint: URL of all services.
        region: Region in `environment`.
        account: Account of the dummy credentials.
    """

    account = "123456789012"

    def __init__(
        self,
        log: Path,
        *,
        region: str = "us-east-1",
        hosted_zone: tuple[str, str] | None = None,
        real_hosts: bool = False,
        stores: Path | None = None,
        faults: Path | None = None,
    ) -> None:
        self.region = region
        command = [sys.executable, "-m", "voice_sandbox.aws.server"]
        if hosted_zone:
            command += ["--hosted-zone", *hosted_zone]
        if real_hosts:
            command.append("--real-hosts")
        if stores:
            command += ["--stores", str(stores)]
        if faults:
            command += ["--faults", str(faults)]
        root = Path(__file__).resolve().parents[2]
        environment = dict(os.environ)
        bypass_proxy_for_loopback(environment)  # the server's own clients call it
        # The log is a separate file, since a released server must not keep its parent's output open.
        with log.open("w") as errors:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=root,
                env=environment,
                text=True,
                # The parent handles Ctrl-C, and stops the server when it is done.
                start_new_session=True,
            )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        try:
            line = self._process.stdout.readline()
        except BaseException:  # such as Ctrl-C
            self.stop()
            raise
        if not line:
            raise RuntimeError(f"the local AWS did not start (exit code {self._process.wait()}): {log.read_text()}")
        self.endpoint = str(json.loads(line)["endpoint"])
        # The CDK caches account ids by access key, so each server has a key of its own.
        self._clients: dict[tuple[str, str | None], Any] = {}
        self._access_key = f"SANDBOX{uuid.uuid4().hex[:13].upper()}"

    def build_environment(self, home: Path) -> dict[str, str]:
        """Return the environment for a tool (the CDK, the AWS CLI) that uses this AWS.

        Args:
            home: Folder that replaces the home directory, for the tool's caches.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
        bypass_proxy_for_loopback(environment)
        return environment | {
            "HOME": str(home),
            "AWS_ACCESS_KEY_ID": self._access_key,
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }

    def create_session(self, region: str | None = None) -> boto3.Session:
        """Return a boto3 session for this AWS, by default in `region`; clients need `endpoint` as their endpoint."""
        return boto3.Session(
            aws_access_key_id=self._access_key,
            aws_secret_access_key="sandbox",  # noqa: S106
            region_name=region or self.region,
        )

    def client(self, service: str, region: str | None = None) -> Any:
        """Return the client of a service. Each client is created once, since its creation is slower than most calls."""
        key = service, region
        if key not in self._clients:
            self._clients[key] = self.create_session(region).client(service, endpoint_url=self.endpoint)  # type: ignore[call-overload]
        return self._clients[key]

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the server, which is negative after a signal, or ``None`` while the server runs."""
        return self._process.poll()

    def release(self) -> None:
        """Let the server outlive this process; SIGTERM to ``pid`` stops it."""
        assert self._process.stdin is not None  # noqa: S101 - asked for above
        self._process.stdin.write(RELEASE_COMMAND)
        self._process.stdin.close()

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        # A killed server does not stop its Redis servers, which are in its process group.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
