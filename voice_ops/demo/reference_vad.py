"""A VAD stage in Python with the data plane's interfaces: RTP in, ``AudioChunk`` datagrams out.

``make demo`` runs it if the data plane (``make test-native``) has not been built. It handles tens of sessions, not
thousands, without the data plane's latency guarantees. ``python -m voice_ops.demo.reference_vad`` reads the data
plane's environment.
"""

import asyncio
import base64
import contextlib
import logging
import signal
import socket
import struct
import time
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from pylibsrtp import Error as SrtpError
from pylibsrtp import Policy
from pylibsrtp import Session as SrtpSession
from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkFlag
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S, SentAudioField
from voice_ops.demo.utterances import NO_FLAGS, UtteranceSplitter
from voice_runtime import environment, state
from voice_runtime.chunk import AudioChunk
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.media import DEFAULT_MEDIA_FORMAT
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.store import StoreSettings, connect

MAX_REORDER_FRAMES = 4
RESEND_BUFFER_CHUNKS = 60
MAX_SESSIONS = 64
RECEIVE_BUFFER_BYTES = 4 << 20
SILENCE_TIMEOUT_S = 1.0
"""Time without packets after which a session's utterance ends."""
SLOT_TIMEOUT_S = 6.0
"""Time for which speech may have to be sent again. After this time, the slot of a closed session is released."""
_RTP_HEADER = struct.Struct(">BBHII")
_SEQUENCE_NUMBER_MODULUS = 1 << 16
_TIMESTAMP_MODULUS = 1 << 32
_RTCP_TYPES = range(192, 224)
_SRTP_PROFILES = {
    "AES_CM_128_HMAC_SHA1_80": Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
    "AEAD_AES_128_GCM": Policy.SRTP_PROFILE_AEAD_AES_128_GCM,
}
_FLAGS_BY_RTCP_TYPE = {b"\xcb": ChunkFlag.LAST, b"\xcc": ChunkFlag.COMMIT}
"""Chunk flag by the type of the second RTCP packet in a datagram: BYE, or APP with the name `cmit`."""

log = logging.getLogger("reference-vad")


class Settings(BaseSettings):
    """Environment variables of the data plane that the reference stage supports."""

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True)

    host: str
    host_address: str
    rtp_port: int = Field(ge=1, le=65535)
    chunk_port: int = Field(ge=1, le=65535)
    health_port: int = Field(ge=1, le=65535)


