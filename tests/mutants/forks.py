"""Runs pytest repeatedly in one tree: each run is a fork of a process that has imported the packages.

Imports take most of the time of one mutant's tests. ``python tests/mutants/forks.py`` reads the arguments of each run
as a line of JSON, and answers with its exit code. Only the fork imports the product's own modules.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PACKAGES = (
    *("cryptography.x509", "httpx2", "hypothesis", "jiwer", "jwt", "numpy", "openai", "pydantic_settings", "pytest"),
    *("pytest_asyncio", "redis.asyncio", "starlette.applications", "uvicorn", "websockets"),
    *("pipecat.pipeline.worker", "pipecat.services.openai.llm", "pipecat.transports.websocket.fastapi"),
)


class Forks:
    """Runs of pytest in a tree.

    Attributes:
        folder: The tree.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._start()

    def run(self, arguments: list[str], limit_s: float) -> int | None:
        """Return the exit code of a run, or ``None`` if it exceeded the limit in seconds.

        A run that ends the server, or that finds it ended, is repeated once with another server. If it ends that one,
        too, its exit code is the server's.
        """
        for _ in range(2):
            with contextlib.suppress(BrokenPipeError, json.JSONDecodeError):
                return self._run(arguments, limit_s)
            ended = self._server.wait()
            self._start()
        return ended

    def _start(self) -> None:
        self._server = subprocess.Popen(  # noqa: S603
            # Without the folder of this file in sys.path, where images.py would hide the folder of the tree.
            [sys.executable, "-P", str(Path(__file__).resolve())],
            cwd=self.folder, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _run(self, arguments: list[str], limit_s: float) -> int | None:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps([limit_s, arguments]) + "\n")
        self._server.stdin.flush()
        code: int | None = json.loads(self._server.stdout.readline())
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(quiet, descriptor)
    for package in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    for line in sys.stdin:
        limit_s, arguments = json.loads(line)
        answers.write(f"{json.dumps(_run(arguments, limit_s))}\n")
        answers.flush()


def _run(arguments: list[str], limit_s: float) -> int | None:
    child = os.fork()
    if child == 0:
        os.setsid()  # so that the programs started by tests end with them
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        import pytest  # noqa: PLC0415

        try:
            os._exit(pytest.main(arguments))
        finally:
            os._exit(pytest.ExitCode.INTERNAL_ERROR)
    end = time.monotonic() + limit_s
    code: int | None = None
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


if __name__ == "__main__":
    _serve()
