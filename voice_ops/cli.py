"""The `voice` command. Modules of sub-commands are imported on use, so that `voice --help` starts quickly."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from errno import EDQUOT, EIO, ENOSPC
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer._click import Command, Context, Parameter  # typer contains a vendored click
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from voice_ops.exits import EXIT_CODES_HELP, FAILED, INVALID_INPUT
from voice_ops.extras import find_extra
from voice_ops.output import create_exit, print_error, print_json

COMMANDS = {
    "init": "Write a deployment file for a cloud, region, number of calls and budget.",
    "new": "Create a repository with a deployment file, entry points and CI pipelines.",
    "plan": "Check a deployment file, and show its fleets, pools, sizes and problems.",
    "preflight": "Check an account's permissions, quotas, capacity, domain and model access before a deploy.",
    "diagram": "Draw a diagram of a deployment from its CloudFormation templates.",
    "preview": "Show the resources that a deployment would create, without access to the cloud.",
    "dashboards": "Write the dashboards of an Azure section as Grafana JSON.",
    "images": "List, build, publish and verify container images, and propose machine images.",
    "simulate": "Simulate callers, scaling and failures with the scaling rules of a file.",
    "calibrate": "Measure the calls per host with a load test, and write the result to the file.",
    "sandbox": "Deploy a file's stacks to an AWS emulator, run drills, delete the stacks, and run the Pulumi programs.",
    "gameday": "Rehearse failures, and show affected calls, time to recover and the runbook for each.",
    "cost": "Estimate the cost of a deployment, by tier and per hour of audio.",
    "status": "Show the fleets, alarms, drift, image versions and cost to date of a deployment.",
    "rollout": "Show which hosts a deploy would replace, or deploy and follow the replacement.",
    "rotate": "Rotate the passwords of the state store's users, in two runs.",
    "restore": "List the state store's snapshots, take one, or restore the store from one.",
    "drain": "Drain a host: it finishes its sessions and is then terminated.",
    "prune": "Drain and delete the stacks of fleets, agents and regions that were removed from a file.",
    "teardown": "Delete the stacks of a deployment, and list the resources that remain.",
    "checks": "List all checks with their rules, levels and sources.",
    "schema": "Print the JSON schema of deployment files.",
    "call": "Stream a recording in real time, and print the transcripts as they arrive.",
    "loadtest": "Load test an endpoint: latency, throughput, starved streams, goodput and cost.",
}
"""Commands in `voice_ops/<command>/command.py`, with the first paragraph of their help. A test compares both."""

COMMANDS_BY_PANEL = {
    "Start": ("init", "new", "schema"),
    "Check a file": ("plan", "checks", "cost", "diagram", "preview", "simulate", "gameday", "sandbox"),
    "Deploy": ("preflight", "images", "dashboards", "rollout", "prune", "teardown"),
    "Operate": ("status", "drain", "rotate", "restore"),
    "Measure": ("call", "loadtest", "calibrate"),
}
"""Commands by panel in `voice --help`."""

RENAMED_COMMANDS = {"bench": "loadtest"}

RENAMED_OPTIONS = {
    "calibrate": {"--most": "--max-calls"},
    "cost": {"--utilisation": "--utilization"},
    "restore": {"--of": "--source-snapshot"},
    "rollout": {"--said": "--transcript"},
    "simulate": {"--peers": "--compare-autoscalers"},
}
"""Options from release 0.1.0 that are still accepted, with their names in the next release."""

STDOUT_ERRNOS = {ENOSPC, EDQUOT, EIO}
"""Error numbers for writes to a full or broken disk. An error without a file name may concern standard output."""
MIN_FREE_DISK_BYTES = 2**25
"""Minimum free disk space for a synthesis, in bytes. A disk with less free space counts as full."""


def load_command(name: str) -> Command:
    """Import the module of a command, and return the command or command group.

    Raises:
        ModuleNotFoundError: An extra is not installed.
    """
    module = import_module(f"voice_ops.{name}.command")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(name, epilog=EXIT_CODES_HELP)(getattr(module, name))
    command = get_command(group)
    for each in (command, *(command.commands.values() if isinstance(command, TyperGroup) else ())):
        _format_help(each)
    return command


def _format_help(command: Command) -> None:
    """Join the lines of each paragraph of a command's help, and hide the type of flags."""
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    _hide_flag_types(command.get_params(Context(command)))


