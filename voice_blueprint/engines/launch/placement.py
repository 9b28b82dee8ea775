"""Placement of a process on its node: the GPUs of the process, and the CPUs close to them."""

from dataclasses import dataclass

from voice_blueprint.catalog.azure import VmSize


@dataclass(frozen=True)
class Placement:
    """An engine's share of a node.

    Attributes:
        gpus: Indices of the engine's GPUs.
        visible_gpus: All visible GPUs, starting with the engine's own, since vLLM assigns the *i*-th visible GPU to
            rank *i*. An engine that transfers KV cache over CUDA IPC must see the other engine's GPUs, or UCX falls
            back to TCP.
        numa_nodes: NUMA nodes of its GPUs; empty if unknown.
    """

    gpus: tuple[int, ...]
    visible_gpus: tuple[int, ...]
    numa_nodes: tuple[int, ...]

    def build_command_prefix(self) -> tuple[str, ...]:
        """Return the command prefix that binds an engine to its NUMA nodes.

        The prefix is empty if the nodes are unknown, or if they are all nodes of the VM.

        Only CPUs are bound, not memory. Linux allocates memory on the node of the requesting CPU. ``--membind`` uses
        ``set_mempolicy``, which the container runtimes' seccomp profiles deny without CAP_SYS_NICE. From 2.0.19 on,
        numactl does not start at all if it is not permitted to query its policy
        (https://github.com/numactl/numactl/pull/232); the images contain version 2.0.14 from Ubuntu 22.04.
        """
        if not self.numa_nodes:
            return ()
        return ("numactl", f"--cpunodebind={','.join(map(str, self.numa_nodes))}", "--")

    def build_environment(self) -> dict[str, str]:
        """Return the variable that determines the order in which CUDA numbers the GPUs."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.visible_gpus))}


def create_engine_placement(size: VmSize, gpus: tuple[int, ...]) -> Placement:
    """Return the placement of an engine that uses some GPUs of a node."""
    others = tuple(gpu for gpu in range(size.gpu_count) if gpu not in gpus)
    nodes = tuple(number for number, node in enumerate(size.numa_nodes) if set(node.gpus) & set(gpus))
    return Placement(
        gpus=gpus, visible_gpus=gpus + others, numa_nodes=nodes if len(nodes) < len(size.numa_nodes) else ()
    )
