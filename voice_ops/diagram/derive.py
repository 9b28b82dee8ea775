"""Converts the CloudFormation templates of a deployment to a graph."""

from collections.abc import Mapping

from voice_ops.diagram.boxes import ZERO_SIZE_MARK, create_boxes
from voice_ops.diagram.flows import BROWSER, NATIVE_CLIENT, create_edges
from voice_ops.diagram.graph import Edge, Graph, Node, TrafficType
from voice_ops.diagram.signals import create_signals
from voice_ops.diagram.templates import Template, TemplateSet

_ZERO_SIZE_NOTE = f"{ZERO_SIZE_MARK} held at 0 until the deployment file has the digests of the images"


def derive_graph(title: str, by_tier: Mapping[str, Template]) -> Graph:
    """Return the graph of a deployment. Resources in stacks without a template are omitted.

    Args:
        title: Title of the diagram.
        by_tier: CloudFormation templates by tier: ``network``, ``vad``, ...
    """
    templates = TemplateSet(by_tier)
    box_list = create_boxes(templates)
    arrows = create_edges(templates, box_list)
    connected = {end for edge in arrows for end in (edge.source, edge.target)}
    nodes = (
        *(caller for caller in (BROWSER, NATIVE_CLIENT) if caller.id in connected),
        *(box.node for box in box_list),
    )
    present = {node.tier for node in nodes}
    at_zero = any(line.endswith(ZERO_SIZE_MARK) for node in nodes for line in node.lines)
    return Graph(
        title=title,
        tiers={
            tier: description.partition(": ")[2] or tier
            for tier, description in templates.descriptions.items()
            if tier in present
        },
        nodes=nodes,
        edges=(*arrows, *_create_aws_api_edges(nodes)),
        signals=tuple(create_signals(templates, box_list)),
        notes=(_ZERO_SIZE_NOTE,) if at_zero else (),
    )


def _create_aws_api_edges(nodes: tuple[Node, ...]) -> list[Edge]:
    """Return the edges from the box for the AWS APIs to the registry and CloudWatch."""
    present = {node.id for node in nodes}
    endpoint_labels = {"registry": "pull images", "observability": "metrics, logs"}
    if "aws-apis" not in present:
        return []
    return [
        Edge("aws-apis", node, TrafficType.SUPPORT, (line,))
        for node, line in endpoint_labels.items()
        if node in present
    ]