def _hide_flag_types(parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""


class CommandGroup(TyperGroup):
    """Command group that lists all commands without importing them, and imports the invoked command."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401  TyperGroup has twenty parameters
        super().__init__(**attributes)
        _format_help(self)
        panels = {name: panel for panel, names in COMMANDS_BY_PANEL.items() for name in names}
        self.commands = {
            name: TyperCommand(name, help=COMMANDS[name], rich_help_panel=panels[name])
            for name in sorted(COMMANDS, key=list(panels).index)
        }

    def get_params(self, ctx: Context) -> list[Parameter]:
        parameters = super().get_params(ctx)
        _hide_flag_types(parameters)  # including those of completion, which typer adds last
        return parameters

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run the command line. Errors in arguments and on standard output are reported like all other errors."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            if not standalone_mode:
                return code
            sys.stdout.flush()
        except ClickException as error:
            if not standalone_mode:
                raise
            _report_usage_error(error, as_json="--json" in (sys.argv[1:] if args is None else args))
        except typer.Abort:
            print_error("aborted")
            sys.exit(FAILED)
        except OSError as error:
            if error.errno not in STDOUT_ERRNOS:
                raise
            if error.filename is not None or (full_disk := _find_folder_on_full_disk()):
                print_error(
                    f"{error.filename or full_disk}: {error.strerror}; free some space and run the command again"
                )
                sys.exit(FAILED)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # further writes can no longer fail
            print_error(f"standard output: {error.strerror}")
            sys.exit(FAILED)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if args[0] in RENAMED_COMMANDS:
            ctx.fail(f"`voice {args[0]}` was renamed to `voice {RENAMED_COMMANDS[args[0]]}`")
        name, listed, arguments = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name
        renamed = RENAMED_OPTIONS.get(name or "", {})
        for position, argument in enumerate(arguments):
            option, equals, value = argument.partition("=")
            arguments[position] = renamed.get(option, option) + equals + value
        return name, load_command(name) if name else listed, arguments

    def invoke(self, ctx: Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            command = ctx.invoked_subcommand or ""
            extra = find_extra(error.name or "", command)
            if extra is None:
                raise
            text = f"voice {command} requires the extra `{extra}`: pip install 'voice-serve[{extra}]'"
            raise create_exit(text, INVALID_INPUT) from None


def _find_folder_on_full_disk() -> str | None:
    """Return the temporary or current folder if its disk is full, or None."""
    folders = (tempfile.gettempdir(), Path.cwd())
    return next((str(folder) for folder in folders if shutil.disk_usage(folder).free < MIN_FREE_DISK_BYTES), None)


def _report_usage_error(error: ClickException, *, as_json: bool) -> NoReturn:
    """Print an error in the command line with a hint, or the help if there are no arguments, and exit."""
    context: Context | None = getattr(error, "ctx", None)
    if isinstance(error, NoArgsIsHelpError):
        error.show()
    else:
        print_error(error.format_message() + (f"\nsee `{context.command_path} --help`" if context else ""))
        if as_json:
            print_json({"refused": True, "problems": [error.format_message()]})
    sys.exit(error.exit_code)


app = typer.Typer(
    cls=CommandGroup,
    name="voice",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version  # noqa: PLC0415  slow to import

        typer.echo(f"voice {version('voice-serve')}")
        raise typer.Exit


@app.callback()
def voice(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Provision a real-time voice AI platform from one deployment file, and rehearse it on this machine."""
