"""Pulumi programs run in this process with the local engine: half a second per run, one run per deployment.

It is the engine of `voice preview`, without gRPC, so that tests receive its exceptions.
"""

import asyncio
import contextlib
import gc
import io
import runpy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pulumi.runtime
from pulumi.runtime.settings import Settings, configure
from pulumi.runtime.stack import run_in_stack

import voice_stacks
from tests.blueprint import documents
from tests.blueprint.documents import DEPLOYMENTS, Edits
from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.azure.monitor import LogService, ResourceMonitor
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import PreexistingResources, Recorder, RunMode
from voice_sandbox.azure.sdk_calls import disable_provider_calls
from voice_sandbox.azure.values import reveal_secrets

PROJECTS = Path(voice_stacks.__file__).parent / "azure"
STACK = "test"


def record(
    project: str, deployment: str, existing: PreexistingResources | None = None, mode: RunMode = RunMode.UP
) -> Graph:
    """Run the program of a project in `stacks/voice_stacks/azure` with a deployment file's text.

    Raises:
        Exception: The program's or the engine's error.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "deployment.yaml"
        file.write_text(deployment, encoding="utf-8")
        return _run(
            Project.load(PROJECTS / project, STACK, {"deployment": str(file)}), mode, existing or PreexistingResources()
        )


@cache
def cluster(deployment: str, mode: RunMode = RunMode.UP) -> Graph:
    """Record the cluster's program."""
    return record("cluster", deployment, mode=mode)


def edit_deployment(edits: Edits, base: str = "cells") -> str:
    """Return a shipped deployment file's text with some values replaced, added or removed."""
    return documents.edit_document(edits, (DEPLOYMENTS / f"{base}.yaml").read_text(encoding="utf-8"))


def inputs(resource: Resource) -> dict[str, Any]:
    """Return a program's inputs with secrets in plain text."""
    return dict(reveal_secrets(resource.inputs))


def azure_resources(graph: Graph) -> Iterator[Resource]:
    """Yield the resources that Azure would create."""
    return (resource for resource in graph.iter_managed_resources() if resource.type.startswith("azure-native:"))


class _Refusal:
    """Replacement of gRPC's context that raises refusals as exceptions in the program."""

    def abort(self, code: object, details: str) -> None:
        raise RuntimeError(f"{code}: {details}")


class _Direct:
    """Stub that calls the engine's services as functions."""

    def __init__(self, service: object) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        method = getattr(self._service, name)
        return lambda request: method(request, _Refusal())


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """The SDK creates tens of thousands of tasks and futures in a run; collecting garbage takes longer than the run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(project: Project, mode: RunMode, existing: PreexistingResources) -> Graph:
    recorder = Recorder(project.name, project.stack, mode, existing)
    disable_provider_calls()
    pulumi.runtime.set_all_config(dict(project.config), list(project.secret_keys))
    configure(
        Settings(
            project=project.name,
            stack=project.stack,
            organization="local",
            monitor=_Direct(ResourceMonitor(project, recorder)),
            engine=_Direct(LogService()),
            dry_run=mode is RunMode.PREVIEW,
            root_directory=str(project.folder),
        )
    )

    def program() -> None:
        runpy.run_path(str(project.program), run_name="__main__")

    async def stack() -> None:
        # One thread: resources are registered in the program's order in every run.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
        await run_in_stack(program)

    # The SDK also prints every log message.
    with _without_garbage_collection(), contextlib.redirect_stderr(io.StringIO()):
        try:
            asyncio.run(stack())
        except Exception:
            if recorder.failure:
                raise recorder.failure from None
            raise
    return recorder.build_graph()
