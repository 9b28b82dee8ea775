"""A public host name on this machine: a TLS server with a certificate of its own, and a gateway's requests to it."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from voice_gateway.public_hosts import PublicHostProber
from voice_runtime.metrics import Metrics

DAYS = 20
"""Validity of the certificate, days."""


def localhost_certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate for localhost.

    A file with the suffix ``.crt`` contains only the certificate.
    """
    file = folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", file, "-out", f"{file}.crt", "-days", str(DAYS), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(
        file.read_text(encoding="utf-8") + Path(f"{file}.crt").read_text(encoding="utf-8"), encoding="utf-8"
    )
    return file


@asynccontextmanager
async def server(certificate: Path, answer: bytes | None, api_answer: bytes = b"") -> AsyncIterator[int]:
    """Serve one response per name over TLS; ``None`` accepts requests without responding."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        of_api = head.startswith(b"DELETE /v1/sessions/")
        assert of_api or head.startswith(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        assert b"\r\nUser-Agent: " in head
        if answer is None:
            await asyncio.sleep(60)
        else:
            writer.write(api_answer if of_api else answer)
            await writer.drain()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as running:
        yield running.sockets[0].getsockname()[1]


def door(port: int, trusted: Path | None = None, api_host: str = "") -> tuple[PublicHostProber, list[str]]:
    lines: list[str] = []
    metrics = Metrics("test", "gateway", lines.append)
    tls = ssl.create_default_context(cafile=f"{trusted}.crt") if trusted else None
    return PublicHostProber("localhost", metrics, port, tls, api_host), lines
