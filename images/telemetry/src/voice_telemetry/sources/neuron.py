"""Reads AWS Neuron's utilization from neuron-monitor, which writes a JSON document per second.

Format of the document: https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

import asyncio
import contextlib
import json
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ValidationError

from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

MONITOR_CONFIGURATION = {
    "period": "1s",
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": "neuroncore_counters"}]}],
    "system_metrics": [{"type": "neuron_hw_counters"}],
}
_MAX_DOCUMENT_AGE_S = 5.0
_MAX_LINE_BYTES = 4 << 20


class CoreUtilization(BaseModel):
    """Utilization of a NeuronCore, percent."""

    neuroncore_utilization: float


class CoreCounters(BaseModel):
    """Counters for a runtime's cores, by core number."""

    neuroncores_in_use: dict[str, CoreUtilization] = {}


class RuntimeReport(BaseModel):
    """Report of a runtime."""

    neuroncore_counters: CoreCounters = CoreCounters()


class Runtime(BaseModel):
    """A process that uses the accelerator."""

    report: RuntimeReport = RuntimeReport()


class HardwareInfo(BaseModel):
    """Hardware of the host."""

    neuron_device_count: int = 0
    neuroncore_per_device_count: int = 0


class MonitorOutput(BaseModel):
    """The published part of neuron-monitor's output per period."""

    neuron_runtime_data: list[Runtime] = []
    neuron_hardware_info: HardwareInfo = HardwareInfo()

    def calculate_utilization(self) -> float | None:
        """Return the mean utilization of all cores on the host in percent, or ``None`` without a visible runtime.

        A core without a runtime is idle. Without any visible runtime, the utilization is unknown. A runtime that is
        compiling a model, or that neuron-monitor cannot see, must not cause the fleet to shrink.
        """
        used = [
            core.neuroncore_utilization
            for runtime in self.neuron_runtime_data
            for core in runtime.report.neuroncore_counters.neuroncores_in_use.values()
        ]
        cores = self.neuron_hardware_info.neuron_device_count * self.neuron_hardware_info.neuroncore_per_device_count
        idle = max(0, cores - len(used))
        return fmean([*used, *([0.0] * idle)]) if used else None


class NeuronSource:
    """Keeps neuron-monitor running, and stores the latest document that it writes."""

    def __init__(self, program: Path) -> None:
        self._program = program
        # A file with a fixed name in the temporary folder may belong to another user of the machine.
        self._folder = TemporaryDirectory(prefix="voice-telemetry-")
        self._configuration = Path(self._folder.name) / "neuron-monitor.json"
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._latest: tuple[float, MonitorOutput] | None = None

    async def read(self) -> list[Sample]:
        """Return the mean utilization of the host's cores, and the headroom, or no values without a visible runtime."""
        if self._reader is None or self._reader.done():
            await self._start_monitor()
        now = asyncio.get_running_loop().time()
        if self._latest is None or now - self._latest[0] > _MAX_DOCUMENT_AGE_S:
            raise SourceError("neuron-monitor has not reported recently")
        utilization = self._latest[1].calculate_utilization()
        if utilization is None:
            return []
        return [Sample("NeuronUtilization", utilization), Sample("NeuronHeadroom", 100 - utilization)]

    async def close(self) -> None:
        """Stop neuron-monitor."""
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()
        if self._reader:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        self._folder.cleanup()

    async def _start_monitor(self) -> None:
        await asyncio.to_thread(self._configuration.write_text, json.dumps(MONITOR_CONFIGURATION), encoding="utf-8")
        try:
            self._process = await asyncio.create_subprocess_exec(
                str(self._program),
                "-c",
                str(self._configuration),
                stdout=asyncio.subprocess.PIPE,
                limit=_MAX_LINE_BYTES,
            )
        except OSError as error:
            raise SourceError(f"neuron-monitor does not start: {self._program}: {error.strerror}") from None
        self._reader = asyncio.create_task(self._read_documents(self._process))

    async def _read_documents(self, process: asyncio.subprocess.Process) -> None:
        output = process.stdout
        if output is None:
            return
        while line := await output.readline():
            # Invalid lines are skipped. Without valid lines, the latest document becomes stale, which is reported.
            with contextlib.suppress(ValidationError):
                self._latest = (asyncio.get_running_loop().time(), MonitorOutput.model_validate_json(line))
        await process.wait()
