"""A graph in Graphviz' language."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from ops.picture.graph import Edge, Graph, Node, Path

FONT = "Helvetica"
INK = "#1c2733"
QUIET = "#52606d"
SIGNAL = "#c2410c"
PATHS = {
    Path.AUDIO: ("#1d4ed8", 2.4, "audio: callers to transcripts"),
    Path.CONTROL: ("#15803d", 2.4, "control and events: sessions, transcripts to callers"),
    Path.SUPPORT: ("#94a3b8", 1.0, "support: state, AWS APIs"),
}
"""Colour, width and meaning of each path."""

TIERS = {
    "edge": ("#fff7e0", "#e0b84c"),
    "vad": ("#e3f1ff", "#7fb2e5"),
    "asr": ("#efe7fd", "#ae92e0"),
    "state": ("#fde8ea", "#e293a0"),
}
"""Fill and border of the tiers on the callers' paths."""
_OTHER_TIER = ("#f1f4f7", "#c3ccd5")


_AWS_APIS = "aws-apis"
_PORT = "box"
ROWS = (
    ("session-api", "public-load-balancer"),
    ("vad", _AWS_APIS),
)
"""Boxes that stand side by side."""


def render(graph: Graph) -> str:
    """Return the graph as DOT; the same graph gives the same text."""
    lines = [
        "digraph {",
        f'graph [rankdir=TB compound=true newrank=true fontname="{FONT}" fontcolor="{INK}" bgcolor="white"',
        f"  nodesep=0.3 ranksep=0.32 pad=0.2 labelloc=t label=<{_heading(graph)}>];",
        f'node [shape=plain fontname="{FONT}" fontcolor="{INK}" fontsize=12];',
        f'edge [fontname="{FONT}" fontsize=10 arrowsize=0.75];',
    ]
    lines += [_node(caller.id, _box(caller)) for caller in graph.of_tier(None)]
    for tier in graph.tiers:
        lines += _tier(graph, tier)
    lines += [line for arrow in _arrows(graph) for line in _drawn(graph, arrow)]
    lines += _rows(graph)
    return "\n".join([*lines, "}", ""])


def _heading(graph: Graph) -> str:
    legend = "".join(
        f'<TD><FONT COLOR="{colour}"><B>━━▶</B></FONT></TD><TD ALIGN="LEFT">{escape(meaning)}   </TD>'
        for colour, _, meaning in PATHS.values()
    )
    if graph.signals:
        legend += f'<TD><FONT COLOR="{SIGNAL}"><B>╍╍▶</B></FONT></TD><TD ALIGN="LEFT">scaling signal   </TD>'
    notes = "".join(f'<TD ALIGN="LEFT">{escape(note)}</TD>' for note in graph.notes)
    return (
        f'<TABLE BORDER="0" CELLSPACING="2"><TR><TD><FONT POINT-SIZE="18"><B>{escape(graph.title)}</B></FONT></TD></TR>'
        f'<TR><TD><FONT POINT-SIZE="11"><TABLE BORDER="0" CELLSPACING="0"><TR>{legend}{notes}</TR></TABLE></FONT></TD>'
        "</TR></TABLE>"
    )


def _tier(graph: Graph, tier: str) -> Iterator[str]:
    """Yield a tier's boxes, in a frame where there are several or a signal."""
    fill, border = TIERS.get(tier, _OTHER_TIER)
    title = f"<B>{escape(tier)}</B>: {escape(graph.tiers[tier])}"
    first, *others = graph.of_tier(tier)
    if others:
        yield f'subgraph "cluster_{tier}" {{'
        yield f'label=<{title}> labeljust=l labelloc=b fontsize=12 margin=9 style="rounded,filled"'
        yield f'fillcolor="{fill}" color="{border}"'
        yield from (_node(node.id, _with_signals(graph, node)) for node in (first, *others))
        if all(graph.signals_of(node.id) for node in (first, *others)):
            beside = " -> ".join(f'"{node.id}"' for node in (first, *others))
            yield f"{{rank=same edge [style=invis] {beside}}}"
        yield "}"
    elif graph.signals_of(first.id):
        # Not a cluster: Graphviz keeps a row's order only outside of them.
        inner = f'<TR><TD>{_with_signals(graph, first)}</TD></TR><TR><TD ALIGN="LEFT">{title}</TD></TR>'
        yield _node(
            first.id, _table(inner, f'BORDER="1" CELLBORDER="0" CELLPADDING="6" BGCOLOR="{fill}" COLOR="{border}"')
        )
    else:
        yield _node(first.id, _box(first, fill, border))


def _node(id_: str, html: str) -> str:
    return f'"{id_}" [label=<{html}>];'


