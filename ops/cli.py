"""The `voice` command. A sub-command's module is imported when it is invoked, so that `voice --help` imports none."""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer._click import Command, Context  # typer carries a click of its own
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ops.exits import HELP, REFUSED
from ops.extras import extra_of
from ops.output import stop

COMMANDS = {
    "init": "Write a first deployment file from four answers: cloud, region, calls, budget.",
    "plan": "Check a deployment file; show its fleets, pools, sizing and what speaks against it.",
    "preflight": "Ask the account whether it takes a deployment: permissions, quotas, offers, domain, models.",
    "diagram": "Draw a deployment from its CloudFormation templates: callers, tiers, traffic, scaling signals.",
    "preview": "Show what a deployment would create in a cloud, without asking the cloud.",
    "dashboards": "Write the dashboards of an Azure half as Grafana's JSON.",
    "images": "List the container images, print how to publish one, rehearse their build; propose machine images.",
    "simulate": "Simulate callers and scaling by the file's own rules, and by those that others use.",
    "sandbox": "Rehearse a file: deploy it to a local AWS, drill it, tear it down; run its Pulumi programs.",
    "cost": "Price a deployment from its templates and its Pulumi graph: by tier and by audio hour.",
    "status": "Show fleets, alarms, drift, image versions and cost so far of a deployed file.",
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
