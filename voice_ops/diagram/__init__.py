"""Derives the diagram of a deployment from its CloudFormation templates.

``derive_graph`` creates a ``Graph`` of resources, traffic and scaling signals. ``mermaid.render`` and ``svg.render``
draw the graph.
"""

from voice_ops.diagram.derive import derive_graph
from voice_ops.diagram.graph import Edge, Graph, Node, ScalingSignal, TrafficType

__all__ = ["Edge", "Graph", "Node", "ScalingSignal", "TrafficType", "derive_graph"]