def _table(rows: str, attributes: str) -> str:
    return f'<TABLE STYLE="ROUNDED" CELLSPACING="0" {attributes}>{rows}</TABLE>'


def _box(node: Node, fill: str = "white", border: str = "#8795a1") -> str:
    rows = "".join(_row(line, QUIET) for line in node.lines)
    return _table(
        f'<TR><TD ALIGN="LEFT"><B>&#160;{escape(node.title)}&#160;</B></TD></TR>{rows}',
        f'BORDER="1" CELLBORDER="0" CELLPADDING="2" BGCOLOR="{fill}" COLOR="{border}"',
    )


def _with_signals(graph: Graph, node: Node) -> str:
    rows = "".join(_row(signal.text, SIGNAL) for signal in graph.signals_of(node.id))
    if not rows:
        return _box(node)
    signals = _table(rows, f'BORDER="1" CELLBORDER="0" CELLPADDING="2" COLOR="{SIGNAL}"').replace(
        "ROUNDED", "ROUNDED,DASHED"
    )
    arrow = f'<TD><FONT COLOR="{SIGNAL}">╍╍▶</FONT></TD>'
    return (
        f'<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="0">'
        f'<TR><TD>{signals}</TD>{arrow}<TD PORT="{_PORT}">{_box(node)}</TD></TR></TABLE>'
    )


def _row(text: str, colour: str) -> str:
    return f'<TR><TD ALIGN="LEFT"><FONT POINT-SIZE="10" COLOR="{colour}">&#160;{escape(text)}&#160;</FONT></TD></TR>'


@dataclass(frozen=True)
class _Arrow:
    """What is drawn once: an edge, or those that all boxes of a tier have alike, from or to the tier's frame."""

    edges: tuple[Edge, ...]
    tail: str | None = None
    head: str | None = None


def _arrows(graph: Graph) -> Iterator[_Arrow]:
    left = list(graph.edges)
    while left:
        arrow = _of_whole_tier(graph, left, "target") or _of_whole_tier(graph, left, "source") or _Arrow((left[0],))
        left = [edge for edge in left if edge not in arrow.edges]
        yield arrow


def _of_whole_tier(graph: Graph, edges: list[Edge], end: Literal["source", "target"]) -> _Arrow | None:
    """Return the first edge with those that differ from it in one end alone, if these ends are a whole tier."""
    tier_of = {node.id: node.tier for node in graph.nodes}
    first = edges[0]
    tier = tier_of[getattr(first, end)]
    members = {node.id for node in graph.of_tier(tier)}
    alike = tuple(
        edge
        for edge in edges
        if getattr(edge, end) in members and replace(edge, **{end: ""}) == replace(first, **{end: ""})
    )
    if tier is None or len(members) == 1 or {getattr(edge, end) for edge in alike} != members:
        return None
    return _Arrow(alike, tail=tier) if end == "source" else _Arrow(alike, head=tier)


def _drawn(graph: Graph, arrow: _Arrow) -> Iterator[str]:
    """Yield one visible arrow; the others are there for the layout alone."""
    shown = arrow.edges[len(arrow.edges) // 2]
    colour, width, _ = PATHS[shown.path]
    attributes = {
        "color": colour,
        "fontcolor": QUIET if shown.path is Path.SUPPORT else colour,
        "penwidth": width,
        "weight": 1 if shown.path is Path.SUPPORT else 4,
        "label": "" if shown.target == _AWS_APIS else "\\n".join(f" {line} " for line in shown.lines),
        "tooltip": shown.purpose,
    }
    clusters = {"ltail": arrow.tail, "lhead": arrow.head}
    # Services behind AWS' APIs stand above them, fleets below: Graphviz ranks by the direction in which it is told.
    turned = shown.source == _AWS_APIS or (shown.target == _AWS_APIS and arrow.tail is not None)
    if turned:
        attributes["dir"] = "back"
        clusters = {"ltail": arrow.head, "lhead": arrow.tail}
        shown = arrow.edges[-1]
    attributes |= {name: f"cluster_{tier}" for name, tier in clusters.items() if tier}
    written = " ".join(f'{name}="{escape(str(value))}"' for name, value in attributes.items())
    for edge in arrow.edges:
        ends = (edge.target, edge.source) if turned else (edge.source, edge.target)
        first, last = (f'"{end}"' + (f":{_PORT}" if graph.signals_of(end) else "") for end in ends)
        yield f"{first} -> {last} [{written if edge is shown else 'style=invis'}];"


def _rows(graph: Graph) -> Iterator[str]:
    present = {node.id for node in graph.nodes}
    for row in ROWS:
        yield f"{{rank=same {' '.join(f'{chr(34)}{node}{chr(34)}' for node in row if node in present)}}}"
