"""Creates and starts the components of the engine, and shuts them down gracefully."""

import asyncio
import logging
import signal
import socket
import time
from typing import Any

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_runtime.file_pieces import FilePieceQueue
from voice_runtime.hosts import HostRegistry
from voice_runtime.journal import AudioJournal
from voice_runtime.sessions import SessionStore
from voice_runtime.store import StoreSettings, connect
from voice_runtime.transcripts import TranscriptStore
from voice_whisper import health
from voice_whisper.admission import Admission
from voice_whisper.counters import Counters
from voice_whisper.file_reader import FileTranscriber
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.live_session import SessionContext
from voice_whisper.maintenance import HostMaintenance
from voice_whisper.pool import WorkerPool
from voice_whisper.retries import STORE_ERRORS
from voice_whisper.settings import EngineSettings
from voice_whisper.streaming import StreamingTranscriber
from voice_whisper.transcriber import Transcriber
from voice_whisper.vllm_backend import VllmTranscriber

RECEIVE_BUFFER_BYTES = 8 << 20
"""Size of four seconds of audio from 64 sessions, at 32 kB/s each."""
DRAIN_PROPAGATION_DELAY_S = HOST_HEARTBEAT_TIMEOUT_S
"""Time for which the VAD tier may still send new sessions to a draining host, since it reads the registry
periodically."""
POLL_INTERVAL_S = 0.1
SHUTDOWN_RESERVE_S = 1.0
"""Part of the drain time that is reserved for removing the host from the registry."""

log = logging.getLogger(__name__)


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Route a datagram to its session."""
        self._admission.receive(data, addr[0])


class Engine:
    """The engine of a host, from its start to its graceful shutdown."""

    def __init__(self, settings: EngineSettings, store: StoreSettings) -> None:
        """Create the components of the engine.

        Raises:
            OSError: The store's password file cannot be read.
        """
        self._settings = settings
        self._store = connect(store)
        self._counters = Counters()
        self._transcriber = _create_transcriber(settings)
        journal, sessions = AudioJournal(self._store, settings.host), SessionStore(self._store)
        self._batch = JournalBatch(journal, self._counters)
        transcripts = TranscriptStore(self._store)
        services = SessionContext(self._transcriber, transcripts, journal, self._batch, self._counters, sessions)
        self._admission = Admission(settings.sessions, sessions, services)
        self._registry = HostRegistry(self._store, Tier.ASR)
        self._keeper = HostMaintenance(
            settings,
            self._admission,
            self._registry,
            journal,
            sessions,
            is_stuck=lambda: self._transcriber.is_stuck,
        )
        self._files = FileTranscriber(settings.host, FilePieceQueue(self._store), self._transcriber, self._counters)

    async def run(self) -> None:
        """Run until stopped, and complete started work.

        Raises:
            ExceptionGroup: The model cannot be loaded (``WorkerStartError``), or a port is in use (``OSError``).
        """
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
        async with asyncio.TaskGroup() as group:
            transcribing = group.create_task(self._transcriber.run())
            serving = group.create_task(self._serve())
            await stop.wait()
            await self._drain()
            serving.cancel()
            transcribing.cancel()
        await self._store.aclose()

    async def _serve(self) -> None:
        await self._transcriber.wait_until_ready()
        receiving, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Receiver(self._admission), sock=_open_chunk_socket(self._settings)
        )
        listener = health.open_health_port(self._settings.health_address, self._settings.health_port)
        server = health.create_server(self._find_unready_reason, self.collect_metrics)
        log.info("ready: %d sessions", self._settings.sessions)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve([listener]))
                group.create_task(self._admission.run())
                group.create_task(self._keeper.run(self._batch))
                group.create_task(self._files.run(lambda: self._has_free_capacity))
        finally:
            receiving.close()
            listener.close()

    def _find_unready_reason(self) -> str:
        if self._keeper.is_draining:
            return "draining"
        return "stuck: there is work, and none of it gets done" if self._transcriber.is_stuck else ""

    @property
    def _has_free_capacity(self) -> bool:
        """Whether live calls leave capacity."""
        return (
            not self._find_unready_reason()
            and self._admission.free_slots > 0
            and not any(self._transcriber.queue_depths)
        )

    def collect_metrics(self) -> dict[str, Any]:
        """Return the gauges by their names in the contract, and the counters."""
        encoder_queue, decoder_queue = self._transcriber.queue_depths
        return {
            "EncoderQueueDepth": encoder_queue,
            "DecoderQueueDepth": decoder_queue,
            "FreeSlots": self._admission.free_slots,
            "EngineStuck": int(self._transcriber.is_stuck),
            "RealTimeFactor": self._counters.calculate_real_time_factor(time.monotonic()),
            "counters": {**self._counters.as_dict(), "worker_restarts": self._transcriber.restarts_by_role},
        }

    async def _drain(self) -> None:
        """Complete live utterances. After the timeout, the remaining ones are left to another host."""
        started_at = time.monotonic()
        self._keeper.is_draining = True
        log.info("draining: %d sessions are live", len(self._admission.live_sessions))
        while time.monotonic() - started_at < self._settings.drain_timeout_s - SHUTDOWN_RESERVE_S:
            self._admission.is_closed = time.monotonic() - started_at >= DRAIN_PROPAGATION_DELAY_S
            if self._admission.is_closed and self._admission.is_empty:
                break
            await asyncio.sleep(POLL_INTERVAL_S)
        remaining = len(self._admission.live_sessions)
        try:
            async with asyncio.timeout(SHUTDOWN_RESERVE_S / 2):
                await self._batch.flush()
                await self._registry.remove(self._settings.host)
        except STORE_ERRORS as error:
            log.warning("the host could not be removed from the state store: %s", error)
        log.info("drained: %d sessions are left to other hosts", remaining)


def _create_transcriber(settings: EngineSettings) -> Transcriber:
    match settings.engine:
        case "whisper":
            return WorkerPool(settings)
        case "vllm":
            return VllmTranscriber(settings.vllm_url, settings.vllm_model)
        case "vllm-realtime":
            from voice_whisper.vllm_realtime import VllmRealtimeRecognizer  # noqa: PLC0415  Neuron's image has no websockets

            return StreamingTranscriber(VllmRealtimeRecognizer(settings.vllm_url, settings.vllm_model))


def _open_chunk_socket(settings: EngineSettings) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    # The kernel grants at most net.core.rmem_max, and reports twice the granted size.
    granted = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    if granted < RECEIVE_BUFFER_BYTES:
        log.warning("receive buffer of %d bytes instead of %d: raise net.core.rmem_max", granted, RECEIVE_BUFFER_BYTES)
    receiver.bind((str(settings.host_address), settings.chunk_port))
    return receiver
