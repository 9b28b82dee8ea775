"""The diagram of a deployment, derived from its CloudFormation templates: resources, traffic, and scaling.

``derive`` creates a ``Graph``; ``mermaid.render`` and ``svg.render`` draw it.
"""

from voice_ops.diagram.derive import derive
from voice_ops.diagram.graph import Edge, Graph, Node, Path, Signal

__all__ = ["Edge", "Graph", "Node", "Path", "Signal", "derive"]
