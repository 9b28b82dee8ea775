"""A graph in Graphviz' language."""

from collections.abc import Iterable, Iterator
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


def render(graph: Graph) -> str:
    """Return the graph as DOT; the same graph gives the same text."""
    lines = [
        "digraph {",
        f'graph [rankdir=LR compound=true newrank=true fontname="{FONT}" fontcolor="{INK}" bgcolor="white"',
        f"  nodesep=0.28 ranksep=0.55 pad=0.2 labelloc=t label=<{_heading(graph)}>];",
        f'node [shape=box style="rounded,filled" fillcolor=white fontname="{FONT}" fontcolor="{INK}" '
        f'fontsize=12 margin="0.1,0.06" color="#8795a1"];',
        f'edge [fontname="{FONT}" fontsize=10 arrowsize=0.75];',
    ]
    lines += [_node(node) for node in graph.of_tier(None)]
    for tier in graph.tiers:
        lines += _cluster(graph, tier)
    lines += [_edge(graph, *drawn) for drawn in _gathered(graph)]
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


def _cluster(graph: Graph, tier: str) -> Iterator[str]:
    fill, border = TIERS.get(tier, _OTHER_TIER)
    title = f"<B>{escape(tier)}</B>: {escape(graph.tiers[tier])}"
    yield f'subgraph "cluster_{tier}" {{'
    yield f'label=<{title}> labeljust=l labelloc=t fontsize=12 style="rounded,filled" fillcolor="{fill}"'
    yield f'color="{border}" margin=10'
    for node in graph.of_tier(tier):
        yield _node(node)
        signals = graph.signals_of(node.id)
        if signals:
            rows = "".join(_row(signal.text, SIGNAL) for signal in signals)
            label = f'<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>'
            yield (
                f'"{_signals_id(node.id)}" [label=<{label}> style="rounded,dashed" color="{SIGNAL}" '
                f'margin="0.05,0.02" tooltip="{escape("; ".join(signal.name for signal in signals))}"];'
            )
            yield (
                f'"{_signals_id(node.id)}" -> "{node.id}" [style=dashed color="{SIGNAL}" penwidth=1.4];'
                f'{{rank=same "{_signals_id(node.id)}" "{node.id}"}}'
            )
    yield "}"


def _signals_id(fleet: str) -> str:
    return f"{fleet} scales on"


def _row(text: str, colour: str) -> str:
    return f'<TR><TD ALIGN="LEFT"><FONT POINT-SIZE="10" COLOR="{colour}">{escape(text)}</FONT></TD></TR>'


def _node(node: Node) -> str:
    rows = "".join(_row(line, QUIET) for line in node.lines)
    title = f'<TR><TD ALIGN="LEFT"><B>{escape(node.title)}</B></TD></TR>'
    return f'"{node.id}" [label=<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{title}{rows}</TABLE>>];'


def _gathered(graph: Graph) -> Iterator[tuple[Edge, str | None, str | None]]:
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
        middle = edges[len(edges) // 2]
        yield (
            middle,
            str(key[1]) if key[0] == "source" else None,
            str(key[1]) if key[0] == "target" else None,
        )


def _but(edge: Edge, end: str) -> tuple[object, ...]:
    """Return everything of an edge but one of its ends."""
    return edge.target if end == "source" else edge.source, edge.path, edge.lines


def _edge(graph: Graph, edge: Edge, tail: str | None, head: str | None) -> str:
    colour, width, _ = PATHS[edge.path]
    attributes = {
        "color": colour,
        "fontcolor": colour if edge.path is not Path.SUPPORT else QUIET,
        "penwidth": width,
        "label": "\\n".join(_wrapped(edge.lines)),
        "tooltip": edge.purpose,
        **({"ltail": f"cluster_{tail}"} if tail else {}),
        **({"lhead": f"cluster_{head}"} if head else {}),
    }
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f'"{edge.source}" -> "{edge.target}" [{written}];'


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield a port and, below it, what it is for."""
    for line in lines:
        protocol, port, *rest = line.split(" ", 2)
        if port.isdigit():
            yield f"{protocol} {port}"
            yield from rest
        else:
            yield line
