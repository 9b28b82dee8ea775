"""Children that end with their parent; `python -m sandbox.azure.child <module> <arguments>` makes one of any module.

The parent holds the other end of stdin and never writes to it; when it closes, be it by a crash, the child ends.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryFile

_FOREIGN = ("ARM_", "AZURE_", "PULUMI_", "OTEL_", "KUBECONFIG", "TRACEPARENT")
_STOP_S = 5.0


class Child(AbstractContextManager["Child"]):
    """A module running in a process of its own, in a `with` block that neither it nor what it forks outlives.

    Args:
        module: What to run; it calls `end_with_parent`, or is run by this module.
        arguments: Its command line.
        cwd: Where it runs.
        environment: Variables beyond the caller's own; credentials and proxies of the caller are withheld.
        keep_stdout: Whether stdout is a pipe for the caller to read; otherwise it goes where stderr goes.
    """

    def __init__(
        self, module: str, *arguments: str, cwd: Path, environment: Mapping[str, str], keep_stdout: bool = False
    ) -> None:
        self._errors = TemporaryFile("w+b")  # noqa: SIM115 - closed by `stop`
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-u", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if keep_stdout else self._errors,
            stderr=self._errors,
            cwd=cwd,
            env=_own_environment() | dict(environment),
            # Ctrl-C is for the parent, which stops the child.
            start_new_session=True,
        )

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
        for stream in (self.process.stdin, self.process.stdout, self._errors):
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


def end_with_parent() -> None:
    """End this process when its parent ends."""
    threading.Thread(target=_wait_for_end, daemon=True).start()


def main() -> None:
    """Run the module that the command line names."""
    end_with_parent()
    # What it makes lives until it ends, and the SDKs' modules are large.
    gc.disable()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _wait_for_end() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
