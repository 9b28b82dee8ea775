"""Selects the cell in a deployment that serves a call.

Rendezvous hashing ranks all cells for each call, and the first healthy cell with capacity serves the call. The loss or
addition of a cell only moves the calls that rank this cell first, and gateways need no shared state.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import httpx2

HEALTH_CHECK_TTL_S = 5.0
"""Time after which a cell is checked again."""
HEALTH_CHECK_TIMEOUT_S = 1.0

log = logging.getLogger(__name__)


class CellRouter:
    """The cells in a deployment.

    Attributes:
        own_name: Name of this cell.
    """

    def __init__(self, own_api: str, health_urls: Mapping[str, str]) -> None:
        """Create the cells of a deployment.

        Args:
            own_api: Session API of this cell.
            health_urls: Health URLs by session API. Each URL returns 200 while its cell accepts callers.
        """
        self._api_urls = {_parse_cell_name(api): api for api in health_urls}
        self._health_urls = {_parse_cell_name(api): address for api, address in health_urls.items()}
        self.own_name = _parse_cell_name(own_api)
        self._checks: dict[str, tuple[float, asyncio.Task[bool]]] = {}

    def parse_cell_names(self, names: str) -> set[str]:
        """Return the known cells in a comma-separated list of names."""
        return self._api_urls.keys() & names.split(",")

    def get_api_url(self, name: str) -> str:
        """Return the session API of a cell."""
        return self._api_urls[name]

    def rank_cells(self, call: str) -> list[str]:
        """Return the names of all cells in a call's order of preference."""
        return sorted(self._api_urls, key=lambda name: hashlib.sha256(f"{name} {call}".encode()).digest(), reverse=True)

    async def select_cell(self, call: str, full_cells: Collection[str]) -> str | None:
        """Return the name of the cell that serves a call, or ``None`` if all cells are unavailable or full."""
        for name in self.rank_cells(call):
            if name not in full_cells and (name == self.own_name or await self._is_healthy(name)):
                return name
        return None

    async def _is_healthy(self, name: str) -> bool:
        now = time.monotonic()
        checked_at, check = self._checks.get(name, (0.0, None))
        if check is None or (check.done() and now - checked_at > HEALTH_CHECK_TTL_S):
            check = asyncio.create_task(self._check_health(name))
            self._checks[name] = now, check
        return await asyncio.shield(check)

    async def _check_health(self, name: str) -> bool:
        try:
            async with httpx2.AsyncClient(timeout=HEALTH_CHECK_TIMEOUT_S) as client:
                alive = (await client.get(self._health_urls[name])).status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            alive = False
        if not alive:
            log.warning("a cell does not accept callers", extra={"fields": {"cell": name}})
        return alive


def _parse_cell_name(api: str) -> str:
    return urlsplit(api).netloc
