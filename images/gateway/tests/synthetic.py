"""A gateway's own call, in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

from images.conftest import StoreServer
from images.gateway.tests.running import GatewayProcess
from voice_gateway.gateway import Gateway
from voice_gateway.settings import GatewaySettings
from voice_gateway.synthetic_call import SyntheticCaller
from voice_runtime.metrics import Metrics
from voice_runtime.store import connect


@asynccontextmanager
async def caller(process: GatewayProcess, store: StoreServer, lines: list[str]) -> AsyncIterator[SyntheticCaller]:
    """Make a caller with the settings of a gateway, which it calls.

    Args:
        lines: Takes the metrics that it writes.
    """
    async with connect(store.settings) as client:
        with patch.dict("os.environ", process.environment):
            settings = GatewaySettings()
        gateway = Gateway(settings, client, Metrics("test", "gateway", lines.append))
        await gateway.fleet.refresh()
        yield SyntheticCaller(gateway, f"ws://127.0.0.1:{process.media_port}")
        gateway.metrics.flush()
