"""Renders a graph as a Mermaid flowchart, which GitHub and many wikis display."""

import json
from collections.abc import Iterator

from voice_ops.diagram.dot import SIGNAL_COLOR, TIER_COLORS, TRAFFIC_STYLES
from voice_ops.diagram.graph import Graph, Node, TrafficType

_ARROWS = {TrafficType.AUDIO: "==>", TrafficType.CONTROL: "-->", TrafficType.SUPPORT: "-.->"}


def render(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart. The output is deterministic."""
    title = json.dumps("; ".join((graph.title, *graph.notes)))
    return "\n".join(["---", f"title: {title}", "---", "flowchart TB", *_render_flowchart_lines(graph), ""])


def _render_flowchart_lines(graph: Graph) -> Iterator[str]:
    for caller in graph.list_tier_nodes(None):
        yield f"  {_render_box_line(caller)}"
    for tier, title in graph.tiers.items():
        yield f'  subgraph {_build_prefixed_id("tier", tier)}["{_escape_text(f"{tier}: {title}")}"]'
        for node in graph.list_tier_nodes(tier):
            yield f"    {_render_box_line(node)}"
            signals = graph.list_fleet_signals(node.id)
            if signals:
                label = "<br>".join(_escape_text(signal.text) for signal in signals)
                yield f'    {_build_prefixed_id("signals", node.id)}["{label}"]:::signal'
        yield "  end"
    for edge in graph.edges:
        label = "<br>".join(_escape_text(line) for line in edge.lines)
        source, target = (_build_prefixed_id("box", end) for end in (edge.source, edge.target))
        yield f'  {source} {_ARROWS[edge.traffic_type]}|"{label}"| {target}'
    fleets = [node.id for node in graph.nodes if graph.list_fleet_signals(node.id)]
    for fleet in fleets:
        yield f"  {_build_prefixed_id('signals', fleet)} -.-> {_build_prefixed_id('box', fleet)}"
    yield from _render_style_lines(graph, len(fleets))


def _render_style_lines(graph: Graph, signals: int) -> Iterator[str]:
    yield f"  classDef signal fill:#ffffff,stroke:{SIGNAL_COLOR},stroke-dasharray:4 3,color:{SIGNAL_COLOR}"
    for tier, (fill, border) in TIER_COLORS.items():
        if tier in graph.tiers:
            yield f"  style {_build_prefixed_id('tier', tier)} fill:{fill},stroke:{border}"
    for traffic_type, (colour, width, _) in TRAFFIC_STYLES.items():
        numbers = [str(number) for number, edge in enumerate(graph.edges) if edge.traffic_type is traffic_type]
        if numbers:
            yield f"  linkStyle {','.join(numbers)} stroke:{colour},stroke-width:{width}px"
    if signals:
        first = len(graph.edges)
        yield f"  linkStyle {','.join(map(str, range(first, first + signals)))} stroke:{SIGNAL_COLOR}"


def _render_box_line(node: Node) -> str:
    lines = "<br>".join([f"<b>{_escape_text(node.title)}</b>", *map(_escape_text, node.lines)])
    return f'{_build_prefixed_id("box", node.id)}["{lines}"]'


def _build_prefixed_id(kind: str, name: str) -> str:
    """Return an identifier with a prefix, without which names such as ``end`` would be parsed as keywords."""
    return f"{kind}_{name.replace('-', '_')}"


def _escape_text(value: str) -> str:
    """Escape text for a quoted label with Mermaid's entity codes."""
    for character, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        value = value.replace(character, code)
    return value
