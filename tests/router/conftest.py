"""The real router with pods that start, hang and disappear, and cluster DNS."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx2
import pytest

from voice_blueprint.engines.launch.router import CONFIG_FILE, HEALTH_PATH, Backend, BackendService, Router
from voice_blueprint.images import load_base_images
from voice_sandbox.loopback import find_free_port

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".tools/haproxy/haproxy"
LOOPBACK = "127.0.0.1"
PATIENCE_S = 60.0
STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture(scope="session")
def haproxy() -> Path:
    """Return the HAProxy of the image's Debian release."""
    PROGRAM.parents[1].mkdir(exist_ok=True)
    with (PROGRAM.parents[1] / "haproxy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes unpacks it
        if not PROGRAM.exists():
            unpack(Path(__file__).with_name("install.sh"), str(PROGRAM.parent), load_base_images()["debian"].bootstrap)
    return PROGRAM


def unpack(install: Path, *arguments: str) -> None:
    """Unpack HAProxy; skip the tests on a machine that cannot download it, except in CI."""
    result = subprocess.run(  # noqa: S603
        [install, *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    if result.returncode and "CI" not in os.environ:
        pytest.skip(f"Skipped: needs the image's HAProxy, which cannot be downloaded: {result.stderr.strip()}")
    assert not result.returncode, result.stderr


def wait_until(description: str, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
    """Wait until a condition is true, and return the duration in seconds."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < within_s, f"not within {within_s} s: {description}"
        time.sleep(0.05)
    return time.monotonic() - since


@dataclass
class Pod:
    """One replica of a service with a separate address."""

    name: str
    address: str
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        command = [sys.executable, str(STAND_IN), self.address, str(self.port), self.name]
        self.process = subprocess.Popen(command)  # noqa: S603

    def wait_until_ready(self) -> None:
        def answers() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(f"http://{self.address}:{self.port}/health").is_success
            return False

        wait_until(f"{self.name} answers", answers)

    def send(self, sign: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(sign)

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@dataclass
class Cluster:
    """Pods, and DNS records of the ready ones."""

    folder: Path
    dns_port: int
    engine_port: int
    published: dict[str, list[Pod]] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        program = shutil.which("dnsmasq")
        assert program, "needs Debian's dnsmasq-base, with the program dnsmasq: `make test` installs it"
        self.hosts = self.folder / "hosts"
        self.hosts.touch()
        self.dns = subprocess.Popen(  # noqa: S603
            [
                program, "--keep-in-foreground", "--no-resolv", "--no-hosts", "--local=/test/", "--local-ttl=1",
                f"--port={self.dns_port}", f"--addn-hosts={self.hosts}", f"--listen-address={LOOPBACK}",
                "--bind-interfaces", "--user=", "--group=", "--pid-file=", "--conf-file=/dev/null",
            ]
        )  # fmt: skip

    def add(self, service: str, count: int = 1) -> list[Pod]:
        """Start pods of a service, and publish them once they answer."""
        made = []
        for _ in range(count):
            number = len(self.pods) + 2
            pod = Pod(f"{service}-{number}", f"127.0.1.{number}", self.engine_port)
            pod.start()
            self.pods.append(pod)
            made.append(pod)
        for pod in made:
            pod.wait_until_ready()
            self.published.setdefault(service, []).append(pod)
        self.publish()
        return made

    def withdraw(self, pod: Pod) -> None:
        """Remove a pod from DNS, like Kubernetes if it is not ready or is being deleted."""
        for pods in self.published.values():
            if pod in pods:
                pods.remove(pod)
        self.publish()

    def publish(self) -> None:
        lines = [f"{pod.address} {service}.test\n" for service, pods in self.published.items() for pod in pods]
        self.hosts.write_text("".join(lines), encoding="utf-8")
        self.dns.send_signal(signal.SIGHUP)

    def end(self) -> None:
        for pod in self.pods:
            pod.end()
        self.dns.kill()
        self.dns.wait()


@dataclass
class Front:
    """A router process."""

    program: Path
    launcher: Router
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.launcher.port}"

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        file = self.folder / "haproxy.cfg"
        file.write_text(self.launcher.render_files()[CONFIG_FILE], encoding="utf-8")
        command = [str(file) if word == CONFIG_FILE else word for word in self.launcher.build_command()]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen([self.program, *command[1:]], stdout=log, stderr=log)  # noqa: S603
        wait_until("the router answers", self._is_up)

    def _is_up(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(self.url + HEALTH_PATH).is_success
        return False

    def finds(self, service: str, pods: int) -> float:
        """Wait until the router has discovered a number of pods of a service, and return the duration in seconds."""
        return wait_until(f"{pods} pods of {service}", lambda: self.up(service) == pods)

    def up(self, service: str) -> int:
        """Return the number of pods of a service that accept requests, from the router's metrics."""
        text = httpx2.get(f"{self.url}/metrics").text
        start = f'haproxy_server_status{{proxy="{service}",server="pod'
        lines = [line for line in text.splitlines() if line.startswith(start) and 'state="UP"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines) // 1  # type: ignore[return-value]

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


class Callers:
    """Threads that send requests of a conversation each, and their results."""

    def __init__(
        self,
        url: str,
        conversations: int,
        seconds: float = 0.05,
        *,
        request: dict[str, object] | None = None,
        timeout_s: float = PATIENCE_S,
        pause_s: float = 0.02,
    ) -> None:
        self.seen: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.engines: dict[int, set[str]] = {number: set() for number in range(conversations)}
        self._url = url
        self._request = request or {"seconds": seconds}
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(conversations)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with httpx2.Client(timeout=self._timeout_s) as client:
            while not self._stop.is_set():
                since = time.monotonic()
                try:
                    answer = client.post(
                        f"{self._url}/v1/chat/completions",
                        json=self._request,
                        headers={"x-session-id": f"conversation {number}"},
                    )
                    self.seen[str(answer.status_code)] += 1
                    if answer.is_success:
                        self.engines[number].add(str(answer.json().get("engine")))
                except httpx2.TransportError as error:
                    self.seen[type(error).__name__] += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - since)
                self._stop.wait(self._pause_s)

    def request_count(self) -> int:
        return self.seen.total()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, find_free_port(), find_free_port())
    yield cluster
    cluster.end()


@pytest.fixture
def front(cluster: Cluster, haproxy: Path, tmp_path: Path) -> Iterator[Front]:
    backends = [
        Backend(name, [BackendService(name, f"{name}.test", cluster.engine_port, 8)]) for name in ("qwen", "speech")
    ]
    launcher = Router(find_free_port(), backends, 30, 2, (f"{LOOPBACK}:{cluster.dns_port}",))
    front = Front(haproxy, launcher, tmp_path / "front")
    front.start()
    yield front
    front.end()


def black_hole(address: str, port: int) -> socket.socket:
    """Return a listening socket with a full queue: the kernel drops packets, as for a lost node."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(0)
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            filler.connect((address, port))
        _fillers.append(filler)
    return listener


_fillers: list[socket.socket] = []
