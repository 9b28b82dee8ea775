"""The init container that refuses to start engines on a node whose GPUs are not joined as they should be."""

import json
from dataclasses import dataclass
from pathlib import Path

import pulumi

from blueprint.catalog import VmSize
from blueprint.engines.launch.base import Launcher
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


@dataclass(frozen=True)
class TopologyCheck(Launcher):
    """The program as a file of a pod.

    Attributes:
        size: The node's VM size.
        gpus: GPUs of the pod.
    """

    size: VmSize
    gpus: int

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
