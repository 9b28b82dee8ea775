"""Runs of a Pulumi program on the local engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from voice_sandbox.azure.child import LanguageHost
from voice_sandbox.azure.errors import FAILURE_MARKER, ProgramError
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.monitor import LogService, ResourceMonitor, serve_engine
from voice_sandbox.azure.order import validate_creation_order
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import PreexistingResources, Recorder, RunMode

RUN_TIMEOUT_S = 120.0
_MAX_OUTPUT_LINES = 12


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        graph: Resources of the program, in the order of creation.
        mode: Mode of the run.
        duration_s: Duration, seconds.
        messages: Warnings of the program and of Pulumi's SDK.
    """

    graph: Graph
    mode: RunMode
    duration_s: float
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class _ActiveRun:
    """A run in progress: the engine's state, and the file with its output."""

    mode: RunMode
    recorder: Recorder
    messages: LogService
    output: Path


def run_project(
    project: Project, mode: RunMode, existing: PreexistingResources | None = None, timeout_s: float = RUN_TIMEOUT_S
) -> RunResult:
    """Run a project's program in a single mode, as `run_modes` does for several."""
    return run_modes(project, [mode], existing, timeout_s)[0]


def run_modes(
    project: Project,
    modes: Sequence[RunMode],
    existing: PreexistingResources | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
    host: LanguageHost | None = None,
) -> list[RunResult]:
    """Run a project's program once in each mode, concurrently. Nothing outside of this machine is accessed.

    The runs are forks of one process, since importing the SDKs takes longer than a program itself.

    Args:
        project: The project and stack.
        modes: Preview, or simulated up. A simulated up also checks that every resource waits for its dependencies.
        existing: Outputs and resources of previously created stacks.
        timeout_s: Timeout of the program, seconds.
        host: Language host; without one, a temporary host is created and stopped at the end.

    Raises:
        ProgramError: The program raised an exception or timed out; the message contains the end of its traceback.
        ResourceError: The engine rejected a resource or call, as a provider would.
        DependencyError: A resource does not wait for its dependency.
    """
    start = time.monotonic()
    with ExitStack() as exit_stack:
        folder = Path(exit_stack.enter_context(TemporaryDirectory(prefix="voice-run-")))
        served, runs = [], []
        for mode in modes:
            recorder = Recorder(project.name, project.stack, mode, existing or PreexistingResources())
            each = _ActiveRun(mode, recorder, LogService(), folder / mode.value)
            address = exit_stack.enter_context(serve_engine(ResourceMonitor(project, recorder), each.messages))
            served.append(each)
            runs.append({"engine": address, "dry_run": mode is RunMode.PREVIEW, "output": str(each.output)})
        request = {
            "program": str(project.program),
            "project": project.name,
            "stack": project.stack,
            "config": dict(project.config),
            "secret_keys": list(project.secret_keys),
            "runs": runs,
        }
        _wait_for_runs(
            host or exit_stack.enter_context(LanguageHost([project.program])), request, project, served, timeout_s
        )
    graphs = [each.recorder.build_graph() for each in served]
    duration_s = time.monotonic() - start
    for each, graph in zip(served, graphs, strict=True):
        if each.mode is RunMode.UP:
            validate_creation_order(graph)
    return [
        RunResult(graph, each.mode, duration_s, tuple(each.messages.lines))
        for each, graph in zip(served, graphs, strict=True)
    ]


def _wait_for_runs(
    host: LanguageHost, request: Mapping[str, Any], project: Project, served: list[_ActiveRun], timeout_s: float
) -> None:
    answer = host.send_request(request, timeout_s)
    for each in served:
        if each.recorder.failure:
            raise each.recorder.failure
    if answer is None:
        raise ProgramError(
            f"{project.name}: the program did not end within {timeout_s:g} s, after "
            f"{len(served[0].recorder.build_graph())} resources; it was stopped. "
            f"Its last output:\n{_select_last_lines(_read_run_output(host, served[0]))}"
        )
    if answer.get("code") != 0:
        outputs = [_read_run_output(host, each) for each in served]
        text = next((text for text in outputs if FAILURE_MARKER in text), outputs[0])
        raise ProgramError(
            f"{project.name}: the program failed\n{_select_last_lines(text.rpartition(FAILURE_MARKER)[2])}"
        )


def _read_run_output(host: LanguageHost, served: _ActiveRun) -> str:
    output = served.output.read_text(encoding="utf-8", errors="replace") if served.output.exists() else ""
    return output or host.read_stderr()


def _select_last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_MAX_OUTPUT_LINES:]) or "(nothing)"
