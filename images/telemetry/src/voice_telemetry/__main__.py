"""Entry point of telemetry: ``python -m voice_telemetry`` reads once per second, and publishes until SIGTERM."""

import asyncio
import logging
import signal
import sys
import time

import boto3
from botocore.config import Config
from pydantic import ValidationError

from voice_runtime import environment
from voice_runtime.store import StoreSettings, connect
from voice_telemetry.cloudwatch import CloudWatchPublisher
from voice_telemetry.prometheus import LatestSampleCollector, start_server
from voice_telemetry.sample import Sample
from voice_telemetry.settings import Settings, SourceName
from voice_telemetry.sources import Source, SourceError
from voice_telemetry.sources.dataplane import DataPlaneSource
from voice_telemetry.sources.engine import EngineSource
from voice_telemetry.sources.gpu import GpuSource
from voice_telemetry.sources.neuron import NeuronSource
from voice_telemetry.sources.nic import NicSource

MAX_VALUE_AGE_S = 10.0
"""Maximum age of values for Prometheus. A value is only older if its source no longer responds."""
_CLOUDWATCH_TIMEOUT_S = 5

log = logging.getLogger("voice_telemetry")


def create_source(name: SourceName, settings: Settings, store: StoreSettings) -> Source:
    match name:
        case SourceName.DATAPLANE:
            return DataPlaneSource(settings.control_socket)
        case SourceName.NIC:
            return NicSource()
        case SourceName.NEURON:
            return NeuronSource(settings.neuron_monitor)
        case SourceName.GPU:
            return GpuSource()
        case SourceName.ENGINE:
            return EngineSource(settings.engine_metrics_url, connect(store), settings.host, settings.start_phases)


class SourceReader:
    """Reads all sources concurrently, so that a source that hangs or fails does not delay the others."""

    def __init__(self, sources: dict[str, Source], *, timeout_s: float) -> None:
        self._sources = sources
        self._limit_s = timeout_s
        self._failing: set[str] = set()

    async def read(self) -> list[Sample]:
        """Return the current values from the sources."""
        results = await asyncio.gather(*(self._read_source(name, source) for name, source in self._sources.items()))
        return [sample for samples in results for sample in samples]

    async def close(self) -> None:
        """Close all sources concurrently."""
        await asyncio.gather(*(source.close() for source in self._sources.values()))

    async def _read_source(self, name: str, source: Source) -> list[Sample]:
        try:
            async with asyncio.timeout(self._limit_s):
                samples = await source.read()
        except (SourceError, TimeoutError, ValidationError) as error:
            if name not in self._failing:
                log.warning("%s: %s", name, str(error) or f"no answer in {self._limit_s} s")
            self._failing.add(name)
            return []
        if name in self._failing:
            log.info("%s: answers again", name)
            self._failing.discard(name)
        return samples


async def run(
    settings: Settings,
    store: StoreSettings,
    cloudwatch: CloudWatchPublisher | None,
    latest_values: LatestSampleCollector,
    stop: asyncio.Event,
) -> None:
    """Read and publish values until stopped, and then send the remaining values."""
    sources = {name.value: create_source(name, settings, store) for name in settings.telemetry_sources}
    readers = SourceReader(sources, timeout_s=settings.read_every_s)
    publishing = asyncio.create_task(_publish_periodically(settings, cloudwatch, stop)) if cloudwatch else None
    next_at = time.monotonic()
    while not stop.is_set():
        samples = await readers.read()
        latest_values.update(samples, time.time() - MAX_VALUE_AGE_S)
        if cloudwatch:
            cloudwatch.add(samples)
        # Missed readings are skipped.
        next_at = max(next_at + settings.read_every_s, time.monotonic())
        await _sleep_until_stopped(stop, next_at - time.monotonic())
    if cloudwatch and publishing:
        await publishing
        await cloudwatch.publish()
    await readers.close()


async def _publish_periodically(settings: Settings, cloudwatch: CloudWatchPublisher, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await _sleep_until_stopped(stop, cloudwatch.calculate_next_pause_s(settings.publish_every_s))
        await cloudwatch.publish()


async def _sleep_until_stopped(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _create_cloudwatch_publisher(settings: Settings) -> CloudWatchPublisher:
    # The library's retries are disabled, since the pauses between calls are longer.
    config = Config(
        connect_timeout=_CLOUDWATCH_TIMEOUT_S, read_timeout=_CLOUDWATCH_TIMEOUT_S, retries={"total_max_attempts": 1}
    )
    client = boto3.client("cloudwatch", region_name=settings.region, config=config)
    return CloudWatchPublisher(client, deployment=settings.deployment, fleet=settings.fleet)


async def _main(settings: Settings, store: StoreSettings) -> None:
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    cloudwatch = _create_cloudwatch_publisher(settings) if settings.region else None
    newest = LatestSampleCollector(deployment=settings.deployment, fleet=settings.fleet)
    server = start_server(newest, settings.prometheus_port, settings.prometheus_address)
    try:
        await run(settings, store, cloudwatch, newest, stop)
    finally:
        server.shutdown()


def main() -> int:
    """Run telemetry until SIGTERM, and return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    settings = environment.read_settings(Settings)
    store = environment.read_settings(StoreSettings)
    try:
        asyncio.run(_main(settings, store))
    except OSError as error:
        sys.stderr.write(f"cannot start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
