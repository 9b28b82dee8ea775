"""One run of one Pulumi program against the local engine."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass

from sandbox.azure.child import Child
from sandbox.azure.errors import FAILURE_MARK, ProgramError
from sandbox.azure.graph import Graph
from sandbox.azure.monitor import Messages, Monitor, serve
from sandbox.azure.order import check_creation
from sandbox.azure.project import Project
from sandbox.azure.recorder import Existing, Mode, Recorder

TIMEOUT_S = 120.0
_LAST_LINES = 12
_POLL_S = 0.2


@dataclass(frozen=True)
class Run:
    """What a run came to.

    Attributes:
        graph: What the program declared, in the order of creation.
        mode: What the run did.
        duration_s: How long it took, in seconds.
        messages: Warnings of the program and of Pulumi's SDK.
    """

    graph: Graph
    mode: Mode
    duration_s: float
    messages: tuple[str, ...] = ()


def run(
    project: Project,
    mode: Mode,
    existing: Existing | None = None,
    timeout_s: float = TIMEOUT_S,
    stop: threading.Event | None = None,
) -> Run:
    """Run a project's program; nothing outside this machine is asked or changed.

    Args:
        project: The project and stack.
        mode: Preview, or simulated up. An up also proves that every resource waits for what it needs.
        existing: Outputs and resources of stacks that were created before.
        timeout_s: Seconds after which the program is stopped.
        stop: Stops the program when it is set, for runs in a thread: Ctrl-C reaches only the main one.

    Raises:
        ProgramError: The program raised or did not end in time; the text has its own traceback's last lines.
        ResourceError: The engine refused something, as a provider would.
        OrderError: A resource does not wait for another that it needs.
    """
    start = time.monotonic()
    recorder = Recorder(project.name, project.stack, mode, existing or Existing())
    messages = Messages()
    with serve(Monitor(project, recorder), messages) as address:
        settings = {
            "program": str(project.program),
            "project": project.name,
            "stack": project.stack,
            "config": dict(project.config),
            "secret_keys": list(project.secret_keys),
            "dry_run": mode is Mode.PREVIEW,
            "engine": address,
        }
        with Child("sandbox.azure.host", json.dumps(settings), cwd=project.folder, environment={}) as child:
            _wait(child, project, recorder, timeout_s, stop or threading.Event())
    graph = recorder.graph()
    if mode is Mode.UP:
        check_creation(graph)
    return Run(graph, mode, time.monotonic() - start, tuple(messages.lines))


def _wait(child: Child, project: Project, recorder: Recorder, timeout_s: float, stop: threading.Event) -> None:
    code = _exit_code(child, timeout_s, stop)
    if code is None:
        reason = "was interrupted" if stop.is_set() else f"did not end within {timeout_s:g} s"
        raise ProgramError(
            f"{project.name}: the program {reason}, after {len(recorder.graph())} resources; "
            f"it was stopped. Its last output:\n{_tail(child.errors())}"
        )
    if recorder.failure:
        raise recorder.failure
    if code:
        text = child.errors()
        said, _, failure = text.rpartition(FAILURE_MARK)
        raise ProgramError(f"{project.name}: the program failed\n{_tail(failure if said or failure else text)}")


def _exit_code(child: Child, timeout_s: float, stop: threading.Event) -> int | None:
    """Wait for a program's end; return `None` where it has not ended in time or is to be stopped."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not stop.is_set():
        try:
            return child.process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue
    return None


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:]) or "(nothing)"
