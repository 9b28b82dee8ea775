"""A data plane that runs, with all that stands around it."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from blueprint import contract

BUILD = Path(os.environ.get("VOICE_DATAPLANE_BUILD", "."))
LOOPBACK = "127.0.0.1"
FRAME_SAMPLES = 320
FRAME_S = 0.02
PASSWORD = "only-for-tests"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a port that nobody uses."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(what: str, holds: Callable[[], bool], limit_s: float = 15) -> None:
    """Wait until something holds."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.02)


class Store:
    """A Redis server of its own, spoken to in its inline protocol."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                *("redis-server", "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--dir", str(folder)),
                *("--requirepass", PASSWORD),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_for("redis-server", self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.do("PING").startswith(b"+PONG")
        return False

    def do(self, *words: object) -> bytes:
        """Send one command and return the start of its answer."""
        with socket.create_connection((LOOPBACK, self.port), 2) as connection:
            for command in (("AUTH", PASSWORD), words):
                parts = [str(word).encode() for word in command]
                connection.sendall(b"*%d\r\n" % len(parts))
                connection.sendall(b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
                answer = connection.recv(4096)
            return answer

    def open_session(self, ssrc: int, *, srtp_key: str | None = None, seconds: int = 3600) -> None:
        """Write what the gateway writes when it opens a session."""
        fields: list[object] = ["state", "open", "kind", "external" if srtp_key else "gateway"]
        fields += ["srtp_key", srtp_key] if srtp_key else []
        self.do("HSET", f"session:{ssrc}", *fields, "expires_at", int(time.time()) + seconds)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(5)


@dataclass(frozen=True)
class Chunk:
    """One AudioChunk as it came."""

    session: int
    sequence: int
    kind: int
    flags: int
    count: int
    payload: bytes


class AsrHost:
    """Takes chunks and says that it lives."""

    def __init__(
        self, store: Store, port: int, *, name: str = "asr-1", kind: str = "silicon", slots: int = 10_000
    ) -> None:
        self._store, self._name, self._kind, self._slots = store, name, kind, slots
        self.chunks: list[Chunk] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind((LOOPBACK, port))
        self._socket.settimeout(0.2)
        self._stopping = False
        self.draining = False
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._receive, self._beat)]
        for thread in self._threads:
            thread.start()

    def _receive(self) -> None:
        header = contract.CHUNK_HEADER
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                datagram = self._socket.recv(65536)
                assert len(datagram) == header.size + contract.CHUNK_PAYLOAD_BYTES
                session, sequence, kind, flags, count = header.unpack(datagram[: header.size])
                self.chunks.append(Chunk(session, sequence, kind, flags, count, datagram[header.size :]))

    def _beat(self) -> None:
        beats = 0
        while not self._stopping:
            beats += 1
            with contextlib.suppress(OSError):
                self._store.do("SADD", "host:asr", self._name)  # readers remove ids without a record
                self._store.do(
                    *("HSET", f"host:asr:{self._name}", "kind", self._kind, "address", LOOPBACK),
                    *("free_slots", self._slots, "draining", int(self.draining), "heartbeat", beats),
                )
            time.sleep(0.3)

    def of(self, ssrc: int) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.session == ssrc]

    def stop(self) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join()
        self._socket.close()


@dataclass
class DataPlane:
    """The program, in a process of its own."""

    folder: Path
    store: Store
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.control = self.folder / "control.sock"
        defaults = {
            "VOICE_DEPLOYMENT": "test",
            "VOICE_FLEET": "vad",
            "VOICE_HOST": "i-0",
            "VOICE_HOST_ADDRESS": LOOPBACK,
            "VOICE_REGION": "us-east-1",
            "VOICE_VALKEY_HOST": LOOPBACK,
            "VOICE_VALKEY_PORT": str(self.store.port),
            "VOICE_VALKEY_USER": "default",
            "VOICE_VALKEY_TLS": "off",
            "VOICE_DATA_PATH": "socket",
            "VOICE_INTERFACE": "lo",
            "VOICE_RX_QUEUES": "1",
            "VOICE_RX_RING_SIZE": "1024",
            "VOICE_RTP_PORT": str(free_port(socket.SOCK_DGRAM)),
            "VOICE_CHUNK_PORT": str(free_port(socket.SOCK_DGRAM)),
            "VOICE_HEALTH_PORT": str(free_port()),
            "VOICE_DRAIN_TIMEOUT_S": "20",
            "VOICE_CONTROL_SOCKET": str(self.control),
            "VOICE_VAD_MODULE": str(BUILD / "vad" / "vad.so"),
            "VOICE_MAX_SESSIONS": "2048",
        }
        password = self.folder / "password"
        password.write_text(PASSWORD)
        defaults["VOICE_VALKEY_PASSWORD_FILE"] = str(password)
        self.environment = defaults | self.environment

    def port(self, name: str) -> int:
        return int(self.environment[name])

    def start(self) -> Self:
        self.process = subprocess.Popen(
            [*self.prefix, str(BUILD / "vad-dataplane")], env=self.environment, stderr=subprocess.PIPE
        )
        wait_for("the data plane is ready", self._is_ready)
        return self

    def _is_ready(self) -> bool:
        assert self.process
        if self.process.poll() is not None and self.process.stderr:
            raise AssertionError(f"exit code {self.process.returncode}: {self.process.stderr.read().decode()}")
        with contextlib.suppress(OSError):
            state: str = self.ask("status")["state"]
            return state == "ready"
        return False

    def ask(self, command: str, **arguments: object) -> Any:
        """Send one command to the control socket and return its result."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.control))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += connection.recv(65536)
        found = json.loads(answer)
        assert found["ok"], found
        return found["result"]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(30)
        if self.process.stderr:
            self.process.stderr.close()
        return code


class Caller:
    """Sends one session's audio as RTP."""

    def __init__(self, ssrc: int, to: tuple[str, int], sender: socket.socket | None = None) -> None:
        self.ssrc, self._to = ssrc, to
        self._socket = sender or socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sequence = 1

    def packet(self, frame: bytes) -> bytes:
        """Return the next packet with 20 ms of little-endian samples."""
        samples = struct.unpack(f"<{FRAME_SAMPLES}h", frame)
        header = struct.pack(">BBHII", 0x80, 96, self.sequence & 0xFFFF, self.sequence * FRAME_SAMPLES, self.ssrc)
        self.sequence += 1
        return header + struct.pack(f">{FRAME_SAMPLES}h", *samples)

    def send(self, packet: bytes) -> None:
        self._socket.sendto(packet, self._to)

    def say(self, audio: bytes, *, pace_s: float = 0.002) -> None:
        """Send audio, faster than real time; a pause between packets keeps socket buffers from overflowing."""
        for frame in frames(audio):
            self.send(self.packet(frame))
            time.sleep(pace_s)


def frames(audio: bytes) -> Iterator[bytes]:
    """Cut audio into frames of 20 ms, without what is left over."""
    size = 2 * FRAME_SAMPLES
    for at in range(0, len(audio) - size + 1, size):
        yield audio[at : at + size]
