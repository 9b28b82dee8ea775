"""Compare a node's GPUs and NVLinks with those of its VM size, and refuse to start engines if they differ.

This program runs as an init container and only uses the standard library. ``TOPOLOGY_EXPECTED`` contains the expected
topology as JSON. The exit code is 0, or 1 with one reason on stderr, which Kubernetes shows as the container's
termination message.

NVLink can be missing on an otherwise healthy VM: of 50 starts of a two-GPU size, 29 came up without it
(https://github.com/Azure/azhpc-images/issues/443). Tensor parallelism still works, but at a fraction of the speed.

GPUs that transfer KV cache must also have access to each other's memory (``topo -p2p``): without it, CUDA has no IPC
between them, and UCX silently uses host memory. A report of NC96ads with driver 570 shows that it is missing between
the two pairs (https://github.com/NVIDIA/cuQuantum/issues/191).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

EXPECTED_TOPOLOGY_VARIABLE = "TOPOLOGY_EXPECTED"
NVIDIA_SMI_TIMEOUT_S = 60

_ANSI_COLOUR_PATTERN = re.compile(r"\x1b\[[0-9;]*m")
_GPU_PATTERN = re.compile(r"GPU(\d+)$")
_NVLINK_PATTERN = re.compile(r"NV(\d+)$")


class UnusableNodeError(Exception):
    """The node does not match its VM size. The message contains the difference and a remedy."""


@dataclass(frozen=True)
class ExpectedTopology:
    """Expected topology of a VM size.

    Attributes:
        vm_size: Name of the size.
        gpus: Number of GPUs.
        nvlink_groups: Groups of GPUs that NVLink connects.
        numa_nodes: NUMA node of each GPU in order; empty if unknown.
        peers: Pairs of GPUs that transfer KV cache.
        transports: Transports that UCX may use, for the log.
        refuse_without_peers: Whether the pod does not start if a pair has no access; otherwise, the log contains a
            warning.
    """

    vm_size: str
    gpus: int
    nvlink_groups: tuple[tuple[int, ...], ...]
    numa_nodes: tuple[int, ...] = ()
    peers: tuple[tuple[int, int], ...] = ()
    transports: str = ""
    refuse_without_peers: bool = True

    @classmethod
    def from_json(cls, text: str) -> "ExpectedTopology":
        """Parse the value of ``TOPOLOGY_EXPECTED``."""
        raw = json.loads(text)
        groups = tuple(tuple(group) for group in raw["nvlink_groups"])
        peers = tuple((one, other) for one, other in raw["peers"])
        numa_nodes, refuse = tuple(raw["numa_nodes"]), raw["refuse_without_peers"]
        return cls(raw["vm_size"], raw["gpus"], groups, numa_nodes, peers, raw["transports"], refuse)

    def iter_linked_pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each pair of GPUs that NVLink should connect."""
        for group in self.nvlink_groups:
            yield from ((one, other) for one in group for other in group if one < other)


@dataclass(frozen=True)
class Topology:
    """Topology as reported by ``nvidia-smi topo -m``.

    Attributes:
        links: Connection of each pair of GPUs: ``NV12`` is twelve NVLinks, ``SYS`` is PCIe across NUMA nodes.
        numa_node_by_gpu: NUMA node of each GPU, if the driver knows it.
    """

    links: Mapping[tuple[int, int], str]
    numa_node_by_gpu: Mapping[int, int]

    @property
    def gpu_count(self) -> int:
        return len({one for one, _ in self.links})

    def has_nvlink(self, pair: tuple[int, int]) -> bool:
        """Return True if active NVLinks connect two GPUs."""
        match = _NVLINK_PATTERN.match(self.links.get(pair, ""))
        return match is not None and int(match[1]) > 0


def parse_topology(matrix: str) -> Topology:
    """Parse the output of ``nvidia-smi topo -m``.

    Raises:
        UnusableNodeError: The output contains no matrix of GPUs.
    """
    lines = _ANSI_COLOUR_PATTERN.sub("", matrix).splitlines()
    header = next((line for line in lines if "GPU0" in line), None)
    if header is None:
        raise UnusableNodeError(f"`nvidia-smi topo -m` shows no GPU: {' '.join(matrix.split())[:200]!r}")
    # Columns are separated by tabs; the driver pads some with blanks, and one of the last ones with a second tab.
    titles = [title.strip() for title in header.split("\t")]
    columns = {int(match[1]): index for index, title in enumerate(titles) if (match := _GPU_PATTERN.match(title))}
    numa_column = next((index for index, title in enumerate(titles) if title == "NUMA Affinity"), None)
    links: dict[tuple[int, int], str] = {}
    numa_node_by_gpu: dict[int, int] = {}
    for line in lines[lines.index(header) + 1 :]:
        cells = [cell.strip() for cell in line.split("\t")]
        if not (row := _GPU_PATTERN.match(cells[0])):
            continue
        gpu = int(row[1])
        links |= {(gpu, other): cells[index] for other, index in columns.items() if index < len(cells)}
        if numa_column is not None and numa_column < len(cells) and cells[numa_column].isdigit():
            numa_node_by_gpu[gpu] = int(cells[numa_column])
    return Topology(links, numa_node_by_gpu)


