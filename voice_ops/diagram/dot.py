"""Renders a graph in Graphviz's DOT language."""

from collections.abc import Iterable, Iterator
from html import escape
from textwrap import wrap

from voice_ops.diagram.graph import Edge, Graph, Node, TrafficType

FONT = "Helvetica"
TEXT_COLOR = "#1c2733"
SECONDARY_COLOR = "#52606d"
SIGNAL_COLOR = "#c2410c"
TRAFFIC_STYLES = {
    TrafficType.AUDIO: ("#1d4ed8", 2.4, "audio: callers to transcripts"),
    TrafficType.CONTROL: ("#15803d", 2.4, "control and events: sessions, transcripts to callers"),
    TrafficType.SUPPORT: ("#94a3b8", 1.0, "support: state, AWS APIs"),
}
"""Colour, line width and description of each path."""

TIER_COLORS = {
    "edge": ("#fff7e0", "#e0b84c"),
    "vad": ("#e3f1ff", "#7fb2e5"),
    "asr": ("#efe7fd", "#ae92e0"),
    "state": ("#fde8ea", "#e293a0"),
}
"""Fill and border colours of the tiers on the callers' paths."""
_DEFAULT_TIER_COLORS = ("#f1f4f7", "#c3ccd5")

_LABEL_WIDTH = 24
"""Maximum line length of an edge's label: the whole diagram stays within 1,000 units, so it is legible at 1,000
pixels."""

_AWS_APIS_NODE_ID = "aws-apis"
SAME_RANK_NODES = (("session-api", "public-load-balancer"),)
"""Groups of boxes that are drawn in the same row."""


def render(graph: Graph) -> str:
    """Return the graph in the DOT language. The output is deterministic."""
    lines = [
        "digraph {",
        f'graph [rankdir=TB newrank=true fontname="{FONT}" fontcolor="{TEXT_COLOR}" bgcolor="white"',
        f"  nodesep=0.3 ranksep=0.32 pad=0.2 labelloc=t label=<{_render_heading_html(graph)}>];",
        f'node [shape=plain fontname="{FONT}" fontcolor="{TEXT_COLOR}" fontsize=13];',
        f'edge [fontname="{FONT}" fontsize=11 arrowsize=0.75];',
    ]
    lines += [_render_shape_line(caller.id, _render_box_html(graph, caller)) for caller in graph.list_tier_nodes(None)]
    for tier in graph.tiers:
        lines += _render_tier_lines(graph, tier)
    lines += _render_edge_lines(graph)
    lines += _render_rank_lines(graph)
    return "\n".join([*lines, "}", ""])


def _render_heading_html(graph: Graph) -> str:
    legend = "".join(
        f'<TD><FONT COLOR="{colour}"><B>━━▶</B></FONT></TD><TD ALIGN="LEFT">{escape(meaning)}   </TD>'
        for colour, _, meaning in TRAFFIC_STYLES.values()
    )
    notes = [f'<FONT COLOR="{SIGNAL_COLOR}">when a fleet scales: change</FONT>'] if graph.signals else []
    notes += [escape(note) for note in graph.notes]
    rows = [f'<TABLE BORDER="0" CELLSPACING="0"><TR>{legend}</TR></TABLE>', *(["   ".join(notes)] if notes else [])]
    return (
        f'<TABLE BORDER="0" CELLSPACING="2"><TR><TD><FONT POINT-SIZE="18"><B>{escape(graph.title)}</B></FONT></TD></TR>'
        + "".join(f'<TR><TD><FONT POINT-SIZE="11">{row}</FONT></TD></TR>' for row in rows)
        + "</TABLE>"
    )


def _fits_one_shape(graph: Graph, tier: str) -> bool:
    """Return True if a tier can be drawn as one shape, because no edge connects two of its boxes."""
    members = {node.id for node in graph.list_tier_nodes(tier)}
    return not any(edge.source in members and edge.target in members for edge in graph.edges)


