"""Checks the public host names with requests that pass through DNS, TLS, the load balancer and a gateway.

If one of these components fails, no calls arrive, so call metrics would not show the failure.
"""

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass

from voice_blueprint.contract.session_api import HEALTH_PATH, SESSION_PATH, TOKEN_HEADER
from voice_runtime.metrics import Metrics

PROBE_INTERVAL_S = 60.0
PROBE_TIMEOUT_S = 10.0
SECONDS_PER_DAY = 86_400
PROBE_ID = "front-door"
"""Session id and token of a request to the session API. The gateway responds to this request with 401. API Gateway
forwards the request although the request has no credentials. Otherwise, API Gateway would respond with another
status."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublicHostProber:
    """The public host names of a deployment.

    Attributes:
        host: Host name for audio.
        api_host: Host name of the session API; empty if the session API has no host name of its own.
        tls: TLS context with the trusted authorities.
    """

    host: str
    metrics: Metrics
    port: int = 443
    tls: ssl.SSLContext | None = None
    api_host: str = ""

    async def run(self) -> None:
        """Send a request to each name every minute, and record the results."""
        while True:
            await self.check_hosts()
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def check_hosts(self) -> bool:
        """Send a request to each name, and return True if all requests succeeded."""
        checks = [self._try_probe(self.host, f"GET {HEALTH_PATH}", "", b"200")]
        if self.api_host:
            path, token = SESSION_PATH.format(id=PROBE_ID), f"{TOKEN_HEADER}: {PROBE_ID}\r\n"
            checks.append(self._try_probe(self.api_host, f"DELETE {path}", token, b"401"))
        days = await asyncio.gather(*checks)
        successful = [each for each in days if each is not None]
        succeeded = len(successful) == len(days)
        self.metrics.observe("FrontDoorAnswers", int(succeeded))
        if successful:
            self.metrics.observe("CertificateDays", min(successful))
        return succeeded

    async def _try_probe(self, host: str, request: str, header: str, expected: bytes) -> float | None:
        """Send a request, and return the days until the certificate expires, or ``None`` if the request failed."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await self._probe(host, request, header, expected)
        except (OSError, TimeoutError, ValueError) as error:
            fields = {"host": host, "reason": str(error) or type(error).__name__}
            log.warning("the public name does not answer", extra={"fields": fields})
            return None

    async def _probe(self, host: str, request: str, header: str, expected: bytes) -> float:
        """Send a request, and return the days until the certificate expires.

        Raises:
            OSError: The connection failed, or the certificate is not trusted.
            ValueError: The response has an unexpected status.
        """
        reader, writer = await asyncio.open_connection(
            host, self.port, ssl=self.tls or ssl.create_default_context(), server_hostname=host
        )
        try:
            # Rules of web application firewalls block requests without a user agent.
            head = f"{request} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: voice-gateway\r\nAccept: */*\r\n{header}"
            writer.write(f"{head}Connection: close\r\n\r\n".encode())
            status = (await reader.readline()).split()
            if status[1:2] != [expected]:
                raise ValueError(f"{request} answers {b' '.join(status[1:]).decode('latin-1') or 'nothing'}")
            expires = ssl.cert_time_to_seconds(writer.get_extra_info("peercert")["notAfter"])
        finally:
            writer.transport.abort()
        return (expires - time.time()) / SECONDS_PER_DAY
