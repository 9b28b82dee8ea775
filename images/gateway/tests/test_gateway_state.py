"""What the requests of a gateway share: authentication of sessions, and the numbers of connections and readers."""

import contextlib
import time

import pytest
from redis.asyncio import Redis

from images.gateway.tests.local_gateway import LocalGateway
from voice_gateway.callers import JwtCallerIdentifier, TrustedCallerIdentifier
from voice_gateway.refusals import Refusal
from voice_gateway.tokens import SessionTokenManager


@pytest.mark.parametrize(("limit", "count"), [("file_slots", 2), ("container_slots", 16)])
async def test_decoder_processes_are_limited(store: Redis, limit: str, count: int) -> None:
    """The README of the gateway gives both numbers."""
    slots = getattr(LocalGateway(store), limit)
    for _ in range(count):
        assert not slots.locked()
        await slots.acquire()
    assert slots.locked()


@pytest.mark.parametrize(("limit", "count"), [("uploads", 16), ("unauthenticated_uploads", 64)])
async def test_an_upload_above_the_limit_replaces_the_oldest(store: Redis, limit: str, count: int) -> None:
    """The uploads with a key fit into 2 GiB of temporary files, 128 MiB each."""
    admission = getattr(LocalGateway(store), limit)
    async with contextlib.AsyncExitStack() as uploads:
        for number in range(1, count + 3):
            await uploads.enter_async_context(admission.admit("192.0.2.1"))
            assert len(admission) == min(number, count)


async def test_a_session_may_have_four_readers_at_a_gateway(store: Redis) -> None:
    gateway = LocalGateway(store)
    with contextlib.ExitStack() as readers:
        for _ in range(4):
            readers.enter_context(gateway.count_reader(7))
        with pytest.raises(Refusal, match="4 streams of this session") as caught, gateway.count_reader(7):
            pass
        assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": "1"})
        with gateway.count_reader(8):
            pass
    with gateway.count_reader(7):
        assert gateway._readers == {7: 1}
    assert not gateway._readers, "nothing is kept for a session without readers"


async def test_parts_without_settings_are_absent(store: Redis) -> None:
    plain = LocalGateway(store)
    assert (plain.cells, plain.archive) == (None, None)
    assert isinstance(plain.callers, TrustedCallerIdentifier)
    cells = {"api_url": "https://a.test", "cells": "https://a.test=https://a.test/healthz"}
    issuer = {"jwt_issuer": "https://issuer.test", "jwt_audience": "voice"}
    full = LocalGateway(store, archive_url="s3://archive", **cells, **issuer)
    assert full.cells
    assert full.archive
    assert isinstance(full.callers, JwtCallerIdentifier)


async def test_connections_are_limited_until_one_is_closed(store: Redis) -> None:
    gateway = LocalGateway(store, max_connections=2)
    with gateway.count_connection():
        with gateway.count_connection():
            assert gateway.connections == 2
            with pytest.raises(Refusal) as caught:
                gateway.check_connection_capacity()
            assert caught.value.error == "busy"
        gateway.check_connection_capacity()
    assert gateway.connections == 0
    gateway.draining.set()
    with pytest.raises(Refusal) as caught, gateway.count_connection():
        pass
    assert caught.value.error == "draining"


async def test_callers_are_accepted_while_the_store_answers_and_the_process_is_not_stopping(store: Redis) -> None:
    gateway = LocalGateway(store)
    assert gateway.accepts_callers
    gateway.fleet._age_s = 3600.0
    assert not gateway.accepts_callers
    gateway.fleet._age_s = 0.0
    gateway.draining.set()
    assert not gateway.accepts_callers


async def test_a_session_is_returned_for_its_own_token_only(store: Redis) -> None:
    gateway = LocalGateway(store)
    session, other = await gateway.open_session(7), await gateway.open_session(8)
    token, _ = gateway.tokens.create(session.id)
    assert (await gateway.authenticate(session.id, token)).id == session.id
    unknown = gateway.tokens.create_session_id(9)
    names = [gateway.tokens.create_session_id(7) for _ in range(1000)]
    less, greater = min(names), max(names)
    expired, _ = SessionTokenManager(gateway.tokens.key, -60).create(session.id)
    for id_, key, expected in (
        (session.id, None, (401, "no token")),
        (session.id, "", (401, "no token")),
        (session.id, "a.b.c", (401, "invalid token")),
        (session.id, expired, (401, "invalid token")),
        (other.id, token, (403, "foreign token")),
        ("7-7", gateway.tokens.create("7-7")[0], (401, "invalid token")),
        (unknown, gateway.tokens.create(unknown)[0], (404, "unknown session")),
        (less, gateway.tokens.create(less)[0], (404, "unknown session")),
        (greater, gateway.tokens.create(greater)[0], (404, "unknown session")),
    ):
        with pytest.raises(Refusal) as caught:
            await gateway.authenticate(id_, key)
        assert (caught.value.status_code, caught.value.error) == expected
    assert session.expires_at > time.time()
