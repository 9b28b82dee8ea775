"""The language host in a separate process, which the engine and its callers use."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

_EXCLUDED_VARIABLE_PREFIXES = ("ARM_", "AZURE_", "PULUMI_", "OTEL_", "KUBECONFIG", "TRACEPARENT")
_STOP_TIMEOUT_S = 5.0
_MAX_RESPONSE_BYTES = 4096
"""Maximum size in bytes of a response, which is a line of JSON with a number."""


class LanguageHost(AbstractContextManager["LanguageHost"]):
    """A language host, which ends with the `with` block, as do its forks.

    Nothing is written to the stdin of the processes. When stdin is closed, even by a crash of the caller, the
    processes exit.

    Args:
        programs: Pulumi programs to run. The host imports their dependencies in advance.
    """

    def __init__(self, programs: Sequence[Path] = ()) -> None:
        self._errors = TemporaryFile("w+b")  # noqa: SIM115 - closed by `stop`
        self._requests, child_end = socket.socketpair()
        with child_end:
            arguments = [str(child_end.fileno()), *map(str, programs)]
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-u", "-m", "voice_sandbox.azure.host", *arguments],
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[child_end.fileno()],
                env=_build_host_environment(),
                # The parent handles Ctrl-C, and stops the child.
                start_new_session=True,
            )

    def send_request(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any] | None:
        """Send a request and return the response, which is empty after a crash and `None` after the timeout."""
        self._requests.settimeout(timeout_s)
        try:
            self._requests.sendall(json.dumps(request).encode() + b"\n")
            answer: Mapping[str, Any] = json.loads(self._requests.recv(_MAX_RESPONSE_BYTES) or "{}")
        except TimeoutError:
            return None
        except ConnectionError:
            return {}
        return answer

    def read_stderr(self) -> str:
        """Return the text that the host has written to stderr so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def stop(self) -> None:
        """Stop the host if it is running."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for stream in (self.process.stdin, self._requests, self._errors):
            if stream:
                stream.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _build_host_environment() -> dict[str, str]:
    """Return an environment with deterministic hashes, and without credentials, proxies and other configuration."""
    own_modules = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_EXCLUDED_VARIABLE_PREFIXES) and not name.lower().endswith("_proxy")
    }
    return own_modules | {"PYTHONHASHSEED": "0"}
