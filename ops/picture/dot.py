"""A graph in Graphviz' language."""

from collections.abc import Iterator
from html import escape

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
        f'node [shape=box style="rounded,filled" fontname="{FONT}" fontcolor="{INK}" fontsize=12 margin="0.1,0.06"];',
        f'edge [fontname="{FONT}" fontsize=10 arrowsize=0.75];',
    ]
    lines += [_node(node) for node in graph.of_tier(None)]
    for tier in graph.tiers:
        lines += _tier(graph, tier)
    lines += [line for drawn in _gathered(graph) for line in _edges(*drawn)]
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
    boxes = graph.of_tier(tier)
    if len(boxes) == 1 and not graph.signals_of(boxes[0].id):
        yield _node(boxes[0], fill, border)
        return
    yield f'subgraph "cluster_{tier}" {{'
    yield f"label=<<B>{escape(tier)}</B>: {escape(graph.tiers[tier])}> labeljust=l fontsize=12 margin=9"
    yield f'style="rounded,filled" fillcolor="{fill}" color="{border}"'
    for node in boxes:
        yield _node(node)
        yield from _signals(graph, node)
    yield "}"


def _signals(graph: Graph, fleet: Node) -> Iterator[str]:
    signals = graph.signals_of(fleet.id)
    if signals:
        rows = "".join(_row(signal.text, SIGNAL) for signal in signals)
        box = f'"{fleet.id} scales on"'
        yield (
            f'{box} [label=<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>> style="rounded,dashed" '
            f'color="{SIGNAL}" margin="0.05,0.02" tooltip="{escape("; ".join(signal.name for signal in signals))}"];'
        )
        yield f'{box} -> "{fleet.id}" [style=dashed color="{SIGNAL}" penwidth=1.4]; {{rank=same {box} "{fleet.id}"}}'


def _row(text: str, colour: str) -> str:
    return f'<TR><TD ALIGN="LEFT"><FONT POINT-SIZE="10" COLOR="{colour}">{escape(text)}</FONT></TD></TR>'


def _node(node: Node, fill: str = "white", border: str = "#8795a1") -> str:
    rows = "".join(_row(line, QUIET) for line in node.lines)
    title = f'<TR><TD ALIGN="LEFT"><B>{escape(node.title)}</B></TD></TR>'
    return (
        f'"{node.id}" [label=<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{title}{rows}</TABLE>> '
        f'fillcolor="{fill}" color="{border}"];'
    )


def _gathered(graph: Graph) -> Iterator[tuple[list[Edge], str | None, str | None]]:
    """Yield edges to draw with the clusters that they start and end at: one for all boxes of a tier that act alike."""
    tier_of = {node.id: node.tier for node in graph.nodes}
    same: dict[tuple[object, ...], list[Edge]] = {}
    for edge in graph.edges:
        for end in ("source", "target"):
            tier = tier_of[getattr(edge, end)]
            everyone = {node.id for node in graph.of_tier(tier)}
            alike = [
                other for other in graph.edges
                if tier_of[getattr(other, end)] == tier and _but(other, end) == _but(edge, end)
            ]  # fmt: skip
            if tier and len(everyone) > 1 and {getattr(other, end) for other in alike} == everyone:
                same.setdefault((end, tier, *_but(edge, end)), []).append(edge)
                break
        else:
            same[edge,] = [edge]
    for key, edges in same.items():
        tier = str(key[1]) if len(key) > 1 else None
        yield edges, tier if key[0] == "source" else None, tier if key[0] == "target" else None


def _but(edge: Edge, end: str) -> tuple[object, ...]:
    """Return everything of an edge but one of its ends."""
    return edge.target if end == "source" else edge.source, edge.path, edge.lines


def _edges(edges: list[Edge], tail: str | None, head: str | None) -> Iterator[str]:
    """Yield one visible arrow; the others are there for the layout alone."""
    middle = edges[len(edges) // 2]
    colour, width, _ = PATHS[middle.path]
    attributes = {
        "color": colour,
        "fontcolor": QUIET if middle.path is Path.SUPPORT else colour,
        "penwidth": width,
        "label": "" if middle.target == _AWS_APIS else "\\n".join(f" {line} " for line in middle.lines),
        "tooltip": middle.purpose,
        "weight": 8 if middle.path is Path.AUDIO else 2 if middle.path is Path.CONTROL else 1,
        **({"constraint": "false"} if middle.target == _AWS_APIS else {}),
        **({"ltail": f"cluster_{tail}"} if tail else {}),
        **({"lhead": f"cluster_{head}"} if head else {}),
    }
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    if middle.source == _AWS_APIS:
        yield f'"{middle.target}" -> "{middle.source}" [{written} dir=back];'
        return
    hidden = "style=invis constraint=false" if "constraint" in attributes else "style=invis"
    for edge in edges:
        yield f'"{edge.source}" -> "{edge.target}" [{written if edge is middle else hidden}];'


def _rows(graph: Graph) -> Iterator[str]:
    present = {node.id for node in graph.nodes}
    for row in ROWS:
        beside = [f'"{node}"' for node in row if node in present]
        yield f"{{rank=same {' '.join(beside)}}}"
