"""Cells on this machine, each with a gateway, a store and hosts of its own."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.running import GatewayProcess, Hosts
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import FULL_CELLS_PARAMETER, HEALTH_PATH
from voice_gateway.cells import CellRouter
from voice_runtime.store import connect

SESSIONS = "/v1/sessions"


class Cell:
    """A cell: a gateway, its store and its hosts."""

    def __init__(self, folder: Path, rtp_port: int) -> None:
        folder.mkdir()
        self.store = StoreServer(folder)
        self.hosts = Hosts(connect(self.store.settings))
        for tier in (Tier.ASR, Tier.VAD):
            self.hosts.put(tier, f"{tier}-1")
        self.gateway = GatewayProcess(self.store, rtp_port)

    @property
    def address(self) -> str:
        """Its entry in the list of cells."""
        return f"{self.gateway.url}={self.gateway.url}{HEALTH_PATH}"

    @contextmanager
    def running(self, **environment: str) -> Iterator[None]:
        self.gateway.environment |= environment
        with self.hosts.beating(self.store.settings):
            self.gateway.start()
            yield
            self.gateway.kill()
        self.store.stop()

    def fill(self) -> None:
        self.hosts.put(Tier.ASR, "asr-1", slots=0)

    def empty(self) -> None:
        self.hosts.put(Tier.ASR, "asr-1")

    async def post(self, call: str, *, follow: bool = False, full: str = "") -> httpx2.Response:
        async with self.gateway.client() as client:
            body = {"transport": "websocket", "call": call}
            query = {FULL_CELLS_PARAMETER: full} if full else {}
            return await client.post(SESSIONS, json=body, params=query, follow_redirects=follow)

    async def serves_what_is_full_at(self, other: "Cell") -> None:
        await self.gateway.ready()
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while (await self.post("any", full=other.name)).status_code != 201:
                await asyncio.sleep(0.1)

    @property
    def name(self) -> str:
        return self.gateway.url.removeprefix("http://")


def owner(cells: Sequence[Cell], call: str) -> Cell:
    urls = [each.gateway.url for each in cells]
    first = CellRouter(urls[0], dict.fromkeys(urls, "")).rank_cells(call)[0]
    return next(each for each in cells if each.name == first)


def call_of(cells: Sequence[Cell], cell: Cell) -> str:
    """Return the name of a call that belongs to a cell."""
    return next(call for call in map(str, range(100)) if owner(cells, call) is cell)
