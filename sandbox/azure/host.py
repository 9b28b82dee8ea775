"""The language host: runs one Pulumi program through `pulumi.runtime`, once for each engine, in a fork of its own.

`python -m sandbox.azure.host <settings as JSON>`; the last lines of a run's output name the program's error, if it has
one. Exits with 1 when a run fails.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

# What a program and its SDKs make lives until the program ends.
gc.disable()

import pulumi.log  # noqa: E402
import pulumi.runtime  # noqa: E402
from pulumi.runtime.proto.source_pb2 import StackTrace  # noqa: E402
from pulumi.runtime.settings import Settings, configure  # noqa: E402
from pulumi.runtime.stack import run_in_stack  # noqa: E402

from sandbox.azure.child import end_with_parent  # noqa: E402
from sandbox.azure.errors import FAILURE_MARK  # noqa: E402


def main() -> int:
    """Run the program for each engine; return 1 where a run fails."""
    settings = json.loads(sys.argv[1])
    program = Path(settings["program"])
    _import_first(program)
    for run in settings["runs"]:
        _fork(settings, run, program)
    end_with_parent()
    # The first that fails ends the others: they see their parent gone.
    return int(any(os.wait()[1] for _ in settings["runs"]))


def _import_first(program: Path) -> None:
    """Import what the program imports from elsewhere, so that its runs share it.

    What cannot be imported fails again in the run, which says so.
    """
    with suppress(SyntaxError):
        for node in ast.parse(program.read_text(encoding="utf-8")).body:
            with suppress(Exception):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        __import__(alias.name)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    __import__(node.module, fromlist=[alias.name for alias in node.names])


def _fork(settings: Mapping[str, Any], run: Mapping[str, Any], program: Path) -> None:
    """Run the program in a process of its own."""
    if os.fork():
        return
    code = 1
    try:
        end_with_parent()
        output = os.open(run["output"], os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
        code = _run(settings, run, program)
    finally:
        os._exit(code)


def _run(settings: Mapping[str, Any], run: Mapping[str, Any], program: Path) -> int:
    pulumi.runtime.set_all_config(settings["config"], settings["secret_keys"])
    configure(
        Settings(
            project=settings["project"],
            stack=settings["stack"],
            organization="local",
            monitor=run["engine"],
            engine=run["engine"],
            dry_run=run["dry_run"],
            root_directory=str(program.parent),
        )
    )
    # Every debug message is a round trip to the engine, which has no use for them.
    pulumi.log.debug = _ignore
    # The engine is told of aliases as they are given. Their URNs are for older engines, and azure-native has thousands.
    pulumi.resource.collapse_alias_to_urn = _ignore  # type: ignore[attr-defined, assignment]
    # Nor is it told where in a program each resource is declared, which would be read from the sources.
    pulumi.runtime.resource._get_stack_trace = StackTrace
    sys.path.insert(0, str(program.parent))
    sys.argv = [str(program)]
    try:
        asyncio.run(_in_stack(program))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a program raises is its answer
        if isinstance(error, SystemExit) and not error.code:
            return 0
        print(f"{FAILURE_MARK}\n{_text(error, program)}", file=sys.stderr)
        return 1
    return 0


def _ignore(*_arguments: object, **_options: object) -> None:
    """Do nothing."""


async def _in_stack(program: Path) -> None:
    # One thread: the engine hears of resources in the order in which the program reaches them, in every run.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))

    def execute() -> None:
        runpy.run_path(str(program), run_name="__main__")

    await run_in_stack(execute)


def _text(error: BaseException, program: Path) -> str:
    """Return an error with the program's own frames: those of the host and of Pulumi tell nobody anything."""
    if isinstance(error, pulumi.RunError):
        return str(error)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename, program)]
    frames = "".join(traceback.format_list(own[-4:]))
    return frames + "".join(traceback.format_exception_only(error))


def _is_own(filename: str, program: Path) -> bool:
    if filename.startswith("<frozen") or "site-packages" in filename or filename == __file__:
        return False
    return not filename.startswith(str(Path(runpy.__file__ or "").parent)) or filename.startswith(str(program.parent))


if __name__ == "__main__":
    sys.exit(main())
