"""``dcgm-exporter``: metrics of a node's GPUs."""

from dataclasses import dataclass
from typing import Literal

from voice_blueprint.engines.launch.base import Launcher, format_flags

PROGRAM = "/usr/bin/dcgm-exporter"
"""Path in the publisher's image (``voice_blueprint/catalog/publishers.yaml``); the PATH of its base image is not
documented."""
COUNTERS_FILE = "/etc/voice/dcgm-counters.csv"
COLLECT_INTERVAL_MS = 15_000
"""Collection interval, which equals Prometheus's scrape interval."""


@dataclass(frozen=True)
class Counter:
    """A DCGM field that is exported as a Prometheus metric."""

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
    Counter("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "XID errors of the last five minutes by number."),
    Counter("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time with the graphics engine active."),
    Counter("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles with tensor cores active."),
    Counter("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles with memory traffic."),
    Counter("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "NVLink bytes sent (bytes/s)."),
    Counter("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "NVLink bytes received (bytes/s)."),
    Counter("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "PCIe bytes sent (bytes/s)."),
    Counter("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "PCIe bytes received (bytes/s)."),
)
"""Fields that alarms, scaling and dashboards read. The exporter's default file disables the profiling fields. DCGM has
no "NCCL busy" field; link traffic relative to the links' peak is used instead."""

LABELS = frozenset({"gpu", "hostname", "xid"})
"""Labels that queries of these metrics may use. Release 4.6.0-4.8.3 renamed ``Hostname`` to ``hostname``
(https://github.com/NVIDIA/dcgm-exporter/releases/tag/4.6.0-4.8.3); only the count of XID errors has ``xid``."""
NODE_NAME = "NODE_NAME"
"""Variable with the value of ``hostname``. Without it, the exporter uses its pod's name
(https://github.com/NVIDIA/dcgm-exporter, ``internal/pkg/hostname/hostname.go``)."""


@dataclass(frozen=True)
class DcgmExporter(Launcher):
    """The exporter of one node.

    Attributes:
        port: Port of ``/metrics``.
    """

    port: int

    def command(self) -> tuple[str, ...]:
        """Return the argument vector. Metrics are labelled with the pod that uses each GPU."""
        return (
            PROGRAM,
            *format_flags(
                {
                    "--address": f":{self.port}",
                    "--collectors": COUNTERS_FILE,
                    "--collect-interval": COLLECT_INTERVAL_MS,
                    "--kubernetes": True,
                }
            ),
        )

    def environment(self) -> dict[str, str]:
        """Return the variable that makes all GPUs visible to the container, which requests none."""
        return {"NVIDIA_VISIBLE_DEVICES": "all"}

    def files(self) -> dict[str, str]:
        """Return the file with the exported fields as ``name, kind, help``. The help must not contain a comma."""
        return {COUNTERS_FILE: "".join(f"{each.field}, {each.kind}, {each.meaning}\n" for each in COUNTERS)}
