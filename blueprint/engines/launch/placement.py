"""Where a process runs on its node: its GPUs, and the CPUs beside them."""

from dataclasses import dataclass

from blueprint.catalog.azure import VmSize


@dataclass(frozen=True)
class Placement:
    """One engine's share of a node.

    Attributes:
        gpus: Indices of its own GPUs.
        visible_gpus: All GPUs that it can see: its own first, since vLLM gives rank *i* the *i*-th visible one. An
            engine that hands KV cache over CUDA IPC has to see the other side's GPUs, or UCX falls back to TCP.
        numa_nodes: NUMA nodes of its own GPUs; empty where no source says which they are.
    """

    gpus: tuple[int, ...]
    visible_gpus: tuple[int, ...]
    numa_nodes: tuple[int, ...]

    def prefix(self) -> tuple[str, ...]:
        """Return what to put in front of a command; nothing where the NUMA nodes are unknown or all are used.

        CPUs are bound, memory is not: Linux allocates on the node of the CPU that asks, and the container runtimes'
        seccomp profiles refuse ``set_mempolicy`` without CAP_SYS_NICE, which ``--membind`` would call. From 2.0.19 on
        numactl starts nothing at all where it may not ask for its policy (https://github.com/numactl/numactl/pull/232);
        the images have the 2.0.14 of Ubuntu 22.04.
        """
        if not self.numa_nodes:
            return ()
        return ("numactl", f"--cpunodebind={','.join(map(str, self.numa_nodes))}", "--")

    def environment(self) -> dict[str, str]:
        """Return the order in which CUDA counts the GPUs."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.visible_gpus))}


def place(size: VmSize, gpus: tuple[int, ...]) -> Placement:
    """Return an engine's share of a node: its GPUs first, then the others, and the NUMA nodes of its own."""
    others = tuple(gpu for gpu in range(size.gpu_count) if gpu not in gpus)
    nodes = tuple(number for number, node in enumerate(size.numa_nodes) if set(node.gpus) & set(gpus))
    return Placement(
        gpus=gpus, visible_gpus=gpus + others, numa_nodes=nodes if len(nodes) < len(size.numa_nodes) else ()
    )
