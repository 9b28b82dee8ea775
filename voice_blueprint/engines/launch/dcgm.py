"""``dcgm-exporter``: metrics of a node's GPUs."""

from dataclasses import dataclass
from typing import Literal

from voice_blueprint.engines.launch.base import Launcher, format_flags

DCGM_EXPORTER_PROGRAM = "/usr/bin/dcgm-exporter"
"""Path in the publisher's image (``voice_blueprint/catalog/publishers.yaml``); the PATH of its base image is not
documented."""
EXPORTED_FIELDS_FILE = "/etc/voice/dcgm-counters.csv"
COLLECTION_INTERVAL_MS = 15_000
"""Collection interval, which equals Prometheus's scrape interval."""


@dataclass(frozen=True)
class ExportedField:
    """A DCGM field that is exported as a Prometheus metric."""

    field: str
    kind: Literal["gauge", "counter"]
    help_text: str


EXPORTED_FIELDS: tuple[ExportedField, ...] = (
    ExportedField("DCGM_FI_DEV_GPU_UTIL", "gauge", "Time with any kernel running (percent)."),
    ExportedField("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (MiB)."),
    ExportedField("DCGM_FI_DEV_FB_FREE", "gauge", "Memory free (MiB)."),
    ExportedField("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (W)."),
    ExportedField("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature (C)."),
    ExportedField("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last XID error."),
    ExportedField("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "XID errors of the last five minutes by number."),
    ExportedField("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time with the graphics engine active."),
    ExportedField("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles with tensor cores active."),
    ExportedField("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles with memory traffic."),
    ExportedField("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "NVLink bytes sent (bytes/s)."),
    ExportedField("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "NVLink bytes received (bytes/s)."),
    ExportedField("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "PCIe bytes sent (bytes/s)."),
    ExportedField("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "PCIe bytes received (bytes/s)."),
)
"""Fields that alarms, scaling and dashboards read. The exporter's default file disables the profiling fields. DCGM has
no "NCCL busy" field, so link traffic relative to the peak bandwidth of the links is used instead."""

DCGM_METRIC_LABELS = frozenset({"gpu", "hostname", "xid"})
"""Labels that queries of these metrics may use. Release 4.6.0-4.8.3 renamed ``Hostname`` to ``hostname``
(https://github.com/NVIDIA/dcgm-exporter/releases/tag/4.6.0-4.8.3); only the count of XID errors has ``xid``."""
NODE_NAME_VARIABLE = "NODE_NAME"
"""Variable with the value of ``hostname``. Without it, the exporter uses its pod's name
(https://github.com/NVIDIA/dcgm-exporter, ``internal/pkg/hostname/hostname.go``)."""


@dataclass(frozen=True)
class DcgmExporter(Launcher):
    """The exporter on one node.

    Attributes:
        port: Port of ``/metrics``.
    """

    port: int

    def build_command(self) -> tuple[str, ...]:
        """Return the argument vector. Metrics are labelled with the pod that uses each GPU."""
        return (
            DCGM_EXPORTER_PROGRAM,
            *format_flags(
                {
                    "--address": f":{self.port}",
                    "--collectors": EXPORTED_FIELDS_FILE,
                    "--collect-interval": COLLECTION_INTERVAL_MS,
                    "--kubernetes": True,
                }
            ),
        )

    def build_environment(self) -> dict[str, str]:
        """Return the variable that makes all GPUs visible to the container, which requests none."""
        return {"NVIDIA_VISIBLE_DEVICES": "all"}

    def render_files(self) -> dict[str, str]:
        """Return the file with the exported fields as ``name, kind, help``. The help must not contain a comma."""
        return {
            EXPORTED_FIELDS_FILE: "".join(f"{each.field}, {each.kind}, {each.help_text}\n" for each in EXPORTED_FIELDS)
        }
