"""Agents as one tier: callers that a full agent cannot serve are forwarded to one with a free slot."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest
import websockets
from openai import AsyncOpenAI
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, Place, running_agent, settings_of, silence, speech
from images.agent.tests.engines import Engines
from images.agent.tests.test_clients import Script, ask_by_pipecat
from images.agent.tests.test_process import has, running, said
from images.agent.tests.test_server import refused
from images.conftest import BUSY_TIMEOUT_S, StoreServer, until
from voice_agent import siblings, tokens
from voice_blueprint.contract.network import Tier
from voice_ops.demo.agent.caller import Caller
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_sandbox.loopback import find_free_port

SECOND, THIRD = "127.0.0.2", "127.0.0.3"
SPOKEN_S = 2.0


@contextlib.asynccontextmanager
async def two(engines: Engines, store: Redis) -> AsyncIterator[tuple[Place, Place]]:
    """Two agents with a slot each, the first of which is full."""
    port = find_free_port()
    async with (
        running_agent(engines, store, port=port) as full,
        running_agent(engines, store, SECOND, port) as other,
        full.call(),
    ):
        await known(store, {"127.0.0.1": 0, SECOND: 1})
        yield full, other


async def known(store: Redis, free: dict[str, int]) -> None:
    registry, found = HostRegistry(store, Tier.AGENT), {"": -1}
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while found != free:
            found = {host.id: host.free_slots for host in await registry.read_live_hosts()}


async def test_a_sibling_accepts_callers_of_a_full_agent(engines: Engines, store: Redis) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], ["It is a test."], 1.0
    async with two(engines, store) as (full, other):
        async with full.call(holder=other) as caller:
            assert (
                full.agent.conversation_count,
                full.agent.siblings.forwarded_count,
                other.agent.conversation_count,
            ) == (1, 1, 1)
            await caller.send(speech(SPOKEN_S))
            await caller.send(silence(1.0))
            await caller.until(lambda each: each.heard_s > 0)
            await known(store, {"127.0.0.1": 0, SECOND: 0})
            # Without a free slot anywhere, it is refused once, by the agent that received it.
            assert (await refused(full))[0] == 503
        await until(lambda: full.agent.siblings.forwarded_count == 0)
        for place, count in ((full, 1), (other, 0)):
            text = place.agent.metrics.to_text().decode()
            assert ('voice_agent_refused_total{reason="busy"} 1.0' in text) == bool(count)


async def test_openais_client_is_served_through_a_full_agent(engines: Engines, store: Redis) -> None:
    async with two(engines, store) as (full, other):
        client = AsyncOpenAI(base_url=f"{full.url}/v1", api_key="a-key")
        async with client.realtime.connect(model="any") as connection:
            await connection.session.update(session={"type": "realtime", "instructions": "Be brief."})
            assert [(await connection.recv()).type for _ in range(2)] == ["session.created", "session.updated"]
            assert other.agent.conversation_count == 1
        assert engines.keys[-1] == "Bearer a-key"
        await until(lambda: other.agent.conversation_count == 0)


@pytest.mark.nightly
async def test_pipecats_client_completes_three_turns_through_a_full_agent(engines: Engines, store: Redis) -> None:
    async with two(engines, store) as (full, other):
        await ask_by_pipecat(full.url, Script(other, engines), engines)
        await until(lambda: other.agent.conversation_count == 0)


async def test_an_agent_at_any_address_announces_that_towards_the_gateway(engines: Engines, store: Redis) -> None:
    registry = HostRegistry(store, Tier.AGENT)
    anywhere = {"bind_address": "0.0.0.0", "conversations": 3}  # noqa: S104
    nowhere = siblings.SiblingRouter(settings_of(engines, 1, gateway_url="http://gateway.invalid", **anywhere), store)
    with pytest.raises(socket.gaierror):
        await nowhere.send_heartbeat(1, draining=False)
    own = siblings.SiblingRouter(settings_of(engines, 1, **anywhere), store)
    assert not await own.forward(None, ""), "its own address is not known yet"  # type: ignore[arg-type]
    await own.send_heartbeat(1, draining=False)
    (host,) = await registry.read_live_hosts()
    assert (host.id, host.address, host.free_slots, host.slots) == ("127.0.0.1", "127.0.0.1", 2, 3)
    await own.deregister()
    assert await registry.read_live_hosts() == []


async def test_siblings_with_more_free_slots_are_mostly_asked_first(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = HostRegistry(store, Tier.AGENT)
    for name, slots in (("127.0.0.1", 50), ("10.0.0.9", 1), ("many", 9), ("full", 0)):
        await registry.send_heartbeat(Host(name, HostKind.AGENT, "10.0.0.1", slots, draining=False))
    own, hosts = siblings.SiblingRouter(settings_of(engines, 1), store), await registry.read_live_hosts()
    monkeypatch.setattr(
        own._registry, "read_live_hosts", lambda: asyncio.sleep(0, hosts)
    )  # they expire on a busy machine
    orders = [[host.id for host in await own._list_free_siblings()] for _ in range(200)]
    assert all(sorted(order) == ["10.0.0.9", "many"] for order in orders)
    assert 140 < sum(order[0] == "many" for order in orders) < 200, "nine of ten"


async def test_siblings_are_kept_while_the_store_is_unavailable(engines: Engines) -> None:
    own = siblings.SiblingRouter(settings_of(engines, 1), Redis(port=find_free_port()))
    assert not await own.has_forwarder_stopped(SECOND)


async def test_a_full_sibling_misdirects_agents(engines: Engines, store: Redis) -> None:
    """RFC 9110, section 15.5.20; without an agent's token it is a refusal."""
    async with two(engines, store) as (full, other), other.call():
        for subject, status in ((f"agent {SECOND}", 421), (SECOND, 503)):
            header = {siblings.FORWARDER_HEADER: f"{SECOND} {tokens.create_token(KEY, subject, 60)}"}
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(f"ws{full.url[4:]}/v1/conversations", additional_headers=header)
            assert caught.value.response.status_code == status


