"""What the transports beneath NIXL and NCCL are told: UCX, CUDA IPC, side channels."""

from dataclasses import dataclass

from blueprint.engines.launch.base import LOOPBACK

HASH_SEED = {"PYTHONHASHSEED": "0"}
"""Engines and LMCache servers name chunks by hashes, which Python otherwise salts in each process."""

TRANSPORTS = "cuda_ipc,cuda_copy,sm,self,tcp"
"""What UCX may choose among, on a node without InfiniBand."""


@dataclass(frozen=True)
class NixlFabric:
    """How one engine hands KV cache to another through NIXL on UCX.

    Attributes:
        side_channel_port: Where it tells its memory layout (vLLM's default is 5600); unique on a host.
    """

    side_channel_port: int

    def environment(self) -> dict[str, str]:
        """Return the variables of vLLM's NIXL connector, UCX and NCCL.

        UCX takes the fastest transport of the list that works: ``cuda_ipc`` between GPUs of one node, ``cuda_copy`` and
        ``sm`` through host memory, ``tcp`` at last; the list holds no transport that the node lacks. NCCL allocates by
        ``cuMem`` so that its buffers can be shared, which vLLM's NIXL guide asks for.
        """
        return {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_channel_port),
            "UCX_TLS": TRANSPORTS,
            "UCX_NET_DEVICES": "all",
            # UCX then writes down the transport that it chose for each kind of memory; the cell's check reads that.
            "UCX_PROTO_INFO": "y",
            # Any other stream is buffered: the choice would come with a later one, or never.
            "UCX_LOG_FILE": "stderr",
            "NCCL_CUMEM_ENABLE": "1",
        }
