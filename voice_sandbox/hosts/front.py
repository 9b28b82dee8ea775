"""A single server for all AWS names, which terminates TLS and forwards the data to the requested server."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from voice_sandbox.hosts.certificates import CertificateAuthority

HTTPS_PORT = 443
_CHUNK_BYTES = 65536


class TlsServer:
    """A TLS server in its own thread.

    Args:
        backend: Returns the loopback port of the server for a name. An ``OSError`` closes the connection.
    """

    def __init__(
        self,
        address: str,
        authority: CertificateAuthority,
        folder: Path,
        backend: Callable[[str], int],
        port: int = HTTPS_PORT,
    ) -> None:
        self._authority = authority
        self._folder = folder
        self._backend = backend
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._names: dict[ssl.SSLContext, str] = {}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.sni_callback = self._select_certificate
        opened: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(address, port, opened)), daemon=True)
        self._thread.start()
        self.port = opened.result()

    async def _serve(self, address: str, port: int, opened: Future[int]) -> None:
        """Serve until ``close`` is called, which also closes open connections."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._serve_connection, address, port, ssl=self._context)
        except OSError as error:
            opened.set_exception(error)
            return
        opened.set_result(server.sockets[0].getsockname()[1])
        await self._closing.wait()
        server.close()

    def _select_certificate(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Select the certificate for the requested server name."""
        if name is None:
            return  # no server name: without a certificate, the handshake fails
        if name not in self._contexts:
            self._contexts[name] = self._authority.create_server_context(name, self._folder)
            self._names[self._contexts[name]] = name
        connection.context = self._contexts[name]

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: Any = writer.get_extra_info("ssl_object")
        try:
            port = self._backend(self._names[connection.context])
            backend_reader, backend_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy_stream(reader, backend_writer), _copy_stream(backend_reader, writer))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy data until one side closes, then close the other side, since TLS has no half-closed connections."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