async def test_a_sibling_that_closes_the_connection_is_skipped_at_once(engines: Engines, store: Redis) -> None:
    port = find_free_port()
    async with (
        running_agent(engines, store, port=port) as full,
        await asyncio.start_server(lambda _, writer: writer.close(), SECOND, port),
        full.call(),
    ):
        await HostRegistry(store, Tier.AGENT).send_heartbeat(
            Host(SECOND, HostKind.AGENT, SECOND, 9, draining=False, slots=9)
        )
        since = time.monotonic()
        assert (await refused(full))[0] == 503
        assert time.monotonic() - since < siblings.RESPONSE_TIMEOUT_S


async def test_a_slow_endpoint_pauses_the_other() -> None:
    side, other = siblings._ForwardedEndpoint(), Mock()
    side.pause_writing()
    side.resume_writing()
    side.other_transport = other
    side.pause_writing()
    assert [name for name, _, _ in other.mock_calls] == ["pause_reading"]
    side.resume_writing()
    assert [name for name, _, _ in other.mock_calls] == ["pause_reading", "resume_reading"]


async def test_a_siblings_refusal_is_final(engines: Engines, store: Redis) -> None:
    async with two(engines, store) as (full, _):
        assert (await refused(full, "/v1/conversations/c", "none"))[0] == 401
        engines.refuses = 429
        assert (await refused(full))[0] == 429


async def test_dead_and_full_siblings_are_skipped(engines: Engines, store: Redis) -> None:
    """The registry is always slightly outdated, so only the sibling itself knows."""
    async with two(engines, store) as (full, other), other.call():
        for dead_or_full in (SECOND, "127.0.0.9"):
            host = Host(dead_or_full, HostKind.AGENT, dead_or_full, 60, draining=False, slots=60)
            await HostRegistry(store, Tier.AGENT).send_heartbeat(host)
        port = full.agent.settings.http_port
        async with running_agent(engines, store, THIRD, port) as third:
            await HostRegistry(store, Tier.AGENT).send_heartbeat(
                Host(THIRD, HostKind.AGENT, THIRD, 1, draining=False, slots=1)
            )
            async with full.call(holder=third):
                assert third.agent.conversation_count == 1


