"""Monitoring of the vLLM server on the same host, which must respond to requests or to a short silence.

vLLM's ``/health`` is not sufficient, since it returns 200 while the engine core hangs. A router with several engines is
not monitored this way, since a hanging engine does not affect the others.
"""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

PROBE_IDLE_TIME_S = 5.0
"""Time without a response after which a short silence is sent."""
PROBE_TIMEOUT_S = 4.0
"""Timeout of the response to the silence. This value is a choice of this project: vLLM takes 0.1 s, and responses to
other requests count as well."""
MAX_UNANSWERED_PROBES = 3
"""Number of consecutive timeouts after which vLLM counts as stuck, 20 s after its last response."""
POLL_INTERVAL_S = 1.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class VllmMonitor:
    """Monitors a vLLM server.

    Args:
        probe: Function that sends a short silence, and returns after the response.
        failures: Exceptions that the probe raises if vLLM does not respond.
        address: Address of vLLM.
    """

    def __init__(self, probe: Callable[[], Awaitable[T]], failures: tuple[type[Exception], ...], address: str) -> None:
        self._probe = probe
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *failures)
        self._is_local = is_loopback_url(address)
        self._unanswered = 0
        self._answered_at = 0.0

    @property
    def is_stuck(self) -> bool:
        """Whether vLLM no longer responds."""
        return self._unanswered >= MAX_UNANSWERED_PROBES

    def record_response(self) -> None:
        """Record a response to any request."""
        if self.is_stuck:
            log.warning("vLLM answers again")
        self._unanswered, self._answered_at = 0, time.monotonic()

    async def run(self) -> None:
        """Monitor vLLM from its first response until cancelled."""
        self.record_response()
        while self._is_local:
            await asyncio.sleep(POLL_INTERVAL_S)
            if time.monotonic() - self._answered_at >= PROBE_IDLE_TIME_S:
                await self._poll()

    async def _poll(self) -> None:
        last_answer_at = self._answered_at
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._probe()
        except self._failures as error:
            # A response to another request in the meantime shows that vLLM is busy.
            if self._answered_at == last_answer_at:
                self._unanswered += 1
                if self._unanswered == MAX_UNANSWERED_PROBES:
                    log.warning(
                        "no answer of vLLM for %.0f s: %s", time.monotonic() - last_answer_at, str(error) or "it hangs"
                    )
        else:
            self.record_response()


def is_loopback_url(address: str) -> bool:
    """Return True if an address is the host's own."""
    name = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
