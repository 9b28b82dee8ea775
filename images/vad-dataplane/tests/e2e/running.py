"""A running data plane and its environment."""

import asyncio
import contextlib
import json
import os
import select
import shutil
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

from network import QUEUES, Network
from redis.asyncio import Redis
from redis.exceptions import RedisError
from srtp import Protector

from voice_blueprint.contract.chunk import CHUNK_HEADER, CHUNK_PAYLOAD_BYTES
from voice_blueprint.contract.network import Tier
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_sandbox.loopback import find_free_port

BUILD = Path(os.environ.get("VOICE_DATAPLANE_BUILD", "."))
CHANNELS = BUILD.parent / "tests" / "libchannels.so"
LOOPBACK = "127.0.0.1"
SAMPLES_PER_FRAME = 320
PASSWORD = "only-for-tests"
OCCUPIED_QUEUE = "Failed to create xsk socket"
"""Error of DPDK while the kernel still has the AF_XDP socket of the previous program, which has just ended."""
RESTART_DELAY_S = 0.5
"""On a host, systemd restarts the program (userdata/voice_userdata/steps/every_boot.sh)."""
END_OF_SPEECH, CONCEALED, START_OF_SPEECH, COMMIT, LAST = 1, 2, 4, 16, 32
_SO_RCVBUFFORCE = 33  # Linux, as root: allows more than net.core.rmem_max


def wait_for(what: str, holds: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.02)


class Store:
    """A private Redis server, accessed through its wire protocol."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        self.port = self.free_port()
        with network.near():
            self.process = subprocess.Popen(
                [
                    *("redis-server", "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--dir", str(folder)),
                    *("--requirepass", PASSWORD),
                ],
                stdout=subprocess.DEVNULL,
            )
        wait_for("redis-server", self._answers)

    def free_port(self, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
        """Return an unused port in the program's network."""
        with self.network.near():
            return find_free_port(kind)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.do("PING").startswith(b"+PONG")
        return False

    def do(self, *words: object) -> bytes:
        """Send one command and return the start of the response."""
        with self.network.near():
            connection = socket.create_connection((LOOPBACK, self.port), 10)
        with connection:
            for command in (("AUTH", PASSWORD), words):
                parts = [str(word).encode() for word in command]
                connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
                answer = connection.recv(4096)
            return answer

    def field(self, ssrc: int, name: str) -> int:
        """Return a numeric field of a session's exported state; -1 if it is missing."""
        answer = self.do("HGET", f"shipped:{ssrc}", name)
        return int(answer.split(b"\r\n")[1]) if not answer.startswith(b"$-1") else -1

    def open_session(self, ssrc: int, *, srtp_key: str | None = None, seconds: int = 3600, media: str = "") -> None:
        """Write the records that the gateway writes when it opens a session and the caller's socket."""
        fields: list[object] = ["state", "open", "kind", "external" if srtp_key else "gateway"]
        fields += [] if srtp_key else ["gateway", self.network.far_address]
        fields += ["media", media] if media else []
        if srtp_key:
            self.do("SET", f"srtp:{ssrc}", srtp_key)
        self.do("HSET", f"session:{ssrc}", *fields, "expires_at", int(time.time()) + seconds)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@dataclass(frozen=True)
class Chunk:
    """One AudioChunk as received."""

    session: int
    sequence: int
    kind: int
    flags: int
    count: int
    payload: bytes
    datagram: bytes


