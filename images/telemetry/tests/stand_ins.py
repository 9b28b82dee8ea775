"""Replacements for what a test machine lacks: a data plane, neuron-monitor and GPUs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DATA = Path(__file__).parent / "data"


def counters(**changes: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((DATA / "dataplane.json").read_text())
    answer["result"] |= changes
    return answer


@asynccontextmanager
async def control_socket(path: Path, answers: list[dict[str, Any]]) -> AsyncIterator[list[bytes]]:
    """Answer one request per connection, and record the requests."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(json.dumps(answers.pop(0)).encode() + b"\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, str(path)):
        yield asked


def monitor(folder: Path, script: str) -> Path:
    """Create a script that replaces neuron-monitor, which needs the device."""
    program = folder / "neuron-monitor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


class Driver:
    """Replaces the driver's library: returns prepared answers for each GPU and records queries."""

    NVMLError = RuntimeError
    NVML_SUCCESS, NVML_GPM_METRICS_GET_VERSION = 0, 1
    NVML_GPM_METRIC_GRAPHICS_UTIL = 1
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 60, 61

    def __init__(self, gpus: list[dict[int, float]], *, gpm: bool = True) -> None:
        self._gpus = gpus
        self._gpm = gpm
        self.live_samples = 0
        self.shutdowns = 0
        self._made = 0

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlGpmQueryDeviceSupport(self, _handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(self._gpm))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._gpus[handle][1])

    def nvmlGpmSampleAlloc(self) -> dict[str, int]:  # noqa: N802
        self.live_samples += 1
        return {}

    def nvmlGpmSampleGet(self, handle: int, sample: dict[str, int]) -> None:  # noqa: N802
        self._made += 1
        sample |= {"gpu": handle, "at": self._made}

    def nvmlGpmSampleFree(self, _sample: object) -> None:  # noqa: N802
        self.live_samples -= 1

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=3) for _ in range(98)])

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802
        assert asked.version == 1
        assert asked.sample1["gpu"] == asked.sample2["gpu"]
        assert asked.sample1["at"] < asked.sample2["at"]
        for metric in asked.metrics[: asked.numMetrics]:
            answer = self._gpus[asked.sample1["gpu"]].get(metric.metricId)
            metric.nvmlReturn = 0 if answer is not None else 3
            metric.value = 7.0 if answer is None else answer
        return asked
