"""The language host: a process that imports the dependencies of programs and policy packs, and forks to run them.

The command is `python -m voice_sandbox.azure.host <socket> <programs>`. Requests and responses are lines of JSON.

* A request to run a program contains one run for each engine. The response contains `code`, which is 0 if no run
  failed. The last lines of a failed run's output contain the program's error.
* A request to start a policy pack is answered with the `port` on which the pack listens.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

# Objects of a program and its SDKs live until the program ends.
gc.disable()

import pulumi.runtime  # noqa: E402
from pulumi.runtime.settings import Settings, configure  # noqa: E402
from pulumi.runtime.stack import run_in_stack  # noqa: E402

from voice_sandbox.azure.errors import FAILURE_MARKER  # noqa: E402
from voice_sandbox.azure.sdk_calls import disable_provider_calls  # noqa: E402
from voice_sandbox.azure.sdk_imports import enable_lazy_imports  # noqa: E402

_OPEN_PIPES: list[IO[str]] = []
"""Stdout pipes of the policy packs, which remain open since the packs may still write."""


def main() -> None:
    """Process requests until the caller exits."""
    enable_lazy_imports()
    with socket.socket(fileno=int(sys.argv[1])) as caller, caller.makefile() as requests:
        for program in sys.argv[2:]:
            _import_dependencies(Path(program))
        for line in requests:
            request = json.loads(line)
            answer = _start_pack(request["pack"]) if "pack" in request else _run_program(request)
            caller.sendall(json.dumps(answer).encode())


def _run_program(request: Mapping[str, Any]) -> dict[str, int]:
    """Run a program once for each engine. The first failed run stops the others."""
    program = Path(request["program"])
    runs = {_fork(program.parent, partial(_run_in_process, request, run, program)) for run in request["runs"]}
    code = 0
    while runs and not code:
        ended, code = os.wait()
        runs.discard(ended)
    for run in runs:
        os.kill(run, signal.SIGKILL)
        os.waitpid(run, 0)
    return {"code": code}


def _start_pack(pack: Mapping[str, Any]) -> dict[str, int | None]:
    """Start a policy pack, and return the port that the pack reports, or `None` if the pack exits first."""
    read, write = os.pipe()

    def run() -> int:
        os.dup2(write, sys.stdout.fileno())
        os.close(write)
        os.environ["PULUMI_CONFIG"] = json.dumps(pack["config"])
        sys.argv = ["pulumi.policy", pack["engine"], pack["folder"]]
        runpy.run_module("pulumi.policy", run_name="__main__", alter_sys=True)
        return 0

    _fork(Path(pack["folder"]), run)
    os.close(write)
    # The pack may write more, so the pipe stays open.
    lines = os.fdopen(read)
    _OPEN_PIPES.append(lines)
    return {"port": next((int(line) for line in lines if line.strip().isdigit()), None)}


def _import_dependencies(program: Path) -> None:
    """Import the program's external dependencies, which its runs share.

    A failed import is repeated in the run, which reports the error.
    """
    with suppress(SyntaxError):
        for node in ast.parse(program.read_text(encoding="utf-8")).body:
            with suppress(Exception):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        __import__(alias.name)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    __import__(node.module, fromlist=[alias.name for alias in node.names])


def _fork(folder: Path, work: Callable[[], int]) -> int:
    """Run a function in a separate process, which exits with the caller, and return the process id."""
    if process := os.fork():
        return process
    code = 1
    try:
        threading.Thread(target=_exit_with_caller, daemon=True).start()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        code = work()
    finally:
        os._exit(code)


def _exit_with_caller() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _run_in_process(settings: Mapping[str, Any], run: Mapping[str, Any], program: Path) -> int:
    output = os.open(run["output"], os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
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
    disable_provider_calls()
    sys.argv = [str(program)]
    try:
        asyncio.run(_run_in_stack(program))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of a program is its result
        if isinstance(error, SystemExit) and not error.code:
            return 0
        print(f"{FAILURE_MARKER}\n{_format_error(error, program)}", file=sys.stderr)
        return 1
    return 0


async def _run_in_stack(program: Path) -> None:
    # A single thread is used, so that resources are always registered in the order of the program.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))

    def execute() -> None:
        runpy.run_path(str(program), run_name="__main__")

    await run_in_stack(execute)


def _format_error(error: BaseException, program: Path) -> str:
    """Format an error with the program's own stack frames, without those of the language host and Pulumi."""
    if isinstance(error, pulumi.RunError):
        return str(error)
    user_frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_code(frame.filename, program)
    ]
    frames = "".join(traceback.format_list(user_frames[-4:]))
    return frames + "".join(traceback.format_exception_only(error))


def _is_user_code(filename: str, program: Path) -> bool:
    if filename.startswith("<frozen") or "site-packages" in filename or filename == __file__:
        return False
    return not filename.startswith(str(Path(runpy.__file__ or "").parent)) or filename.startswith(str(program.parent))


if __name__ == "__main__":
    main()