def validate_topology(expected: ExpectedTopology, topology: Topology, listing: str) -> None:
    """Compare the expected topology with the actual one.

    Args:
        expected: Topology of the VM size.
        topology: Actual topology.
        listing: Output of ``nvidia-smi -L``, which lists MIG instances.

    Raises:
        UnusableNodeError: Something is missing or different.
    """
    if "MIG " in listing:
        raise UnusableNodeError(
            "MIG is on: its instances have no NVLink. Create the pool without a GPU instance profile"
        )
    if topology.gpu_count != expected.gpus:
        raise UnusableNodeError(
            f"{topology.gpu_count} of {expected.gpus} GPUs were detected. Redeploy the VM (delete the node). If it "
            "persists, "
            "run `nvidia-smi` on the node to identify the GPU that fell off the bus, and open a support request"
        )
    missing = [pair for pair in expected.iter_linked_pairs() if not topology.has_nvlink(pair)]
    if missing:
        result = ", ".join(f"GPU {one} to GPU {other} is {topology.links[one, other]}" for one, other in missing)
        raise UnusableNodeError(
            f"NVLink is not active where {expected.vm_size} has it: {result}. {_format_nvlink_hint(expected, topology)}"
        )
    expected_nodes = dict(enumerate(expected.numa_nodes))
    different_nodes = {
        gpu: node for gpu, node in topology.numa_node_by_gpu.items() if expected_nodes.get(gpu, node) != node
    }
    if different_nodes:
        result = ", ".join(
            f"GPU {gpu} is on {node}, not {expected_nodes[gpu]}" for gpu, node in different_nodes.items()
        )
        raise UnusableNodeError(f"NUMA nodes differ from the catalogue's: {result}. Correct the row {expected.vm_size}")


def parse_peer_access(matrix: str) -> dict[tuple[int, int], str]:
    """Parse the output of ``nvidia-smi topo -p2p``.

    The value of a pair is ``OK``, or a reason such as ``NS`` for not supported.

    Raises:
        UnusableNodeError: The output contains no matrix of GPUs.
    """
    lines = _ANSI_COLOUR_PATTERN.sub("", matrix).splitlines()
    header = next((line.split() for line in lines if line.split()[:1] == ["GPU0"]), None)
    if header is None:
        raise UnusableNodeError(f"`nvidia-smi topo -p2p` shows no GPU: {' '.join(matrix.split())[:200]!r}")
    columns = [int(match[1]) for title in header if (match := _GPU_PATTERN.match(title))]
    access: dict[tuple[int, int], str] = {}
    for cells in (line.split() for line in lines):
        # A row has as many values as the header has names.
        if cells and cells != header and (row := _GPU_PATTERN.match(cells[0])):
            access |= {(int(row[1]), other): cell for other, cell in zip(columns, cells[1:], strict=False)}
    return access


def describe_missing_peer_access(expected: ExpectedTopology, access: Mapping[tuple[int, int], str]) -> str:
    """Return a description of missing peer access between GPUs that transfer KV cache, or an empty string.

    Raises:
        UnusableNodeError: Peer access is missing, and the pod is configured not to start.
    """
    pairs_without_access = [pair for pair in expected.peers if access.get(pair, "absent") != "OK"]
    if not pairs_without_access:
        return ""
    result = ", ".join(
        f"GPU {one} to GPU {other} is {access.get((one, other), 'absent')}" for one, other in pairs_without_access
    )
    text = (
        f"GPUs that transfer KV cache have no peer access: {result}. Of {expected.transports} UCX can only "
        "use those through host memory. Use aggregated engines, another driver, or without_peer_access: warn"
    )
    if expected.refuse_without_peers:
        raise UnusableNodeError(text)
    return text


def _format_nvlink_hint(expected: ExpectedTopology, topology: Topology) -> str:
    """Return the remedy: replace the VM if links are down, or correct the catalogue if they connect other pairs."""
    linked = {pair for pair in topology.links if pair[0] < pair[1] and topology.has_nvlink(pair)}
    if others := sorted(linked.difference(expected.iter_linked_pairs())):
        return f"It joins {', '.join(f'{one} and {other}' for one, other in others)}: correct the catalogue's pairs"
    return "Redeploy the VM (delete the node)"


def _run_nvidia_smi(*arguments: str) -> str:
    try:
        result = subprocess.run(  # noqa: S603  a fixed command
            ["nvidia-smi", *arguments],  # noqa: S607  the NVIDIA runtime puts it on the PATH
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=True,
        )
    except FileNotFoundError as error:
        raise UnusableNodeError(
            "nvidia-smi is missing: the container was not started with the NVIDIA runtime"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UnusableNodeError(
            f"nvidia-smi has not responded for {NVIDIA_SMI_TIMEOUT_S} s; the driver hangs"
        ) from error
    except subprocess.CalledProcessError as error:
        output = (error.stdout + error.stderr).strip()
        raise UnusableNodeError(f"nvidia-smi failed with code {error.returncode}: {output}") from error
    return result.stdout


def main() -> int:
    try:
        expected = ExpectedTopology.from_json(os.environ[EXPECTED_TOPOLOGY_VARIABLE])
        matrix = _run_nvidia_smi("topo", "-m")
        sys.stdout.write(matrix)  # in the pod's log, for later analysis
        validate_topology(expected, parse_topology(matrix), _run_nvidia_smi("-L"))
        # Prefill writes, decode reads.
        for mode in ("w", "r") if expected.peers else ():
            matrix_text = _run_nvidia_smi("topo", "-p2p", mode)
            sys.stdout.write(matrix_text)
            if warning := describe_missing_peer_access(expected, parse_peer_access(matrix_text)):
                sys.stderr.write(f"warning: {warning}\n")
    except UnusableNodeError as reason:
        sys.stderr.write(f"refused: {reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
