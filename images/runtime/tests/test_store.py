"""The connection to a real server whose user's password rotates."""

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from redis import Redis
from redis.exceptions import ConnectionError as NotYet

from voice_runtime.store import StoreSettings, connect

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
    for port in (0, 65_536):
        with pytest.raises(ValidationError, match="port"):
            StoreSettings(host="one", port=port, user="vad")
