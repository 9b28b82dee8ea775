"""Runs the engines' own parsers on command lines; a program of the engines' environment, not a test.

Reads a JSON list of ``{"argv", "environment", "configure"}`` from standard input, and writes a list of problems for
each. Imports take half a minute on busy cores, so one process handles all of them.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import vllm.envs
from lmcache.cli.commands import register_commands
from lmcache.v1.distributed.config import parse_args_to_config
from lmcache.v1.multiprocess.config import parse_args_to_mp_server_config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm_router.launch_router import parse_router_args


def main() -> None:
    """Parse each command line."""
    answer = sys.stdout
    sys.stdout = sys.stderr  # engines log to standard output
    json.dump([list(problems(**command)) for command in json.load(sys.stdin)], answer)


def problems(argv: list[str], environment: dict[str, str], *, configure: bool) -> Iterator[str]:
    """Yield the program's errors.

    Args:
        argv: The complete command line, including the program.
        environment: Variables of the launcher.
        configure: Also create the engine's configuration, which reads the model's files.
    """
    os.environ.update(environment)
    try:
        program = PurePath(argv[0]).name
        yield from _vllm(argv, environment, configure=configure) if program == "vllm" else _OTHER_PARSERS[program](argv)
    finally:
        for name in environment:
            os.environ.pop(name, None)


def _vllm(argv: list[str], environment: dict[str, str], *, configure: bool) -> Iterator[str]:
    for name in environment:
        if name.startswith("VLLM_") and name not in vllm.envs.environment_variables:
            yield f"vLLM has no variable {name}"
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    arguments, refused = _attempt(parser.parse_args, argv[2:])
    refused = refused or _attempt(validate_parsed_serve_args, arguments)[1]
    if configure and not refused:
        arguments.model = arguments.model_tag
        _, refused = _attempt(lambda: AsyncEngineArgs.from_cli_args(arguments).create_engine_config())
    if refused:
        yield refused


def _lmcache(argv: list[str]) -> Iterator[str]:
    parser = argparse.ArgumentParser(prog="lmcache")
    register_commands(parser.add_subparsers(dest="command"), argv[1:])
    arguments, refused = _attempt(parser.parse_args, argv[1:])
    if not refused:
        for make in (parse_args_to_mp_server_config, parse_args_to_config):
            refused = refused or _attempt(make, arguments)[1]
    if refused:
        yield refused


def _pd_router(argv: list[str]) -> Iterator[str]:
    _, refused = _attempt(lambda: parse_router_args(argv[1:])._validate_router_args())
    if refused:
        yield refused


_OTHER_PARSERS = {"lmcache": _lmcache, "vllm-router": _pd_router}


def _attempt(call: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:  # noqa: ANN401
    """Return a call's result, or its error; an argument parser writes it to standard error, and exits."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            return call(*arguments), None
        except SystemExit:
            return None, said.getvalue().rpartition(": error: ")[2].strip()
        except Exception as error:  # noqa: BLE001  any exception is a result
            return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
