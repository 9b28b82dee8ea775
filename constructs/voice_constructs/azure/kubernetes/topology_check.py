"""Init container that prevents engines from starting on a node with missing GPU connections."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pulumi

from voice_blueprint.catalog import VmSize
from voice_blueprint.engines.launch.base import Launcher
from voice_constructs.azure.kubernetes.files.check_topology import EXPECTED_TOPOLOGY_VARIABLE
from voice_constructs.azure.kubernetes.pods import ContainerResources, ContainerSpec

PROGRAM_PATH = "/opt/voice/check_topology.py"
SOURCE_FILE = Path(__file__).parent / "files" / "check_topology.py"


@dataclass(frozen=True)
class CacheTransfer:
    """KV cache transfer between the engines of a cell.

    Attributes:
        gpu_groups: GPUs of the prefill engine and of the decode engine.
        transports: Transports that UCX may use.
        refuses_without_access: Whether the check fails if the GPUs cannot access each other's memory.
    """

    gpu_groups: tuple[tuple[int, ...], tuple[int, ...]]
    transports: str
    refuses_without_access: bool


def render_expected_topology(size: VmSize, gpus: int, cache_transfer: CacheTransfer | None = None) -> str:
    """Return the expected topology of a pod's GPUs as JSON.

    A pod with all GPUs of its node has the topology of the catalogue. In a pod with some of them, GPUs are numbered
    from 0 and must all be connected, as tensor parallelism requires.
    """
    is_full_node = gpus == size.gpu_count
    numa = {gpu: index for index, node in enumerate(size.numa_nodes) for gpu in node.gpus}
    return json.dumps(
        {
            "vm_size": size.name,
            "gpus": gpus,
            "nvlink_groups": [list(group) for group in size.nvlink_domains] if is_full_node else [list(range(gpus))],
            "numa_nodes": [numa[gpu] for gpu in range(gpus)] if is_full_node and numa else [],
            "peers": list(itertools.product(*cache_transfer.gpu_groups)) if cache_transfer else [],
            "transports": cache_transfer.transports if cache_transfer else "",
            "refuse_without_peers": cache_transfer.refuses_without_access if cache_transfer else True,
        }
    )


@dataclass(frozen=True)
class TopologyCheck(Launcher):
    """A process that runs the check program.

    Attributes:
        vm_size: The node's VM size.
        gpu_count: GPUs of the pod.
        cache_transfer: KV cache transfer of a cell.
    """

    vm_size: VmSize
    gpu_count: int
    cache_transfer: CacheTransfer | None = None

    def build_command(self) -> tuple[str, ...]:
        """Return the command. Every engine image contains Python."""
        return ("python3", PROGRAM_PATH)

    def build_environment(self) -> dict[str, str]:
        return {EXPECTED_TOPOLOGY_VARIABLE: render_expected_topology(self.vm_size, self.gpu_count, self.cache_transfer)}

    def render_files(self) -> dict[str, str]:
        """Return the program's source."""
        return {PROGRAM_PATH: SOURCE_FILE.read_text(encoding="utf-8")}


def create_topology_check_container(
    image: pulumi.Output[str], size: VmSize, gpus: int, cache_transfer: CacheTransfer | None = None
) -> ContainerSpec:
    """Return the init container of the check. It requests the pod's GPUs, so that the engine gets the same GPUs."""
    return ContainerSpec(
        name="check-topology",
        image=image,
        launcher=TopologyCheck(size, gpus, cache_transfer),
        resources=ContainerResources(0.5, 0.5, gpus),
        ports={},
    )
