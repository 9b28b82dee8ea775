"""Renders a graph as a Mermaid flowchart, which GitHub and many wikis display."""

import json
from collections.abc import Iterator

from voice_ops.diagram.dot import PATH_STYLES, SIGNAL_COLOR, TIER_COLORS
from voice_ops.diagram.graph import Graph, Node, Path

_ARROWS = {Path.AUDIO: "==>", Path.CONTROL: "-->", Path.SUPPORT: "-.->"}


def render(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart. The output is deterministic."""
    title = json.dumps("; ".join((graph.title, *graph.notes)))
    return "\n".join(["---", f"title: {title}", "---", "flowchart TB", *_flowchart_lines(graph), ""])


def _flowchart_lines(graph: Graph) -> Iterator[str]:
    for caller in graph.tier_nodes(None):
        yield f"  {_box_line(caller)}"
    for tier, title in graph.tiers.items():
        yield f'  subgraph {_prefixed_id("tier", tier)}["{_escape_text(f"{tier}: {title}")}"]'
        for node in graph.tier_nodes(tier):
            yield f"    {_box_line(node)}"
            signals = graph.signals_for(node.id)
            if signals:
                label = "<br>".join(_escape_text(signal.text) for signal in signals)
                yield f'    {_prefixed_id("signals", node.id)}["{label}"]:::signal'
        yield "  end"
    for edge in graph.edges:
        label = "<br>".join(_escape_text(line) for line in edge.lines)
        yield f'  {_prefixed_id("box", edge.source)} {_ARROWS[edge.path]}|"{label}"| {_prefixed_id("box", edge.target)}'
    fleets = [node.id for node in graph.nodes if graph.signals_for(node.id)]
    for fleet in fleets:
        yield f"  {_prefixed_id('signals', fleet)} -.-> {_prefixed_id('box', fleet)}"
    yield from _style_lines(graph, len(fleets))


def _style_lines(graph: Graph, signals: int) -> Iterator[str]:
    yield f"  classDef signal fill:#ffffff,stroke:{SIGNAL_COLOR},stroke-dasharray:4 3,color:{SIGNAL_COLOR}"
    for tier, (fill, border) in TIER_COLORS.items():
        if tier in graph.tiers:
            yield f"  style {_prefixed_id('tier', tier)} fill:{fill},stroke:{border}"
    for path, (colour, width, _) in PATH_STYLES.items():
        numbers = [str(number) for number, edge in enumerate(graph.edges) if edge.path is path]
        if numbers:
            yield f"  linkStyle {','.join(numbers)} stroke:{colour},stroke-width:{width}px"
    if signals:
        first = len(graph.edges)
        yield f"  linkStyle {','.join(map(str, range(first, first + signals)))} stroke:{SIGNAL_COLOR}"


def _box_line(node: Node) -> str:
    lines = "<br>".join([f"<b>{_escape_text(node.title)}</b>", *map(_escape_text, node.lines)])
    return f'{_prefixed_id("box", node.id)}["{lines}"]'


def _prefixed_id(kind: str, name: str) -> str:
    """Return an identifier with a prefix, without which names such as ``end`` would be parsed as keywords."""
    return f"{kind}_{name.replace('-', '_')}"


def _escape_text(value: str) -> str:
    """Escape text for a quoted label with Mermaid's entity codes."""
    for character, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        value = value.replace(character, code)
    return value
