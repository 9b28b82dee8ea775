"""``python -m voice_ops.demo``, which `make demo` runs.

The demo is not a `voice` command, since it requires the sources of the images.
"""

import typer

from voice_ops.demo.command import demo

typer.run(demo)
