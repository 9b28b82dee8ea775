"""``dcgm-exporter``: what the GPUs of a node do."""

from dataclasses import dataclass
from typing import Literal

from blueprint.engines.launch.base import Launcher, flags

COUNTERS_FILE = "/etc/voice/dcgm-counters.csv"
COLLECT_EVERY_MS = 15_000
"""As often as Prometheus scrapes."""


@dataclass(frozen=True)
class Counter:
    """One field of DCGM as a Prometheus metric."""

    field: str
    kind: Literal["gauge", "counter"]
    meaning: str


COUNTERS: tuple[Counter, ...] = (
    Counter("DCGM_FI_DEV_GPU_UTIL", "gauge", "Time with any kernel running (percent)."),
    Counter("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (MiB)."),
    Counter("DCGM_FI_DEV_FB_FREE", "gauge", "Memory free (MiB)."),
    Counter("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (W)."),
    Counter("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature (C)."),
    Counter("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last XID error."),
    Counter("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time with the graphics engine active."),
    Counter("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles with tensor cores active."),
    Counter("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles with memory traffic."),
    Counter("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "NVLink bytes sent (bytes/s)."),
    Counter("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "NVLink bytes received (bytes/s)."),
    Counter("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "PCIe bytes sent (bytes/s)."),
    Counter("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "PCIe bytes received (bytes/s)."),
)
"""What alarms, scaling and dashboards read. The profiling fields are commented out in the exporter's own file. There is
no "NCCL busy" field: traffic over links, against the links' peak, stands in for it."""


@dataclass(frozen=True)
class DcgmExporter(Launcher):
    """The exporter of one node.

    Attributes:
        port: Of its ``/metrics``.
    """

    port: int

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector; values name the pod that each GPU serves."""
        return (
            "dcgm-exporter",
            *flags(
                {
                    "--address": f":{self.port}",
                    "--collectors": COUNTERS_FILE,
                    "--collect-interval": COLLECT_EVERY_MS,
                    "--kubernetes": True,
                }
            ),
        )

    def environment(self) -> dict[str, str]:
        """Return the variables; it asks for no GPU, and has to see all."""
        return {"NVIDIA_VISIBLE_DEVICES": "all"}

    def files(self) -> dict[str, str]:
        """Return the list of fields: ``name, kind, help``, which must hold no comma."""
        return {COUNTERS_FILE: "".join(f"{each.field}, {each.kind}, {each.meaning}\n" for each in COUNTERS)}
