"""``python -m ops.demo.agent``, which `make demo-agent` runs."""

import typer

from ops.demo.agent.command import demo

typer.run(demo)
