"""Reads NVIDIA GPUs through the driver's own library.

On Hopper, DCGM's graphics-engine activity (``DCGM_FI_PROF_GR_ENGINE_ACTIVE``) is available in the GPU performance
monitor (GPM), without DCGM's daemon. Older GPUs report only the share of time during which any kernel runs, which is a
coarser measure. https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html
"""

import asyncio
from statistics import fmean
from typing import Any

import pynvml

from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

_BYTES_PER_MIB = 1 << 20


class GpuSource:
    """Reads all GPUs on the host."""

    def __init__(self, library: Any = pynvml) -> None:  # noqa: ANN401  a module of C bindings without types
        self._nvml = library
        self._gpus: list[_Device] = []
        self._reading: asyncio.Future[list[Sample]] | None = None

    async def read(self) -> list[Sample]:
        """Return the mean GPU activity and, on multi-GPU hosts, the NVLink traffic.

        Raises:
            SourceError: The driver reports an error, or the previous reading has not ended.
        """
        # A call into a hanging driver cannot be cancelled. Further calls would occupy all threads of the program.
        if self._is_reading:
            raise SourceError("the driver does not respond")
        self._reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        return await asyncio.shield(self._reading)

    @property
    def _is_reading(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def close(self) -> None:
        """Shut down the library, unless the driver hangs."""
        if self._gpus and not self._is_reading:
            self._nvml.nvmlShutdown()

    def _read(self) -> list[Sample]:
        try:
            if not self._gpus:
                self._nvml.nvmlInit()
                count = self._nvml.nvmlDeviceGetCount()
                self._gpus = [_Device(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
            readings = [gpu.read() for gpu in self._gpus]
        except self._nvml.NVMLError as error:
            raise SourceError(f"the driver does not tell: {error}") from None
        values = [reading for reading in readings if reading is not None]
        if not values:
            return []
        samples = [Sample("GpuBusy", fmean(busy for busy, _ in values))]
        if len(values) > 1:
            samples.append(Sample("GpuLinkTraffic", sum(link for _, link in values)))
        return samples


class _Device:
    def __init__(self, nvml: Any, handle: Any) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._handle = handle
        self._has_gpm = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        self._previous_sample: Any = None

    def read(self) -> tuple[float, float] | None:
        """Return activity in percent and link traffic in bytes per second, or ``None`` at the first of two readings."""
        if not self._has_gpm:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu), 0.0
        now = self._nvml.nvmlGpmSampleAlloc()
        self._nvml.nvmlGpmSampleGet(self._handle, now)
        before, self._previous_sample = self._previous_sample, now
        if before is None:
            return None
        try:
            busy, received, sent = self._query_gpm_metrics(before, now)
        finally:
            self._nvml.nvmlGpmSampleFree(before)
        return busy, (received + sent) * _BYTES_PER_MIB

    def _query_gpm_metrics(self, before: Any, now: Any) -> list[float]:  # noqa: ANN401
        metric_ids = (
            self._nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
            self._nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
            self._nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
        )
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2, request.numMetrics = before, now, len(metric_ids)
        for i, metric in enumerate(metric_ids):
            request.metrics[i].metricId = metric
        result = self._nvml.nvmlGpmMetricsGet(request)
        # A GPU without links responds with "not supported" for them.
        return [
            float(result.metrics[i].value) if result.metrics[i].nvmlReturn == self._nvml.NVML_SUCCESS else 0.0
            for i in range(len(metric_ids))
        ]