class AsrHost:
    """Receives chunks and sends heartbeats with the engine's own registry."""

    def __init__(
        self,
        store: Store,
        port: int,
        *,
        name: str = "asr-1",
        kind: str = "neuron",
        address: str = LOOPBACK,
        zone: str = "",
    ) -> None:
        self._store, self._name, self._kind, self._address, self._zone = store, name, kind, address, zone
        self._received: list[Chunk] = []
        self._receiving = threading.Lock()
        with store.network.near():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # A test counts chunks: none may be lost because the machine is busy.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        with contextlib.suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind((address, port))
        self._socket.setblocking(False)
        self._stopping = threading.Event()
        self._silent = threading.Event()
        self.draining = False
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._receive, self._beat)]
        for thread in self._threads:
            thread.start()

    @property
    def chunks(self) -> list[Chunk]:
        """Chunks received so far. Those in the socket's buffer count: on a busy machine the thread is late."""
        if not self._stopping.is_set():
            self._empty_socket()
        return self._received

    def _receive(self) -> None:
        while not self._stopping.is_set():
            if select.select([self._socket], [], [], 0.2)[0]:
                self._empty_socket()

    def _empty_socket(self) -> None:
        header = CHUNK_HEADER
        with self._receiving, contextlib.suppress(BlockingIOError):
            while True:
                datagram = self._socket.recv(65536)
                assert len(datagram) == header.size + CHUNK_PAYLOAD_BYTES
                session, _, sequence, kind, flags, count = header.unpack(datagram[: header.size])
                self._received.append(Chunk(session, sequence, kind, flags, count, datagram[header.size :], datagram))

    def _beat(self) -> None:
        while not self._stopping.wait(0.3):
            if self._silent.is_set():
                continue
            with contextlib.suppress(OSError, RedisError), self._store.network.near():
                asyncio.run(self._register())

    async def _register(self) -> None:
        kind, address = HostKind(self._kind), self._address
        host = Host(self._name, kind, address, free_slots=10_000, draining=self.draining, zone=self._zone)
        async with Redis(host=LOOPBACK, port=self._store.port, password=PASSWORD) as store:
            await HostRegistry(store, Tier.ASR).send_heartbeat(host)

    def of(self, ssrc: int) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.session == ssrc]

    def has_ended(self, ssrc: int) -> bool:
        """Whether the end of an utterance has been received."""
        return any(chunk.flags & END_OF_SPEECH for chunk in self.of(ssrc))

    def die(self) -> None:
        """Stop like a killed process: the port closes, and the record stays until it expires."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def fall_silent(self) -> None:
        """Continue to receive chunks without heartbeats: to others, an unreachable host."""
        self._silent.set()


@dataclass
class DataPlane:
    """The program in its own process."""

    folder: Path
    store: Store
    path: str = "socket"
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    command: list[str] = field(default_factory=lambda: [str(BUILD / "vad-dataplane")])

    def __post_init__(self) -> None:
        self.network = self.store.network
        self.control = self.folder / "control.sock"
        password = self.folder / "password"
        password.write_text(PASSWORD)
        host = self.folder / "store-host"
        host.write_text(LOOPBACK)
        module = self.folder / "modules" / "vad.so"
        module.parent.mkdir(exist_ok=True)
        shutil.copy(BUILD / "vad" / "vad.so", module)
        defaults = {
            "VOICE_DEPLOYMENT": "test",
            "VOICE_FLEET": "vad",
            "VOICE_HOST": "i-0",
            "VOICE_HOST_ADDRESS": self.network.near_address,
            "VOICE_REGION": "us-east-1",
            "VOICE_VALKEY_HOST_FILE": str(host),
            "VOICE_VALKEY_PORT": str(self.store.port),
            "VOICE_VALKEY_USER": "default",
            "VOICE_VALKEY_TLS": "off",
            "VOICE_VALKEY_PASSWORD_FILE": str(password),
            "VOICE_DATA_PATH": self.path,
            "VOICE_INTERFACE": self.network.interface,
            "VOICE_RX_QUEUES": str(QUEUES),
            "VOICE_RX_RING_SIZE": "1024",
            "VOICE_RTP_PORT": str(self.store.free_port(socket.SOCK_DGRAM)),
            "VOICE_CHUNK_PORT": str(self.store.free_port(socket.SOCK_DGRAM)),
            "VOICE_HEALTH_PORT": str(self.store.free_port()),
            "VOICE_DRAIN_TIMEOUT_S": "60",
            "VOICE_CONTROL_SOCKET": str(self.control),
            "VOICE_STATE_FILE": str(self.folder / "sessions"),
            "VOICE_VAD_MODULE": str(module),
            "VOICE_MAX_SESSIONS": "2048",
            "VOICE_RESEND_WINDOW_S": "30",  # and may be slow
            "VOICE_SESSION_PACKETS_PER_S": "1000000",  # tests send faster than real time
        }
        if self.path == "af_xdp" and CHANNELS.exists():
            defaults["LD_PRELOAD"] = str(CHANNELS)
        self.environment = defaults | self.environment

    def port(self, name: str) -> int:
        return int(self.environment[name])

    def start(self) -> Self:
        self._launch()
        wait_for("the data plane is ready", self._is_ready)
        return self

    def _launch(self) -> None:
        environment = self.environment | {"RUNTIME_DIRECTORY": str(self.folder)}  # DPDK's lock: others run in parallel
        with self.network.near():
            self.process = subprocess.Popen(self.command, env=environment, stderr=subprocess.PIPE)

    def _is_ready(self) -> bool:
        assert self.process
        if self.process.poll() is not None and self.process.stderr:
            error = self.process.stderr.read().decode()
            if OCCUPIED_QUEUE in error:
                time.sleep(RESTART_DELAY_S)
                self._launch()
                return False
            raise AssertionError(f"exit code {self.process.returncode}: {error}")
        with contextlib.suppress(OSError):
            state: str = self.ask("status")["state"]
            return state == "ready"
        return False

    def ask(self, command: str, **arguments: object) -> Any:
        """Send one command to the control socket and return its result."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.control))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += connection.recv(65536)
        found = json.loads(answer)
        assert found["ok"], found
        return found["result"]

    def drops(self) -> dict[str, int]:
        found: dict[str, int] = self.ask("counters")["drops"]
        return found

    def settled_drops(self) -> dict[str, int]:
        """Return the drops when none has been added for half a second.

        A packet is visible in its session before its drop is counted, and on a busy machine another one may follow.
        """
        drops: dict[str, int] = {}
        while drops != (latest := self.drops()):
            drops = latest
            time.sleep(0.5)
        return drops

    def session(self, ssrc: int) -> dict[str, Any] | None:
        """Return the program's state of a session; None if it has not been admitted."""
        return next((each for each in self.ask("sessions", limit=1000) if each["ssrc"] == ssrc), None)

    def counted(self, ssrc: int, name: str) -> int:
        """Return one of the program's counters for an admitted session."""
        found = self.session(ssrc)
        assert found
        return int(found[name])

    def knows_host(self, hosts: int = 1) -> None:
        wait_for("the hosts are known", lambda: self.ask("counters")["asr_hosts"] == hosts)

    def connect(self) -> socket.socket:
        """Connect to the health port, as a load balancer does."""
        with self.network.far():
            return socket.create_connection((self.network.near_address, self.port("VOICE_HEALTH_PORT")), 10)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """Stop the program without waiting for its sessions."""
        assert self.process
        for each in (signal.SIGTERM, signal.SIGINT):
            if self.process.poll() is None:
                self.process.send_signal(each)
        return self._reap()

    def _reap(self) -> int:
        assert self.process
        code = self.process.wait(60)
        if self.process.stderr:
            self.process.stderr.close()
        self.process = None
        return code


