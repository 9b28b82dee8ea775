"""``python -m ops.demo``, which `make demo` runs. No part of `voice`: it needs the sources of the images beside it."""

import typer

from ops.demo.command import demo

typer.run(demo)
