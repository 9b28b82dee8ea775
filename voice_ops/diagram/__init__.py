"""Derives the diagram of a deployment from its CloudFormation templates.

``derive`` creates a ``Graph`` of resources, traffic and scaling signals. ``mermaid.render`` and ``svg.render`` draw
the graph.
"""

from voice_ops.diagram.derive import derive
from voice_ops.diagram.graph import Edge, Graph, Node, Path, Signal

__all__ = ["Edge", "Graph", "Node", "Path", "Signal", "derive"]
