"""Image registry and state store, which moto lacks and which hosts reach under AWS names."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from tempfile import NamedTemporaryFile

from voice_sandbox.hosts.certificates import CertificateAuthority
from voice_sandbox.hosts.disk import HostRehearsalError, run_command

REGISTRY_PORT = 5000
REGISTRY_USER = "AWS"
_START_TIMEOUT_S = 30


@dataclass(frozen=True)
class StoreUser:
    """A user of the store as in ElastiCache, with an access string in Valkey's own format."""

    name: str
    access_string: str
    password: str | None


class ServerProcess:
    """A Debian program that listens on one port in the calling thread's network namespace."""

    def __init__(self, command: list[str], log: Path, address: str, port: int) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)  # noqa: S603
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                create_connection((address, port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise HostRehearsalError(f"{command[0]} does not answer:\n{log.read_text()}") from None
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


class Registry(ServerProcess):
    """Debian's docker-registry in place of ECR, on the loopback interface. The TLS server forwards requests to it.

    Args:
        storage: Folder of the images, which are added before any machine starts.
        password: Registry password of the local AWS.
    """

    def __init__(self, storage: Path, folder: Path, password: str) -> None:
        users = folder / "registry-users"
        users.write_text(run_command("htpasswd", "-nbB", REGISTRY_USER, password), encoding="utf-8")
        settings = {**_build_registry_settings(storage), "auth": {"htpasswd": {"realm": "ecr", "path": str(users)}}}
        super().__init__(_build_registry_command(settings, folder), folder / "registry.log", "127.0.0.1", REGISTRY_PORT)


def _build_registry_settings(storage: Path) -> dict[str, object]:
    return {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        # The TLS server forwards plain HTTP, so the registry does not know that its clients use TLS.
        "http": {"addr": f"127.0.0.1:{REGISTRY_PORT}", "relativeurls": True},
    }


def _build_registry_command(settings: dict[str, object], folder: Path) -> list[str]:
    file = folder / "registry.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")  # YAML is a superset
    return ["docker-registry", "serve", str(file)]


@contextmanager
def run_registry_for_pushes(storage: Path, folder: Path) -> Iterator[None]:
    """Run a registry without a password, for pushes, in an isolated network namespace."""
    command = _build_registry_command(_build_registry_settings(storage), folder)
    server = ServerProcess(command, folder / "registry-fill.log", "127.0.0.1", REGISTRY_PORT)
    try:
        yield
    finally:
        server.close()


def push_archive(archive: Path, repository: str) -> str:
    """Push an OCI archive to the registry on this machine, and return the digest."""
    with NamedTemporaryFile() as digest:
        run_command(
            *("skopeo", "copy", "--quiet", "--dest-tls-verify=false"),
            *(
                f"--digestfile={digest.name}",
                f"oci-archive:{archive}",
                f"docker://127.0.0.1:{REGISTRY_PORT}/{repository}",
            ),
        )
        return digest.read().decode().strip()


class Store(ServerProcess):
    """Redis in place of ElastiCache, with TLS and the users from the deployment.

    Args:
        address: Listening address.
        endpoint: Name and port for hosts.
        folder: Folder of the server's files. Only root can read the file with the users.

    Attributes:
        endpoint: Name and port for hosts.
    """

    def __init__(
        self,
        address: str,
        endpoint: tuple[str, int],
        users: list[StoreUser],
        *,
        authority: CertificateAuthority,
        folder: Path,
    ) -> None:
        acl = folder / "store-users.acl"
        acl.touch(mode=0o600)
        acl.write_text("".join(f"user {user.name} {_format_acl_rules(user)}\n" for user in users), encoding="utf-8")
        self.endpoint = endpoint
        self._passwords = {user.name: user.password for user in users}
        name, port = endpoint
        certificate, key = authority.issue(name, folder, address)
        options = ["--bind", address, "--port", "0", "--tls-port", str(port), "--save", "", "--aclfile", str(acl)]
        options += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
        options += ["--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", "no"]
        super().__init__(["redis-server", *options], folder / "store.log", address, port)

    def get_password(self, user: str) -> str:
        return self._passwords[user] or ""


def _format_acl_rules(user: StoreUser) -> str:
    return f"{user.access_string} >{user.password}" if user.password else f"{user.access_string} nopass"
