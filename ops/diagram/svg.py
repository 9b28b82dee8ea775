"""A graph as SVG, laid out by Graphviz compiled to WebAssembly (npm's ``@viz-js/viz``)."""

import re
import shutil
import subprocess
from pathlib import Path

from ops.diagram import dot
from ops.diagram.graph import Graph

_SCRIPT = Path(__file__).with_name("layout.mjs")


class LayoutError(Exception):
    """Graphviz could not be run; the message says what to do."""


def render(graph: Graph) -> str:
    """Return the graph as SVG; the same graph gives the same text.

    Raises:
        LayoutError: If Node or the npm package is missing.
    """
    node = shutil.which("node")
    if node is None:
        raise LayoutError("Node.js is not installed; run `make setup`")
    laid_out = subprocess.run(  # noqa: S603
        [node, str(_SCRIPT)], input=dot.render(graph), capture_output=True, encoding="utf-8", check=False
    )
    if laid_out.returncode != 0:
        if "ERR_MODULE_NOT_FOUND" in laid_out.stderr:
            raise LayoutError("the npm package @viz-js/viz is not installed; run `make setup`")
        raise LayoutError(f"Graphviz failed: {laid_out.stderr.strip()}")
    # Without a size of its own the picture fills whatever shows it, and still has its proportions.
    return re.sub(r'(<svg) width="\d+pt" height="\d+pt"', r"\1", laid_out.stdout, count=1)
