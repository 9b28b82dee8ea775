"""``python -m voice_ops.demo``, which `make demo` runs.

It is not a `voice` command, since it needs the images' sources.
"""

import typer

from voice_ops.demo.command import demo

typer.run(demo)
