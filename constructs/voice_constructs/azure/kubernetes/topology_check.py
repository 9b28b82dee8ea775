"""The init container that refuses to start engines on a node whose GPUs are not joined as they should be."""

import json
from pathlib import Path

import pulumi

from blueprint.catalog import VmSize
from voice_constructs.azure.kubernetes.files.check_topology import EXPECTED_VARIABLE
from voice_constructs.azure.kubernetes.pods import LaunchedContainer, Share

PROGRAM = "/opt/voice/check_topology.py"
SOURCE = Path(__file__).parent / "files" / "check_topology.py"


def expectation(size: VmSize, gpus: int) -> str:
    """Return what a pod with so many GPUs of a node should see, as JSON.

    A pod that has all GPUs sees the catalogue's row. One that has some sees them counted from 0, and all have to be
    joined: that is what tensor parallelism takes.
    """
    whole = gpus == size.gpu_count
    numa = {gpu: index for index, node in enumerate(size.numa_nodes) for gpu in node.gpus}
    return json.dumps(
        {
            "vm_size": size.name,
            "gpus": gpus,
            "nvlink_groups": [list(group) for group in size.nvlink_domains] if whole else [list(range(gpus))],
            "numa_nodes": [numa[gpu] for gpu in range(gpus)] if whole and numa else [],
        }
    )


class TopologyCheck:
    """The program as a file of a pod, in the form of a launcher.

    Attributes:
        size: The node's VM size.
        gpus: GPUs of the pod.
    """

    def __init__(self, size: VmSize, gpus: int) -> None:
        self.size = size
        self.gpus = gpus

    def command(self) -> tuple[str, ...]:
        """Return the program; every engine image has Python."""
        return ("python3", PROGRAM)

    def environment(self) -> dict[str, str]:
        return {EXPECTED_VARIABLE: expectation(self.size, self.gpus)}

    def files(self) -> dict[str, str]:
        """Return the program's text."""
        return {PROGRAM: SOURCE.read_text(encoding="utf-8")}


def topology_check(image: pulumi.Output[str], size: VmSize, gpus: int) -> LaunchedContainer:
    """Return the init container. It asks for the pod's GPUs itself: the kubelet then gives the engine the same ones."""
    return LaunchedContainer(
        name="check-topology", image=image, launcher=TopologyCheck(size, gpus), share=Share(0.5, 0.5, gpus), ports={}
    )
