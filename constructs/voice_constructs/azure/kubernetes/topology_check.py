"""The init container that refuses to start engines on a node whose GPUs are not joined as they should be."""

import itertools
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


@dataclass(frozen=True)
class HandOver:
    """How a cell's engines hand KV cache over.

    Attributes:
        groups: GPUs of prefill, and of decode.
        transports: What UCX chooses among.
        refuse: Whether the pod does not start where they do not reach each other's memory.
    """

    groups: tuple[tuple[int, ...], tuple[int, ...]]
    transports: str
    refuse: bool


def expectation(size: VmSize, gpus: int, hand_over: HandOver | None = None) -> str:
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
            "peers": list(itertools.product(*hand_over.groups)) if hand_over else [],
            "transports": hand_over.transports if hand_over else "",
            "refuse_without_peers": hand_over.refuse if hand_over else True,
        }
    )


@dataclass(frozen=True)
class TopologyCheck(Launcher):
    """The program as a file of a pod.

    Attributes:
        size: The node's VM size.
        gpus: GPUs of the pod.
        hand_over: Of a cell.
    """

    size: VmSize
    gpus: int
    hand_over: HandOver | None = None

    def command(self) -> tuple[str, ...]:
        """Return the program; every engine image has Python."""
        return ("python3", PROGRAM)

    def environment(self) -> dict[str, str]:
        return {EXPECTED_VARIABLE: expectation(self.size, self.gpus, self.hand_over)}

    def files(self) -> dict[str, str]:
        """Return the program's text."""
        return {PROGRAM: SOURCE.read_text(encoding="utf-8")}


def topology_check(
    image: pulumi.Output[str], size: VmSize, gpus: int, hand_over: HandOver | None = None
) -> LaunchedContainer:
    """Return the init container. It asks for the pod's GPUs itself: the kubelet then gives the engine the same ones."""
    return LaunchedContainer(
        name="check-topology",
        image=image,
        launcher=TopologyCheck(size, gpus, hand_over),
        share=Share(0.5, 0.5, gpus),
        ports={},
    )