class Caller:
    """Sends one session's audio as RTP, or as SRTP with a master key."""

    def __init__(self, plane: DataPlane, ssrc: int, *, key: bytes = b"", sender: socket.socket | None = None) -> None:
        self.ssrc, self._plane = ssrc, plane
        self._to = (plane.network.near_address, plane.port("VOICE_RTP_PORT"))
        self._socket = sender or self.open_socket(plane)
        self._protector = Protector(key) if key else None
        self.sequence = 1
        self._paused = 0
        self.first = 1
        """Sequence number of the first accepted packet."""
        self.sent = 0

    @staticmethod
    def open_socket(plane: DataPlane, address: str = "") -> socket.socket:
        """Open a socket in the callers' network; `address` defaults to theirs."""
        with plane.network.far():
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((address or plane.network.far_address, 0))
        return opened

    def move(self, address: str = "") -> None:
        """Continue from another port, as after a NAT rebinding, or from another address."""
        self._socket = self.open_socket(self._plane, address)

    def leave(self) -> int:
        """Close the socket, and return its port, for another program that sends in the session's name."""
        port: int = self._socket.getsockname()[1]
        self._socket.close()
        return port

    def reach(self, plane: DataPlane) -> None:
        """Send to another host from now on, as when a load balancer chooses a new target."""
        self._plane = plane
        self._to = (plane.network.near_address, plane.port("VOICE_RTP_PORT"))

    def pause(self, frames: int) -> None:
        """Advance the time without sending packets."""
        self._paused += frames

    @property
    def timestamp(self) -> int:
        return (self.sequence + self._paused) * SAMPLES_PER_FRAME & 0xFFFFFFFF

    def packet(self, frame: bytes) -> bytes:
        """Return the next packet with 20 ms of little-endian samples."""
        samples = struct.unpack(f"<{SAMPLES_PER_FRAME}h", frame)
        header = struct.pack(">BBHII", 0x80, 96, self.sequence & 0xFFFF, self.timestamp, self.ssrc)
        self.sequence += 1
        packet = header + struct.pack(f">{SAMPLES_PER_FRAME}h", *samples)
        return self._protector.protect(packet) if self._protector else packet

    def report(self) -> bytes:
        """Return an RTCP packet with an empty receiver report."""
        report = struct.pack(">BBHI", 0x80, 201, 1, self.ssrc)
        return self._protector.protect_report(report) if self._protector else report

    def commit(self) -> bytes:
        """Return an RTCP packet that commits the utterance: an empty receiver report and APP."""
        report = struct.pack(">BBHIBBHI4s", 0x80, 201, 1, self.ssrc, 0x80, 204, 2, self.ssrc, b"cmit")
        return self._protector.protect_report(report) if self._protector else report

    def goodbye(self) -> bytes:
        """Return an RTCP packet that ends the session: an empty receiver report and BYE."""
        report = struct.pack(">BBHIBBHI", 0x80, 201, 1, self.ssrc, 0x81, 203, 1, self.ssrc)
        return self._protector.protect_report(report) if self._protector else report

    def send(self, packet: bytes, sender: socket.socket | None = None) -> None:
        """Send a packet from the caller's socket, or from another one."""
        (sender or self._socket).sendto(packet, self._to)
        self.sent += 1

    def say(self, audio: bytes, *, pace_s: float = 0.002, max_backlog: int | None = None) -> None:
        """Send audio faster than real time; a pause between packets keeps buffers from overflowing.

        Args:
            max_backlog: Maximum number of packets that the program has not processed yet; unlimited by default.
        """
        for frame in frames(audio):
            self.send(self.packet(frame))
            time.sleep(pace_s)
            if max_backlog is not None:
                self.wait_for_backlog(max_backlog)

    def wait_for_backlog(self, packets: int) -> None:
        """Wait until the program has processed all packets except the newest ones.

        On a busy machine the program may not run for a second. Packets of that time exceed a limit per second, which
        they did not when they were sent.
        """

        def is_reached() -> bool:
            return int((self._plane.session(self.ssrc) or {}).get("packets", 0)) >= self.sent - packets

        if self.sent % (packets // 2) == 0:  # A query for each packet takes most of the test's time.
            wait_for(f"at most {packets} packets are not processed", is_reached)

    def enter(self) -> None:
        """Send a packet twice a second until the session is admitted and its sender is known."""

        def taken() -> int:
            return int((self._plane.session(self.ssrc) or {}).get("packets", 0))

        before = taken()
        for _ in range(60):
            self.send(self.packet(bytes(2 * SAMPLES_PER_FRAME)))
            with contextlib.suppress(AssertionError):
                wait_for("a packet is taken", lambda: taken() > before, 0.5)
                break
        found = self._plane.session(self.ssrc)
        assert found, "the session is not let in"
        self.sent = found["packets"]
        self.first = self.sequence - self.sent

    def has_stopped(self) -> None:
        """Wait until the program has noticed that packets stopped, and has sent all of the audio."""
        wait_for("it is noticed", lambda: not (self._plane.session(self.ssrc) or {"speaking": True})["speaking"])
        self.is_taken()

    def is_taken(self) -> None:
        """Wait until every packet has been processed and every resulting chunk has been sent."""

        def all_accepted() -> bool:
            found = self._plane.session(self.ssrc)
            return found is not None and found["packets"] >= self.sent

        def all_sent() -> bool:
            return all(queue["chunk_ring_percent"] == 0 for queue in self._plane.ask("counters")["queues"])

        try:
            wait_for("all packets are taken", all_accepted)
        except AssertionError as late:
            late.add_note(f"sent {self.sent}, {self._plane.session(self.ssrc)}, {self._plane.drops()}")
            raise
        wait_for("all chunks are sent", all_sent)


def frames(audio: bytes) -> Iterator[bytes]:
    """Split audio into frames of 20 ms and drop the remainder."""
    size = 2 * SAMPLES_PER_FRAME
    for at in range(0, len(audio) - size + 1, size):
        yield audio[at : at + size]
