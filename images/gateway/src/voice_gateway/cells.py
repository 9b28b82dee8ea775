"""Selects the cell of a deployment that serves a call.

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

CHECK_TTL_S = 5.0
"""Time until a cell is checked again."""
TIMEOUT_S = 1.0

log = logging.getLogger(__name__)


class Cells:
    """The cells of a deployment.

    Attributes:
        own_name: Name of this cell.
    """

    def __init__(self, own_api: str, health: Mapping[str, str]) -> None:
        """Create the cells of a deployment.

        Args:
            own_api: Session API of this cell.
            health_urls: Health URLs by session API. Each URL returns 200 while its cell accepts callers.
        """
        self._api = {_name(api): api for api in health}
        self._health = {_name(api): address for api, address in health.items()}
        self.own_name = _name(own_api)
        self._checks: dict[str, tuple[float, asyncio.Task[bool]]] = {}

    def parse_names(self, names: str) -> set[str]:
        """Return the known cells in a comma-separated list of names."""
        return self._api.keys() & names.split(",")

    def api(self, name: str) -> str:
        """Return the session API of a cell."""
        return self._api[name]

    def rank(self, call: str) -> list[str]:
        """Return the names of all cells in a call's order of preference."""
        return sorted(self._api, key=lambda name: hashlib.sha256(f"{name} {call}".encode()).digest(), reverse=True)

    async def pick(self, call: str, full: Collection[str]) -> str | None:
        """Return the name of the cell that serves a call, or ``None`` if all cells are unavailable or full."""
        for name in self.rank(call):
            if name not in full and (name == self.own_name or await self._is_healthy(name)):
                return name
        return None

    async def _is_healthy(self, name: str) -> bool:
        now = time.monotonic()
        checked_at, check = self._checks.get(name, (0.0, None))
        if check is None or (check.done() and now - checked_at > CHECK_TTL_S):
            check = asyncio.create_task(self._check(name))
            self._checks[name] = now, check
        return await asyncio.shield(check)

    async def _check(self, name: str) -> bool:
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
                alive = (await client.get(self._health[name])).status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            alive = False
        if not alive:
            log.warning("a cell does not take callers", extra={"fields": {"cell": name}})
        return alive


def _name(api: str) -> str:
    return urlsplit(api).netloc
