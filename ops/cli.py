"""The `voice` command: one function per sub-command, each in a module of its own."""

import typer

from ops import checks, diagram, images, plan, preview, sandbox, simulate
from ops.call import command as call
from ops.cost import command as cost
from ops.drain import command as drain
from ops.exits import HELP
from ops.loadtest import command as loadtest
from ops.preflight import command as preflight
from ops.status import command as status
from ops.teardown import command as teardown

app = typer.Typer(
    name="voice",
    help="Provision a real-time voice AI platform from one deployment file, and rehearse it on this machine.",
    epilog=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("plan", epilog=HELP)(plan.plan)
app.command("preflight", epilog=HELP)(preflight.preflight)
app.command("diagram", epilog=HELP)(diagram.diagram)
app.add_typer(preview.app, name="preview")
app.add_typer(images.app, name="images")
app.command("simulate", epilog=HELP)(simulate.simulate)
app.command("sandbox", epilog=HELP)(sandbox.sandbox)
app.command("cost", epilog=HELP)(cost.cost)
app.command("status", epilog=HELP)(status.status)
app.command("drain", epilog=HELP)(drain.drain)
app.command("teardown", epilog=HELP)(teardown.teardown)
app.command("checks", epilog=HELP)(checks.list_checks)
app.command("call", epilog=HELP)(call.call)
app.command("bench", epilog=HELP)(loadtest.bench)


def main() -> None:
    """Run the command line."""
    app()