async def test_a_connection_is_handed_over_once(engines: Engines, store: Redis) -> None:
    """Two full agents, each of which assumes that the other has a free slot."""
    async with two(engines, store) as (full, other), other.call():
        for place in (full, other):
            address = place.agent.settings.bind_address
            await HostRegistry(store, Tier.AGENT).send_heartbeat(
                Host(address, HostKind.AGENT, address, 1, draining=False)
            )
        assert (await refused(full))[0] == 503
        assert other.agent.siblings.forwarded_count == 0


@pytest.mark.parametrize("header", ["", "127.0.0.2", "127.0.0.2 none"])
async def test_only_agents_can_authenticate_as_agents(engines: Engines, store: Redis, header: str) -> None:
    async with two(engines, store) as (full, other):
        url = f"ws{full.url[4:]}/v1/conversations"
        async with websockets.connect(url, additional_headers={siblings.FORWARDER_HEADER: header}):
            await until(lambda: other.agent.conversation_count == 1)
            assert (await refused(full))[0] == 503
        await until(lambda: other.agent.conversation_count == 0)


async def test_concurrent_hand_overs_are_limited(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siblings, "AUTHENTICATION_TIMEOUT_S", 0.0)
    port = find_free_port()
    async with (
        running_agent(engines, store, port=port) as full,
        running_agent(engines, store, SECOND, port, conversations=9) as other,
        contextlib.AsyncExitStack() as calls,
    ):
        for free in range(9, 4, -1):
            await known(store, {"127.0.0.1": int(free == 9), SECOND: min(free + 1, 9)})
            await calls.enter_async_context(full.call(holder=full if free == 9 else other))
        assert (full.agent.siblings.forwarded_count, other.agent.conversation_count) == (4, 4)
        await until(lambda: full.agent.siblings._authenticated_count == 4)
        assert (await refused(full))[0] == 503
    assert full.agent.siblings._authenticated_count == 0


async def test_without_the_store_a_full_agent_rejects_callers(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(engines, store) as (full, _):
        monkeypatch.setattr(siblings, "DISCOVERY_TIMEOUT_S", 0.0)  # waits for an unavailable store
        assert (await refused(full))[0] == 503


async def test_a_draining_agent_hands_over_and_waits_for_forwarded_calls(engines: Engines, store: Redis) -> None:
    async with two(engines, store) as (full, other):
        full.agent.draining.set()
        async with full.call(holder=other) as caller:
            full.agent.shutting_down.set()
            full.agent.count_changed.set()
            # The sibling informs it between two turns.
            assert await caller.closed() == 1012
        assert not other.agent.shutting_down.is_set()
        await until(lambda: full.agent.siblings.forwarded_count == 0)


@pytest.mark.nightly
async def test_siblings_may_be_killed_or_stopped(engines: Engines, store: Redis, store_server: StoreServer) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(0, "First?")], ["One.", "Two."], 1.0
    port = find_free_port()
    async with (
        running(engines, store_server, port) as (url, process),
        running(engines, store_server, port, bind_address=SECOND) as (_, sibling),
        Caller(url),
    ):
        await known(store, {"127.0.0.1": 0, SECOND: 1})
        async with Caller(url) as caller:
            await caller.ask_question(speech(SPOKEN_S), lambda: has(store, caller.conversation, 2))
            sibling.kill()
            assert await caller.wait_closed() == 1006
        token = {"X-Voice-Token": caller.token}
        async with running(engines, store_server, port, bind_address=THIRD) as (_, third):
            await known(store, {"127.0.0.1": 0, THIRD: 1})
            engines.finals = [(0, "Second?")]
            async with Caller(f"{url}/{caller.conversation}", token) as again:
                again.queue_speech(speech(SPOKEN_S))
                await again.wait_for_audio(0.1)
                process.send_signal(signal.SIGTERM)
                # The agent that runs the conversation sends the shutdown message after a turn.
                await again.wait_for_audio(engines.spoken_s)
                assert await again.wait_closed() == 1012
                assert process.wait(BUSY_TIMEOUT_S) == 0
            assert third.poll() is None
    assert await said(store, caller.conversation) == ["First?", "One.", "Second?", "Two."]
