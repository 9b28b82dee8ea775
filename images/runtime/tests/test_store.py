"""The connection to a real server whose user's password rotates."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from pydantic import SecretStr, ValidationError
from redis import Redis
from redis.asyncio import retry
from redis.exceptions import ConnectionError as NotYet

from voice_runtime.store import (
    FileCredentialProvider,
    ReresolvingConnection,
    ReresolvingTlsConnection,
    StoreSettings,
    connect,
)

PATIENCE_S = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Redis]:
    """Start a server with a user that has two passwords, and connect as its administrator."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = ["--user", "vad", "on", ">one", ">two", "~*", "+@all"]
    arguments = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path), "--save", "", *user]
    with subprocess.Popen(["redis-server", *arguments], stdout=subprocess.DEVNULL) as server:
        admin, limit = Redis(port=port), time.monotonic() + PATIENCE_S
        while True:
            try:
                admin.ping()
                break
            except NotYet:
                assert time.monotonic() < limit
                time.sleep(0.05)
        yield admin
        server.terminate()


async def test_a_program_reads_its_password_file_at_each_login(
    store: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.write_text("one")
    port = store.connection_pool.connection_kwargs["port"]
    client = connect(StoreSettings(host="127.0.0.1", port=port, user="vad", password_file=file, tls=False))
    assert await client.ping()
    file.write_text("two")
    store.acl_setuser("vad", reset_passwords=False, passwords=["-one"], enabled=True)
    assert await client.ping(), "a connection that is there stays"
    store.client_kill_filter(_type="normal", skipme=True)
    assert await client.ping(), "a new one takes the new password"
    await client.aclose()
    assert caplog.records == [], "the demo would begin with a warning of a library"


async def test_a_program_follows_a_restored_store_to_its_new_host(store: Redis, tmp_path: Path) -> None:
    file = tmp_path / "host"
    file.write_text("127.0.0.1\n")
    port = store.connection_pool.connection_kwargs["port"]
    client = connect(StoreSettings(host_file=file, port=port, user="vad", password=SecretStr("one"), tls=False))
    assert await client.ping()
    file.write_text("127.0.0.9")
    assert await client.ping(), "a connection that is there stays"
    store.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(NotYet, match=r"127\.0\.0\.9"):
        await client.ping()
    file.write_text("127.0.0.1")
    assert await client.ping()
    await client.aclose()


@pytest.mark.parametrize("given", [{}, {"host": "one", "host_file": "/two"}])
def test_exactly_one_host_setting_is_required(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="set one of VOICE_VALKEY_HOST and VOICE_VALKEY_HOST_FILE"):
        StoreSettings.model_validate({**given, "port": 6379, "user": "vad"})


def test_tls_is_required_except_for_local_stores() -> None:
    assert StoreSettings(host="one", port=6379, user="vad").tls
    for port in (1, 65_535):
        assert StoreSettings(host="one", port=port, user="vad").port == port
    for port in (0, 65_536):
        with pytest.raises(ValidationError, match="port"):
            StoreSettings(host="one", port=port, user="vad")


def settings_of(**more: Any) -> StoreSettings:
    return StoreSettings(**{"host": "one", "port": 6379, "user": "vad", **more})


def pool_of(settings: StoreSettings) -> Any:
    return connect(settings).connection_pool


@pytest.mark.parametrize("is_file", [False, True])
def test_an_address_and_a_password_may_be_in_files(tmp_path: Path, is_file: bool) -> None:
    """A line break at the end of a file belongs to neither."""
    if not is_file:
        settings = settings_of(password=SecretStr("secret"))
        assert (settings.read_address(), settings.read_password()) == ("one", "secret")
        return
    address, password = tmp_path / "address", tmp_path / "password"
    address.write_text("two\n")
    password.write_text("hidden\n")
    settings = settings_of(host=None, host_file=address, password_file=password)
    assert (settings.read_address(), settings.read_password()) == ("two", "hidden")
    assert FileCredentialProvider(settings).get_credentials() == ("vad", "hidden")


def test_a_store_without_a_password_has_no_credentials(tmp_path: Path) -> None:
    assert settings_of().read_password() is None
    assert FileCredentialProvider(settings_of()).get_credentials() == ("vad", "")
    assert connect(settings_of()).connection_pool.connection_kwargs["credential_provider"] is None
    with pytest.raises(ValidationError, match="both VOICE_VALKEY_PASSWORD and VOICE_VALKEY_PASSWORD_FILE"):
        settings_of(password=SecretStr("secret"), password_file=tmp_path / "password")


async def test_a_connection_has_the_certificates_of_its_settings(tmp_path: Path) -> None:
    """Without a file, those of the system are used; without TLS, none."""
    file = tmp_path / "ca.pem"
    for ca_file, certificates in ((file, str(file)), (None, None)):
        connection = pool_of(settings_of(ca_file=ca_file)).make_connection()
        assert isinstance(connection, ReresolvingTlsConnection)
        assert connection.ssl_context.ca_certs == certificates
    plain = pool_of(settings_of(tls=False)).make_connection()
    assert type(plain) is ReresolvingConnection


async def test_pauses_between_attempts_grow_up_to_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time of seven attempts, they take about five seconds; callers wait longer if they need to."""
    attempts, pauses = 0, list[float]()

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    async def refuse() -> None:
        nonlocal attempts
        attempts += 1
        raise NotYet

    monkeypatch.setattr(retry, "sleep", sleep)
    monkeypatch.setattr(random, "random", lambda: 1.0)
    connection = pool_of(settings_of(tls=False)).make_connection()
    with pytest.raises(NotYet):
        await connection.retry.call_with_retry(refuse, AsyncMock())
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1, 1])
    assert attempts == 1 + len(pauses)


async def test_lost_connections_are_noticed(store: Redis) -> None:
    """A connection that a firewall has dropped, by probes of the kernel; an unresponsive store after two seconds."""
    port = store.connection_pool.connection_kwargs["port"]
    client = connect(settings_of(host="127.0.0.1", port=port, password=SecretStr("one"), tls=False))
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    connected = connection._writer.get_extra_info("socket")
    assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (2, 2)
    await pool.release(connection)
    await client.set("key", "value")
    assert await client.get("key") == b"value", "audio is no text"
    await client.aclose()


async def test_fifty_connections_are_used_at_a_time() -> None:
    """``docs/security.md`` has this limit for the gateway."""
    pool = pool_of(settings_of(tls=False))
    assert pool.max_connections == 50