class SessionStream:
    """An admitted session with its packets, its utterances and its ASR host."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._srtp = _create_srtp_session(session)
        self._utterances = UtteranceSplitter(session.ssrc, session.last_sequence + 1, session.chunk_count)
        self.chunks = session.chunk_count
        self._waiting_packets: dict[int, NDArray[np.int16]] = {}
        self._expected_sequence: int | None = None
        self.last_packet_at = time.monotonic()
        self.host: Host | None = None
        self.sent_datagrams: deque[bytes] = deque(maxlen=RESEND_BUFFER_CHUNKS)
        self.last_sequence = session.last_sequence

    def process_rtp_packet(self, packet: bytes) -> list[AudioChunk]:
        """Process an RTP packet, and return the chunks that the packet completes."""
        if self._srtp:
            try:
                packet = self._srtp.unprotect(packet)
            except SrtpError:
                return []
        self.last_packet_at = time.monotonic()
        _, marked_type, sequence, timestamp, _ = _RTP_HEADER.unpack_from(packet)
        if marked_type & 0x7F != self.session.media.payload_type:
            return []
        samples = np.frombuffer(packet[_RTP_HEADER.size :], ">i2").astype(np.int16)
        if len(samples) != CHUNK_FRAME_SAMPLES:
            return []
        if self._expected_sequence is None:
            self._expected_sequence = sequence
            if self.session.begins_at is not None:
                self._utterances.resume_at(
                    (timestamp - self.session.begins_at) % _TIMESTAMP_MODULUS // CHUNK_FRAME_SAMPLES
                )
        distance = (sequence - self._expected_sequence) % _SEQUENCE_NUMBER_MODULUS
        if distance >= _SEQUENCE_NUMBER_MODULUS // 2:
            return []  # late
        self._waiting_packets[sequence] = samples
        return self._process_ordered_packets()

    def process_rtcp_packet(self, packet: bytes) -> list[AudioChunk]:
        """Process an RTCP packet, and return the chunks of the utterance that the packet ends."""
        if self._srtp:
            try:
                packet = self._srtp.unprotect_rtcp(packet)
            except SrtpError:
                return []
        self.last_packet_at = time.monotonic()
        mark = next((mark for kind, mark in _FLAGS_BY_RTCP_TYPE.items() if packet[9:10] == kind), NO_FLAGS)
        return self.close(mark) if mark else []

    def close(self, mark: ChunkFlag = NO_FLAGS) -> list[AudioChunk]:
        """End the utterance after a pause without packets, or at the request of the sender."""
        chunks = [chunk for sequence in list(self._waiting_packets) for chunk in self._process_waiting_packet(sequence)]
        self._expected_sequence = None
        return chunks + self._utterances.close(mark)

    def _process_ordered_packets(self) -> list[AudioChunk]:
        chunks: list[AudioChunk] = []
        while self._expected_sequence is not None and self._waiting_packets:
            if self._expected_sequence in self._waiting_packets:
                chunks += self._process_waiting_packet(self._expected_sequence)
            elif len(self._waiting_packets) >= MAX_REORDER_FRAMES:
                silence = np.zeros(CHUNK_FRAME_SAMPLES, np.int16)
                chunks += self._utterances.process_frame(silence, is_concealed=True)
            else:
                break
            self._expected_sequence = (self._expected_sequence + 1) % _SEQUENCE_NUMBER_MODULUS
        return chunks

    def _process_waiting_packet(self, sequence: int) -> list[AudioChunk]:
        return self._utterances.process_frame(self._waiting_packets.pop(sequence), is_concealed=False)


def _create_srtp_session(session: Session) -> SrtpSession | None:
    if session.kind is SessionKind.GATEWAY or session.srtp_key is None or session.srtp_suite is None:
        return None
    profile = _SRTP_PROFILES[session.srtp_suite]
    key = base64.b64decode(session.srtp_key)
    return SrtpSession(Policy(key, Policy.SSRC_SPECIFIC, session.ssrc, srtp_profile=profile))


class ReferenceVad(asyncio.DatagramProtocol):
    """The VAD stage, which admits sessions and sends their speech."""

    def __init__(self, settings: Settings, store: Redis) -> None:
        self._settings = settings
        self._store = store
        self._sessions = SessionStore(store)
        self._registry = HostRegistry(store, Tier.ASR)
        self._streams: dict[int, SessionStream | None] = {}
        self._early_packets: dict[int, list[bytes]] = {}
        self._asr_hosts: list[Host] = []
        self._send_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._tasks: set[asyncio.Task[None]] = set()
        self.draining = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Process a packet of any session."""
        del addr
        if len(data) < _RTP_HEADER.size or data[0] >> 6 != 2:  # noqa: PLR2004  RTP's version
            return
        is_report = data[1] in _RTCP_TYPES
        ssrc = int.from_bytes(data[4:8] if is_report else data[8:12])
        if ssrc in self._streams:
            stream = self._streams[ssrc]
            if stream is not None:
                self._send_chunks(
                    stream, stream.process_rtcp_packet(data) if is_report else stream.process_rtp_packet(data)
                )
        elif is_report:
            return  # not a reason to look up an unknown session
        elif ssrc in self._early_packets:
            self._early_packets[ssrc].append(data)
        else:
            self._early_packets[ssrc] = [data]
            task = asyncio.create_task(self._admit_session(ssrc))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def run_heartbeats(self) -> None:
        """Every second, send a heartbeat, read the available ASR hosts, and forget the sessions that have ended."""
        registry = HostRegistry(self._store, Tier.VAD)
        while True:
            live = [stream for stream in self._streams.values() if stream]
            heartbeat = Host(
                self._settings.host, HostKind.VAD, self._settings.host_address, MAX_SESSIONS - len(live),
                draining=self.draining,
            )  # fmt: skip
            with contextlib.suppress(RedisError, OSError):
                await registry.send_heartbeat(heartbeat)
                self._asr_hosts = await self._registry.read_live_hosts()
                await self._store_progress(live)
                await self._remove_closed_streams(live)
            for stream in live:
                if stream.sent_datagrams:
                    self._pin_stream(stream, starts_utterance=False)
                if time.monotonic() - stream.last_packet_at > SILENCE_TIMEOUT_S:
                    self._send_chunks(stream, stream.close())
                if stream.session.expires_at < time.time():
                    self._streams.pop(stream.session.ssrc, None)
            await asyncio.sleep(HOST_HEARTBEAT_INTERVAL_S)

    async def _admit_session(self, ssrc: int) -> None:
        try:
            session = await self._sessions.read(ssrc)
            if session and session.kind is SessionKind.EXTERNAL:
                session = replace(session, srtp_key=await self._sessions.read_srtp_key(ssrc))
        except (RedisError, OSError):
            session = None
        is_admitted = session is not None and session.state is SessionState.OPEN and session.expires_at > time.time()
        if (
            session
            and is_admitted
            and replace(session.media, payload_type=DEFAULT_MEDIA_FORMAT.payload_type) != DEFAULT_MEDIA_FORMAT
        ):
            log.warning("session refused: only the data plane supports %s", session.media)
            is_admitted = False
        self._streams[ssrc] = SessionStream(session) if session and is_admitted else None
        if not is_admitted:
            asyncio.get_running_loop().call_later(10, self._streams.pop, ssrc, None)
        for packet in self._early_packets.pop(ssrc):
            self.datagram_received(packet, None)

    async def _store_progress(self, live: list[SessionStream]) -> None:
        for stream in live:
            if stream.last_sequence > stream.session.last_sequence:
                key = state.build_sent_audio_key(stream.session.ssrc)
                fields: dict[Any, str] = {
                    SentAudioField.LAST_SEQUENCE: str(stream.last_sequence), SentAudioField.CHUNKS: str(stream.chunks)
                }  # fmt: skip
                await self._store.hset(key, mapping=fields)
                await self._store.expireat(key, stream.session.expires_at + state.SESSION_RETENTION_S)

    async def _remove_closed_streams(self, live: list[SessionStream]) -> None:
        for stream in live:
            if time.monotonic() - stream.last_packet_at < SLOT_TIMEOUT_S:
                continue
            session = await self._sessions.read(stream.session.ssrc)
            if session is None or session.state is not SessionState.OPEN:
                del self._streams[stream.session.ssrc]

    def _send_chunks(self, stream: SessionStream, chunks: list[AudioChunk]) -> None:
        if chunks:
            self._pin_stream(stream, starts_utterance=bool(chunks[0].flags & ChunkFlag.START_OF_SPEECH))
        for chunk in chunks:
            stream.last_sequence = chunk.sequence
            stream.chunks = chunk.number + 1
            stream.sent_datagrams.append(chunk.to_datagram())
            self._send_datagram(stream.host, stream.sent_datagrams[-1])

    def _pin_stream(self, stream: SessionStream, *, starts_utterance: bool) -> None:
        """Move a session to another host if its host is lost, or is draining at the start of an utterance."""
        previous = stream.host
        current = next((host for host in self._asr_hosts if previous and host.id == previous.id), None)
        if current and not (current.draining and starts_utterance):
            stream.host = current
            return
        next_host = max(
            (host for host in self._asr_hosts if host.accepts_sessions), key=_build_host_sort_key, default=None
        )
        if next_host is None:
            return
        stream.host = next_host
        # Resend the speech, unless the previous host drained before it left, and therefore completed its work.
        if previous is None or (current is None and not previous.draining):
            for datagram in stream.sent_datagrams:
                self._send_datagram(next_host, datagram)

    def _send_datagram(self, host: Host | None, datagram: bytes) -> None:
        if host:
            with contextlib.suppress(OSError):
                self._send_socket.sendto(datagram, (host.address, self._settings.chunk_port))


def _build_host_sort_key(host: Host) -> tuple[bool, int]:
    """Return a sort key that prefers Neuron hosts to GPUs, and then the host with the most free slots."""
    return host.kind is HostKind.NEURON, host.free_slots


async def run(settings: Settings, store: Redis) -> None:
    """Run the VAD stage until the process is stopped."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    vad = ReferenceVad(settings, store)
    address = (settings.host_address, settings.rtp_port)
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    receiver.setblocking(False)
    receiver.bind(address)
    transport, _ = await loop.create_datagram_endpoint(lambda: vad, sock=receiver)
    health = await asyncio.start_server(lambda _, writer: writer.close(), settings.host_address, settings.health_port)
    heartbeat_task = asyncio.create_task(vad.run_heartbeats())
    log.info("taking RTP on %s:%d", *address)
    await stop.wait()
    heartbeat_task.cancel()
    health.close()
    transport.close()
    await store.aclose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(environment.read_settings(Settings), connect(environment.read_settings(StoreSettings))))
