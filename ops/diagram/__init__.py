"""The picture of a deployment, derived from its CloudFormation templates: what exists, who talks to whom, what scales.

``derive`` makes a ``Graph``; ``mermaid.render`` and ``svg.render`` show it.
"""

from ops.diagram.derive import derive
from ops.diagram.graph import Edge, Graph, Node, Path, Signal

__all__ = ["Edge", "Graph", "Node", "Path", "Signal", "derive"]
