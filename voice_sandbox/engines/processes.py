"""Engines, caches and routers as processes on this machine, which can be started, stopped, killed and frozen."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
from prometheus_client.parser import text_string_to_metric_families

from voice_sandbox.engines.substitutions import RenderedProcess

ROOT = Path(__file__).parents[2]
VENV_FOLDER = ROOT / ".tools/engines"
"""Virtual environment that ``make test-engines`` installs."""
MODELS_FOLDER = VENV_FOLDER / "models"
LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 600.0
"""Startup timeout of an engine, which is ready after 25 s on two idle cores and after minutes on busy ones."""
STOP_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.2
_INHERITED_VARIABLES = ("LANG", "LC_ALL", "TMPDIR")


class EngineError(Exception):
    """A process did not behave as expected. The message contains the end of its log."""


_EXIT_TIMEOUT_S = 60.0
"""Exit timeout of a killed process, which frees the engine's memory before it exits."""


def _is_port_in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


@dataclass
class EngineProcess:
    """A process of an engine, with its log.

    Attributes:
        url: Base URL; the health path is appended.
    """

    name: str
    process: RenderedProcess
    folder: Path
    url: str
    health_path: str = "/health"
    _child: "subprocess.Popen[bytes] | None" = None
    _suspended_processes: list[psutil.Process] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """File with the output of the process."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Process id."""
        if self._child is None:
            raise EngineError(f"{self.name} was not started")
        return self._child.pid

    def start(self) -> Self:
        """Start the process without waiting.

        Raises:
            EngineError: The engines' environment is missing, or another process uses the port.
        """
        port = urllib.parse.urlsplit(self.url).port
        if port and _is_port_in_use(port):
            raise EngineError(f"{self.name}: port {port} is in use: stop the process that listens on it")
        program = shutil.which(self.process.argv[0], path=self._build_search_path())
        if program is None:
            raise EngineError(
                f"{self.process.argv[0]} is not installed: run make test-engines, and install tests/packages.txt"
            )
        for path, text in self.process.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in ("HOME", "TMPDIR"):
            if name in self.process.environment:
                Path(self.process.environment[name]).mkdir(parents=True, exist_ok=True)
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        environment = {"PATH": self._build_search_path(), **inherited, **self.process.environment}
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(  # noqa: S603  a launcher's command
                [program, *self.process.argv[1:]],
                env=environment,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def wait_until_ready(self, within_s: float = READY_TIMEOUT_S) -> Self:
        """Wait until the process is ready.

        Raises:
            EngineError: The process exited, or is not ready in time.
        """
        limit = time.monotonic() + within_s
        while self.fetch_health_status() != 200:  # noqa: PLR2004
            if self.get_exit_code() is not None:
                raise EngineError(f"{self.name} ended with {self.get_exit_code()}:\n{self.read_log_tail()}")
            if time.monotonic() > limit:
                raise EngineError(
                    f"{self.name} did not respond at {self.url}{self.health_path} within {within_s:.0f} "
                    f"s:\n{self.read_log_tail()}"
                )
            time.sleep(_POLL_INTERVAL_S)
        return self

    def fetch_health_status(self, timeout_s: float = 5.0) -> int | None:
        """Return the HTTP status of the health path, or ``None`` while the process does not respond."""
        try:
            with urllib.request.urlopen(self.url + self.health_path, timeout=timeout_s) as answer:  # noqa: S310  this machine
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def get_exit_code(self) -> int | None:
        """Return the exit code, or ``None`` while the process runs."""
        return self._child.poll() if self._child else None

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        if self._child and self._child.poll() is None:
            self._child.terminate()

    def wait(self, within_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process exits, and return the exit code.

        Raises:
            EngineError: The process does not exit in time.
        """
        if self._child is None:
            raise EngineError(f"{self.name} was not started")
        try:
            return self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{self.name} did not exit within {within_s:.0f} s:\n{self.read_log_tail()}") from None

    def kill(self) -> None:
        """Kill the process and its children, as if the node had been lost.

        Wait until all of them have exited, since they share the port.
        """
        self.resume_processes()
        if self._child:
            children: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            for each in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            self._child.wait()
            psutil.wait_procs(children, timeout=_EXIT_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the process, and kill it after a timeout."""
        self.resume_processes()
        self.terminate()
        with contextlib.suppress(EngineError):
            if self._child:
                self.wait(10.0)
        self.kill()

    def suspend_engine_cores(self) -> None:
        """Suspend the compute processes while the HTTP server keeps running, as if the engine's device had hung.

        Raises:
            EngineError: The engine has no such processes.
        """
        cores = [
            each
            for each in psutil.Process(self.pid).children(recursive=True)
            if "EngineCore" in _read_command_line(each)
        ]
        if not cores:
            raise EngineError(f"{self.name} has no process EngineCore")
        for each in cores:
            each.suspend()
        self._suspended_processes = cores

    def suspend_processes(self) -> None:
        """Suspend all processes, as if the node had hung."""
        parent = psutil.Process(self.pid)
        self._suspended_processes = [parent, *parent.children(recursive=True)]
        for each in self._suspended_processes:
            each.suspend()

    def resume_processes(self) -> None:
        """Resume all suspended processes."""
        for each in self._suspended_processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()
        self._suspended_processes = []

    def read_log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        if not self.log.exists():
            return "it wrote no log"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def fetch_metrics(self, path: str = "/metrics") -> dict[str, float]:
        """Return the value of each published metric, summed over its labels."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:  # noqa: S310  this machine
            text = answer.read().decode()
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    @staticmethod
    def _build_search_path() -> str:
        return f"{VENV_FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"


def _read_command_line(process: psutil.Process) -> str:
    try:
        return " ".join([process.name(), *process.cmdline()])
    except psutil.Error:
        return ""


@contextlib.contextmanager
def run_processes(*processes: EngineProcess) -> Iterator[tuple[EngineProcess, ...]]:
    """Start processes concurrently, wait until all are ready, and stop them in reverse order."""
    started: list[Any] = []
    try:
        started.extend(each.start() for each in processes)
        for each in processes:
            each.wait_until_ready()
        yield processes
    finally:
        for each in reversed(started):
            each.stop()
