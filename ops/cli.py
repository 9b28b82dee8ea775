"""The `voice` command: one function per sub-command, each in a module of its own."""

import typer

from ops.call import command as call
from ops.checks import command as checks
from ops.cost import command as cost
from ops.diagram import command as diagram
from ops.drain import command as drain
from ops.exits import HELP
from ops.images import command as images
from ops.loadtest import command as loadtest
from ops.plan import command as plan
from ops.preflight import command as preflight
from ops.preview import command as preview
from ops.sandbox import command as sandbox
from ops.schema import command as schema
from ops.simulate import command as simulate
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
app.command("schema", epilog=HELP)(schema.schema)
app.command("call", epilog=HELP)(call.call)
app.command("bench", epilog=HELP)(loadtest.bench)


def main() -> None:
    """Run the command line."""
    app()
