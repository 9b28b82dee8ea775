"""Environment variables for the NIXL and NCCL transports: UCX, CUDA IPC, side channels."""

from dataclasses import dataclass

from voice_blueprint.engines.launch.base import LOOPBACK

HASH_SEED_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""Seed of hashes. vLLM identifies KV cache blocks by hashes with a random initial value unless a seed is set. LMCache
0.5.6 hashes chunks with blake3, which needs no seed (``lmcache/v1/multiprocess/token_hasher.py``); LMCache's other
algorithms need one."""

SIDE_CHANNEL_PORT_VARIABLE = "VLLM_NIXL_SIDE_CHANNEL_PORT"

UCX_TRANSPORTS = "cuda_ipc,cuda_copy,sm,self,tcp"
"""Transports that UCX may use on a node without InfiniBand."""


@dataclass(frozen=True)
class NixlFabric:
    """KV cache transfer between engines through NIXL on UCX.

    Attributes:
        side_channel_port: Port for the exchange of memory layouts (vLLM's default is 5600); unique on a host.
    """

    side_channel_port: int

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables for vLLM's NIXL connector, UCX and NCCL.

        UCX uses the fastest available transport of the list: ``cuda_ipc`` between GPUs of a node, ``cuda_copy`` and
        ``sm`` through host memory, and finally ``tcp``. NCCL allocates with ``cuMem`` so that its buffers can be
        shared, as vLLM's NIXL guide requires.
        """
        return {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
            SIDE_CHANNEL_PORT_VARIABLE: str(self.side_channel_port),
            "UCX_TLS": UCX_TRANSPORTS,
            "UCX_NET_DEVICES": "all",
            # UCX logs the selected transport for each kind of memory; the cell's check reads this log.
            "UCX_PROTO_INFO": "y",
            # Other streams are buffered, so the log would be delayed or lost.
            "UCX_LOG_FILE": "stderr",
            "NCCL_CUMEM_ENABLE": "1",
        }
