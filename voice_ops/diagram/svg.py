"""Renders a graph as SVG. Graphviz, compiled to WebAssembly (npm's ``@viz-js/viz``), computes the layout."""

import html
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from voice_ops.diagram import dot
from voice_ops.diagram.graph import Graph
from voice_ops.output import err
from voice_sandbox.npm import NpmError, ensure_node_modules
from voice_stacks.node import NODE_EXECUTABLE

_LAYOUT_SCRIPT = Path(__file__).with_name("layout.mjs")


class StyledText(NamedTuple):
    """A text element and its font. ``size`` is in units of the diagram."""

    text: str
    size: float
    is_bold: bool


class LayoutError(Exception):
    """Graphviz could not be run."""


def render(graph: Graph) -> str:
    """Return the graph as SVG. The output is deterministic.

    Raises:
        LayoutError: The npm package is missing, or Graphviz fails.
    """
    try:
        packages = ensure_node_modules("@viz-js/viz", lambda line: err.print(line, soft_wrap=True))
    except NpmError as error:
        raise LayoutError(str(error)) from None
    layout = subprocess.run(  # noqa: S603
        [NODE_EXECUTABLE, _LAYOUT_SCRIPT, packages],
        input=dot.render(graph),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if layout.returncode != 0:
        raise LayoutError(f"Graphviz failed: {layout.stderr.strip()}")
    output = json.loads(layout.stdout)
    # Without a fixed size, the diagram fills its container and keeps its proportions.
    svg = re.sub(r'(<svg) width="\d+pt" height="\d+pt"', r"\1", output["svg"], count=1)
    return _set_text_lengths(svg, dict(_iter_text_widths(json.loads(output["json"]))))


def _set_text_lengths(svg: str, widths: Mapping[StyledText, float]) -> str:
    """Set the width of each text to the width that Graphviz computed, so that the text fits with any font."""

    def set_length(match: re.Match[str]) -> str:
        attributes, size, text = match.groups()
        style = StyledText(_normalize_spaces(html.unescape(text)), float(size), 'font-weight="bold"' in attributes)
        return f'<text{attributes} textLength="{widths[style]:g}" lengthAdjust="spacingAndGlyphs">{text}</text>'

    return re.sub(r'<text([^>]* font-size="([\d.]+)"[^>]*)>([^<]*)</text>', set_length, svg)


def _iter_text_widths(drawing: object) -> Iterator[tuple[StyledText, float]]:
    """Yield the text and width of each text in Graphviz's drawing operations (``_draw_``, ``_ldraw_``, ...)."""
    if isinstance(drawing, dict):
        for name, value in drawing.items():
            yield from _iter_operation_widths(value) if name.endswith("draw_") else _iter_text_widths(value)
    elif isinstance(drawing, list):
        for each in drawing:
            yield from _iter_text_widths(each)


def _iter_operation_widths(operations: list[dict[str, Any]]) -> Iterator[tuple[StyledText, float]]:
    size, bold = 0.0, False
    for each in operations:
        match each["op"]:
            case "F":
                size = each["size"]
            case "t":
                bold = bool(each["fontchar"] & 1)
            case "T":
                yield StyledText(_normalize_spaces(each["text"]), size, bold), each["width"]


def _normalize_spaces(text: str) -> str:
    """Replace no-break spaces, of which Graphviz writes more in SVG than in JSON."""
    return text.replace("\xa0", " ")
