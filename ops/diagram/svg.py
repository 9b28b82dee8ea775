"""A graph as SVG, laid out by Graphviz compiled to WebAssembly (npm's ``@viz-js/viz``)."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ops.diagram import dot
from ops.diagram.graph import Graph

_SCRIPT = Path(__file__).with_name("layout.mjs")


class Style(NamedTuple):
    """What a text's width depends on; ``size`` in the picture's units."""

    text: str
    size: float
    bold: bool


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
    output = json.loads(laid_out.stdout)
    # Without a size of its own the picture fills whatever shows it, and still has its proportions.
    picture = re.sub(r'(<svg) width="\d+pt" height="\d+pt"', r"\1", output["svg"], count=1)
    return _with_text_lengths(picture, dict(_widths(json.loads(output["json"]))))


def _with_text_lengths(picture: str, widths: Mapping[Style, float]) -> str:
    """Give each text the width that its box was drawn for, so that it fits whatever font the reader has."""

    def lengthened(found: re.Match[str]) -> str:
        attributes, size, written = found.groups()
        style = Style(_plain(html.unescape(written)), float(size), 'font-weight="bold"' in attributes)
        return f'<text{attributes} textLength="{widths[style]:g}" lengthAdjust="spacingAndGlyphs">{written}</text>'

    return re.sub(r'<text([^>]* font-size="([\d.]+)"[^>]*)>([^<]*)</text>', lengthened, picture)


def _widths(drawn: object) -> Iterator[tuple[Style, float]]:
    """Yield each text of Graphviz' drawing operations (``_draw_``, ``_ldraw_``, ...) and its width."""
    if isinstance(drawn, dict):
        for name, value in drawn.items():
            yield from _operations(value) if name.endswith("draw_") else _widths(value)
    elif isinstance(drawn, list):
        for each in drawn:
            yield from _widths(each)


def _operations(operations: list[dict[str, Any]]) -> Iterator[tuple[Style, float]]:
    size, bold = 0.0, False
    for each in operations:
        match each["op"]:
            case "F":
                size = each["size"]
            case "t":
                bold = bool(each["fontchar"] & 1)
            case "T":
                yield Style(_plain(each["text"]), size, bold), each["width"]


def _plain(text: str) -> str:
    """Return text with ordinary spaces: Graphviz writes some as no-break spaces, and into SVG more than into JSON."""
    return text.replace("\xa0", " ")
