"""Programs of the voice path as processes on this machine, with the settings that their launchers use."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

import httpx2

from voice_blueprint.contract.session_api import DEFAULT_END_OF_TURN_MS, HEALTH_PATH, SESSIONS_PATH
from voice_runtime.store import StoreSettings
from voice_sandbox.loopback import find_free_port

ROOT = Path(__file__).parents[2]
DATA_PLANE_BUILD = ROOT / "build/vad-dataplane/none/src"
"""Build folder of ``make test-native`` with the data plane."""

STORE_PROGRAMS = ("valkey-server", "redis-server")
LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
_POLL_INTERVAL_S = 0.1
_STORE_NAME = "store"
_HTTP_OK = 200


class ServiceError(Exception):
    """A program of the voice path did not start. The message contains its name and its last output."""


def list_source_folders(root: Path = ROOT) -> list[str]:
    """Return the source folders of a checkout's packages."""
    packages = ("runtime", "agent", "gateway", "whisper-engine", "telemetry")
    return [str(root), *(str(root / "images" / name / "src") for name in packages)]


@dataclass
class Service:
    """A program of the voice path, as a process.

    Attributes:
        is_ready: Function that returns whether the program is ready.
        log: File with the program's output.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    is_ready: Callable[[], bool]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    _output: IO[bytes] | None = None

    def start(self) -> Self:
        """Start the program without waiting until it is ready."""
        self._output = self.log.open("ab")
        # Fixed programs of this repository and of Debian.
        self.process = subprocess.Popen(  # noqa: S603
            self.command, env=self.environment, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )
        return self

    def wait_until_ready(self) -> Self:
        """Wait until the program is ready.

        Raises:
            ServiceError: The program exited, or is not ready in time.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self.is_ready():
            if self.process is None or self.process.poll() is not None:
                raise ServiceError(f"{self.name} ended: {self.read_recent_output()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name} is not ready within {READY_TIMEOUT_S} s: {self.read_recent_output()}")
            time.sleep(_POLL_INTERVAL_S)
        return self

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Stop the program, and return its exit code. After the timeout, kill the program and return ``None``."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(stop_signal)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        self._kill_process_group()
        return code

    def read_recent_output(self) -> str:
        """Return the last lines of the program's output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-5:]) or "it printed nothing"

    def _kill_process_group(self) -> None:
        """Kill the remaining processes of the program, such as the workers of a killed process."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self._output:
            self._output.close()


