"""The language host in a process of its own, as the engine and its callers see it."""

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

_FOREIGN = ("ARM_", "AZURE_", "PULUMI_", "OTEL_", "KUBECONFIG", "TRACEPARENT")
_STOP_S = 5.0
_LONGEST_ANSWER = 4096
"""Bytes of one answer: a line of JSON with a number."""


class Child(AbstractContextManager["Child"]):
    """A language host, in a `with` block that neither it nor what it forks outlives.

    Its processes hold the other end of stdin, on which nothing is written; when it closes, be it by a crash, they end.

    Args:
        programs: Pulumi programs that it will run; it starts to import what they import at once.
    """

    def __init__(self, programs: Sequence[Path] = ()) -> None:
        self._errors = TemporaryFile("w+b")  # noqa: SIM115 - closed by `stop`
        self._requests, theirs = socket.socketpair()
        with theirs:
            own = [str(theirs.fileno()), *map(str, programs)]
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-u", "-m", "sandbox.azure.host", *own],
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                env=_own_environment(),
                # Ctrl-C is for the parent, which stops the child.
                start_new_session=True,
            )

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any] | None:
        """Return the answer to a request, which is empty where the host has crashed; `None` where it takes too long."""
        self._requests.settimeout(timeout_s)
        try:
            self._requests.sendall(json.dumps(request).encode() + b"\n")
            answer: Mapping[str, Any] = json.loads(self._requests.recv(_LONGEST_ANSWER) or "{}")
        except TimeoutError:
            return None
        except ConnectionError:
            return {}
        return answer

    def errors(self) -> str:
        """Return what it has written to stderr so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def stop(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for stream in (self.process.stdin, self._requests, self._errors):
            if stream:
                stream.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _own_environment() -> dict[str, str]:
    """Return the environment without credentials, foreign configuration and proxies; hashes are made repeatable."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and not name.lower().endswith("_proxy")
    }
    return own | {"PYTHONHASHSEED": "0"}
