"""The `voice` command: one function per sub-command, each in a module of its own."""

import typer

from ops import checks, diagram, images, plan, preview, sandbox
from ops.exits import HELP

app = typer.Typer(
    name="voice",
    help="Provision a real-time voice AI platform from one deployment file, and rehearse it on this machine.",
    epilog=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("plan", epilog=HELP)(plan.plan)
app.command("diagram", epilog=HELP)(diagram.diagram)
app.add_typer(preview.app, name="preview")
app.add_typer(images.app, name="images")
app.command("sandbox", epilog=HELP)(sandbox.sandbox)
app.command("checks", epilog=HELP)(checks.list_checks)


def main() -> None:
    """Run the command line."""
    app()