@dataclass
class VoicePath:
    """Store, gateways, VAD stage and ASR hosts on this machine.

    Attributes:
        folder: Folder of logs and sockets.
        model: Folder of the Whisper model.
        data_plane: Build folder of the data plane; ``None`` for the reference VAD stage.
        root: Checkout with the programs.
    """

    folder: Path
    model: Path
    data_plane: Path | None = None
    allowed_origins: str = ""
    root: Path = ROOT
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store_port = find_free_port()
        self.rtp_port = find_free_port(socket.SOCK_DGRAM)
        self.chunk_port = find_free_port(socket.SOCK_DGRAM)
        self._token_key = secrets.token_hex(32)
        self._password = secrets.token_hex(16)
        self._password_file = self.folder / "password"
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(self._password, encoding="utf-8")
        self._host_file = self.folder / "store-host"
        self._host_file.write_text(LOOPBACK, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all services at once. The store is stopped last, since the other services use it until they exit."""
        store = self.services.get(_STORE_NAME)
        others = [service for service in self.services.values() if service is not store]
        if others:
            with ThreadPoolExecutor(len(others)) as threads:
                list(threads.map(Service.stop, others))
        if store:
            store.stop()

    @property
    def store_settings(self) -> StoreSettings:
        """Settings of a connection to the store."""
        return StoreSettings(
            host=LOOPBACK, port=self.store_port, user="default", password_file=self._password_file, tls=False
        )

    def start_store(self) -> Service:
        """Start Valkey, or Redis if Debian has no Valkey.

        Raises:
            ServiceError: Neither is installed.
        """
        program = next(filter(None, map(shutil.which, STORE_PROGRAMS)), None)
        if program is None:
            raise ServiceError("neither valkey-server nor redis-server is here: apt-get install redis-server")
        configuration = self.folder / "store.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            f"bind {LOOPBACK}\nport {self.store_port}\ndir {self.folder}\nrequirepass {self._password}\n"
            'appendonly yes\nsave ""\n',
            encoding="utf-8",
        )
        return self._start_service(
            _STORE_NAME, [program, str(configuration)], {}, lambda: self._is_listening(self.store_port)
        )

    def start_gateway(self, name: str = "gateway", http_port: int = 0, **variables: str) -> "Gateway":
        http, media = http_port or find_free_port(), find_free_port()
        environment = self._build_common_settings(name, "gateway") | {
            "VOICE_HTTP_PORT": str(http),
            "VOICE_MEDIA_PORT": str(media),
            "VOICE_RTP_PORT": str(self.rtp_port),
            "VOICE_TOKEN_KEY": self._token_key,
            "VOICE_TOKEN_TTL_S": "300",
            "VOICE_AUTHORIZER": "none",
            "VOICE_MEDIA_HOST": LOOPBACK,
            "VOICE_MEDIA_TLS": "false",
            "VOICE_IDLE_TIMEOUT_S": "30",
            "VOICE_DRAIN_TIMEOUT_S": "10",
            "VOICE_BIND_ADDRESS": LOOPBACK,
            "VOICE_ALLOWED_ORIGINS": self.allowed_origins,
            "VOICE_RECONNECT_GRACE_S": "20",
            "VOICE_END_OF_TURN_MS": str(DEFAULT_END_OF_TURN_MS),
            "VOICE_SESSION_MAX_S": "3600",
            "VOICE_CALLER_SESSIONS": "1000",
            "VOICE_CALLER_CREATIONS_PER_S": "50",
            "VOICE_MAX_CONNECTIONS": "4096",
            **variables,
        }
        self._start_service(name, _build_python_command("voice_gateway"), environment, lambda: _is_healthy(http))
        return Gateway(f"http://{LOOPBACK}:{http}")

    def start_vad(self, name: str = "vad") -> Service:
        """Start the data plane on plain sockets, or the reference VAD stage if there is no data plane."""
        health = find_free_port()
        environment = self._build_common_settings(name, "vad") | {
            "VOICE_RTP_PORT": str(self.rtp_port),
            "VOICE_CHUNK_PORT": str(self.chunk_port),
            "VOICE_HEALTH_PORT": str(health),
        }
        if self.data_plane is None:
            command = _build_python_command("voice_ops.demo.reference_vad")
        else:
            command = [str(self.data_plane / "vad-dataplane")]
            environment |= {
                "VOICE_DATA_PATH": "socket",
                "VOICE_INTERFACE": "lo",
                "VOICE_RX_QUEUES": "2",
                "VOICE_RX_RING_SIZE": "1024",
                "VOICE_MAX_SESSIONS": "1024",
                "VOICE_DRAIN_TIMEOUT_S": "10",
                "VOICE_CONTROL_SOCKET": str(self.folder / f"{name}.sock"),
                "VOICE_STATE_FILE": str(self.folder / f"{name}.state"),
                "VOICE_VAD_MODULE": str(self.data_plane / "vad/vad.so"),
            }
        return self._start_service(name, command, environment, lambda: self._is_listening(health))

    def start_engine(self, name: str = "asr", address: str = LOOPBACK, **variables: str) -> Service:
        """Start an ASR host. Each ASR host needs its own address, since all of them use the same port for chunks."""
        environment = self._build_common_settings(name, "asr", address) | {
            "VOICE_CHUNK_PORT": str(self.chunk_port),
            "VOICE_HEALTH_PORT": str(find_free_port()),
            "VOICE_HOST_KIND": "gpu",
            "VOICE_ENGINE": "whisper",
            "VOICE_CACHE_DIR": str(self.folder),
            "VOICE_MODEL": str(self.model),
            "VOICE_DRAIN_TIMEOUT_S": "20",
            **variables,
        }
        health = int(environment["VOICE_HEALTH_PORT"])
        return self._start_service(
            name, _build_python_command("voice_whisper"), environment, lambda: _is_healthy(health)
        )

    def wait_until_ready(self) -> None:
        """Wait until all started services are ready.

        Raises:
            ServiceError: A service is not ready.
        """
        for service in self.services.values():
            service.wait_until_ready()

    def wait_for_capacity(self, gateway: "Gateway") -> None:
        """Wait until a gateway has discovered the hosts. The gateway reads heartbeats every second.

        Raises:
            ServiceError: The gateway still rejects sessions.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (answer := httpx2.post(gateway.url + SESSIONS_PATH, json={"transport": "websocket"})).is_error:
            if time.monotonic() > deadline:
                raise ServiceError(f"{gateway.url} refuses sessions: {answer.text}")
            time.sleep(_POLL_INTERVAL_S)

    def _start_service(
        self, name: str, command: list[str], environment: dict[str, str], is_ready: Callable[[], bool]
    ) -> Service:
        log = self.folder / f"{name}.log"
        path = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": os.pathsep.join(list_source_folders(self.root)),
        }
        self.services[name] = Service(name, command, path | environment, is_ready, log).start()
        return self.services[name]

    def _build_common_settings(self, host: str, fleet: str, address: str = LOOPBACK) -> dict[str, str]:
        return {
            "VOICE_DEPLOYMENT": "demo",
            "VOICE_FLEET": fleet,
            "VOICE_HOST": host,
            "VOICE_HOST_ADDRESS": address,
            "VOICE_REGION": "local",
            "VOICE_VALKEY_HOST_FILE": str(self._host_file),
            "VOICE_VALKEY_PORT": str(self.store_port),
            "VOICE_VALKEY_USER": "default",
            "VOICE_VALKEY_PASSWORD_FILE": str(self._password_file),
            "VOICE_VALKEY_TLS": "off",
        }

    @staticmethod
    def _is_listening(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0


@dataclass(frozen=True)
class Gateway:
    """Address of a gateway on this machine."""

    url: str


def _build_python_command(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _is_healthy(port: int) -> bool:
    try:
        # A URL of this machine.
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{HEALTH_PATH}", timeout=1) as answer:
            return bool(answer.status == _HTTP_OK)
    except (urllib.error.URLError, OSError):
        return False
