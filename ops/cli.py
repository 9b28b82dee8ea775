"""The `voice` command. A sub-command's module is imported when it is invoked, so that `voice --help` imports none."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from errno import EDQUOT, EIO, ENOSPC
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer._click import Command, Context  # typer carries a click of its own
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ops.exits import FAILED, HELP, REFUSED
from ops.extras import extra_of
from ops.output import complain, stop

COMMANDS = {
    "init": "Write a first deployment file from four answers: cloud, region, calls, budget.",
    "plan": "Check a deployment file; show its fleets, pools, sizing and what speaks against it.",
    "preflight": "Ask the account whether it takes a deployment: permissions, quotas, offers, domain, models.",
    "diagram": "Draw a deployment from its CloudFormation templates: callers, tiers, traffic, scaling signals.",
    "preview": "Show what a deployment would create in a cloud, without asking the cloud.",
    "dashboards": "Write the dashboards of an Azure half as Grafana's JSON.",
    "images": "List the container images, print how to publish one, rehearse their build; propose machine images.",
    "simulate": "Simulate callers and scaling by the file's own rules, and by those that others use.",
    "calibrate": "Measure how many calls a host carries, and write it into the file with date and conditions.",
    "sandbox": "Rehearse a file: deploy it to a local AWS, drill it, tear it down; run its Pulumi programs.",
    "gameday": "Play a bad day: what each loss costs callers, how long it lasts, and which runbook covers it.",
    "cost": "Price a deployment from its templates and its Pulumi graph: by tier and by audio hour.",
    "status": "Show fleets, alarms, drift, image versions, protection and cost so far of a deployed file.",
    "rollout": "Show which hosts a deploy would replace: order, duration, additional vCPUs, alarms that take it back.",
    "rotate": "Rotate the passwords of the state store's users: begin, and when run again later, end.",
    "restore": "Show the state store's snapshots, and what a restore from the file's `state.restore_from` would do.",
    "drain": "Let a host finish its sessions, and have its group terminate it.",
    "teardown": "Show what goes, what stays and what that costs; delete the stacks; say what is left.",
    "checks": "List every check: what must hold, how much it matters, where the rule comes from.",
    "schema": "Print the JSON schema of deployment files.",
    "call": "Speak a recording in real time, and print what is heard as it comes.",
    "loadtest": "Put an endpoint under load: latency, throughput, starved streams, goodput, cost.",
}
"""Each command of `ops/<command>/command.py` with the first paragraph of its help; a test compares the two."""

RENAMED = {"bench": "loadtest"}

STDOUT_FAILS = {ENOSPC, EDQUOT, EIO}
"""Errors of a write to a full or broken disk; one without a file name may be of standard output."""
LEAST_FREE = 2**25
"""Bytes; a disk with less is full: a synth unpacks this much."""


def load_command(name: str) -> Command:
    """Import a command; return its group, or the command that its function makes.

    Raises:
        ModuleNotFoundError: An extra is not installed.
    """
    module = import_module(f"ops.{name}.command")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(name, epilog=HELP)(getattr(module, name))
    return get_command(group)


class Commands(TyperGroup):
    """Lists the commands by their first sentences, and imports the one that is invoked."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401  TyperGroup has twenty of them
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=about) for name, about in COMMANDS.items()}

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run the command line; what is wrong with it, or with standard output, is told as every other error is."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            if not standalone_mode:
                return code
            sys.stdout.flush()
        except ClickException as error:
            if not standalone_mode:
                raise
            _explain(error)
        except typer.Abort:
            complain("aborted")
            sys.exit(FAILED)
        except OSError as error:
            if error.errno not in STDOUT_FAILS:
                raise
            if error.filename is not None or (full := _full()):
                complain(f"{error.filename or full}: {error.strerror}; free some there, and run the command again")
                sys.exit(FAILED)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left unwritten fails no more
            complain(f"standard output: {error.strerror}")
            sys.exit(FAILED)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if args[0] in RENAMED:
            ctx.fail(f"`voice {args[0]}` is called `voice {RENAMED[args[0]]}`")
        name, listed, rest = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name
        return name, load_command(name) if name else listed, rest

    def invoke(self, ctx: Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            command = ctx.invoked_subcommand or ""
            extra = extra_of(error.name or "", command)
            if extra is None:
                raise
            text = f"voice {command} needs the extra `{extra}`: pip install 'voice-serve[{extra}]'"
            raise stop(text, REFUSED) from None


def _full() -> str | None:
    """Return what this program writes to, beside standard output, and is full."""
    folders = (tempfile.gettempdir(), Path.cwd())
    return next((str(folder) for folder in folders if shutil.disk_usage(folder).free < LEAST_FREE), None)


def _explain(error: ClickException) -> NoReturn:
    """Say what is wrong with the command line, and where to look; without any arguments that is the help itself."""
    context: Context | None = getattr(error, "ctx", None)
    if isinstance(error, NoArgsIsHelpError):
        error.show()
    else:
        complain(error.format_message() + (f"\nsee `{context.command_path} --help`" if context else ""))
    sys.exit(error.exit_code)


app = typer.Typer(
    cls=Commands,
    name="voice",
    epilog=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"voice {version('voice-serve')}")
        raise typer.Exit


@app.callback()
def voice(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Provision a real-time voice AI platform from one deployment file, and rehearse it on this machine."""


def main() -> None:
    """Run the command line."""
    app()