def _render_tier_lines(graph: Graph, tier: str) -> Iterator[str]:
    fill, border = TIER_COLORS.get(tier, _DEFAULT_TIER_COLORS)
    title = f"<B>{escape(tier)}</B>: {escape(graph.tiers[tier])}"
    boxes = graph.list_tier_nodes(tier)
    if not _fits_one_shape(graph, tier):
        yield f'subgraph "cluster_{tier}" {{'
        yield f'label=<{title}> labeljust=l labelloc=b fontsize=12 margin=9 style="rounded,filled"'
        yield f'fillcolor="{fill}" color="{border}"'
        yield from (_render_shape_line(node.id, _render_box_html(graph, node)) for node in boxes)
        yield "}"
    elif len(boxes) > 1:
        rows = "".join(f"<TR><TD>{_render_box_html(graph, node)}</TD></TR>" for node in boxes)
        title_row = f'<TR><TD ALIGN="LEFT">{title}</TD></TR>'
        attributes = f'BORDER="1" CELLBORDER="0" CELLPADDING="5" BGCOLOR="{fill}" COLOR="{border}"'
        yield _render_shape_line(tier, _render_table_html(rows + title_row, attributes))
    else:
        yield _render_shape_line(tier, _render_box_html(graph, boxes[0], fill, border))


def _render_shape_line(id_: str, html: str) -> str:
    return f'"{id_}" [label=<{html}>];'


def _render_table_html(rows: str, attributes: str) -> str:
    return f'<TABLE STYLE="ROUNDED" CELLSPACING="0" {attributes}>{rows}</TABLE>'


def _render_box_html(graph: Graph, node: Node, fill: str = "white", border: str = "#8795a1") -> str:
    """Return the HTML of a box: its title, its lines and, below a separator, the signals that scale the node."""
    rows = [
        _render_row_html(f"<B>{escape(node.title)}</B>"),
        *([_render_row_html(_render_small_text_html(node.lines, SECONDARY_COLOR))] if node.lines else []),
    ]
    for signal in graph.list_fleet_signals(node.id):
        rows += [
            "<HR/>",
            _render_row_html(
                _render_small_text_html((f"{signal.metric} {signal.condition}:", signal.change), SIGNAL_COLOR)
            ),
        ]
    attributes = f'BORDER="1" CELLBORDER="0" CELLPADDING="4" BGCOLOR="{fill}" COLOR="{border}"'
    return _render_table_html("".join(rows), attributes)


def _render_row_html(text: str) -> str:
    return f'<TR><TD ALIGN="LEFT" BALIGN="LEFT">{text}</TD></TR>'


def _render_small_text_html(lines: Iterable[str], colour: str) -> str:
    return f'<FONT POINT-SIZE="11" COLOR="{colour}">{"<BR/>".join(map(escape, lines))}</FONT>'


def _render_edge_lines(graph: Graph) -> Iterator[str]:
    ends: dict[tuple[str, str], list[Edge]] = {}
    for edge in graph.edges:
        ends.setdefault((_find_shape_id(graph, edge.source), _find_shape_id(graph, edge.target)), []).append(edge)
    for (source, target), edges in ends.items():
        first_edge = edges[0]
        colour, width, _ = TRAFFIC_STYLES[first_edge.traffic_type]
        labels = (f" {part} " for line in first_edge.lines for part in wrap(line, _LABEL_WIDTH))
        attributes = {
            "color": colour,
            "fontcolor": SECONDARY_COLOR if first_edge.traffic_type is TrafficType.SUPPORT else colour,
            "penwidth": width,
            "weight": 1 if first_edge.traffic_type is TrafficType.SUPPORT else 4,
            "label": "" if first_edge.target == _AWS_APIS_NODE_ID else "\\n".join(labels),
            "tooltip": first_edge.purpose,
        }
        # AWS's APIs rank above their targets, and fleets below: Graphviz ranks by the direction of edges.
        is_reversed = first_edge.source == _AWS_APIS_NODE_ID or (
            first_edge.target == _AWS_APIS_NODE_ID and source == '"asr"'
        )
        if is_reversed:
            attributes["dir"] = "back"
        attribute_text = " ".join(f'{name}="{escape(str(value))}"' for name, value in attributes.items())
        first, last = (target, source) if is_reversed else (source, target)
        yield f"{first} -> {last} [{attribute_text}];"


def _find_shape_id(graph: Graph, node_id: str) -> str:
    """Return the quoted id of the shape that contains a node."""
    node = next(node for node in graph.nodes if node.id == node_id)
    if node.tier and _fits_one_shape(graph, node.tier):
        return f'"{node.tier}"'
    return f'"{node.id}"'


def _render_rank_lines(graph: Graph) -> Iterator[str]:
    present = {node.id for node in graph.nodes}
    for row in SAME_RANK_NODES:
        yield f"{{rank=same {' '.join(_find_shape_id(graph, node) for node in row if node in present)}}}"
