"""The language host: runs one Pulumi program through `pulumi.runtime`, in a process of its own.

`python -m sandbox.azure.host <settings as JSON>`; the last line of stderr names the program's error, if it has one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulumi.log
import pulumi.runtime
from pulumi.runtime.settings import Settings, configure
from pulumi.runtime.stack import run_in_stack

from sandbox.azure.errors import FAILURE_MARK


def main() -> int:
    """Run the program; return its exit code."""
    settings = json.loads(sys.argv[1])
    program = Path(settings["program"])
    pulumi.runtime.set_all_config(settings["config"], settings["secret_keys"])
    configure(
        Settings(
            project=settings["project"],
            stack=settings["stack"],
            organization="local",
            monitor=settings["engine"],
            engine=settings["engine"],
            dry_run=settings["dry_run"],
            root_directory=str(program.parent),
        )
    )
    # Every debug message is a round trip to the engine, which has no use for them.
    pulumi.log.debug = _ignore
    # What a program makes lives until it ends.
    gc.disable()
    sys.path.insert(0, str(program.parent))
    sys.argv = [str(program)]
    try:
        asyncio.run(_run(program))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a program raises is its answer
        if isinstance(error, SystemExit) and not error.code:
            return 0
        print(f"{FAILURE_MARK}\n{_text(error, program)}", file=sys.stderr)
        return 1
    return 0


def _ignore(*_arguments: object, **_options: object) -> None:
    """Do nothing with a message."""


async def _run(program: Path) -> None:
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
