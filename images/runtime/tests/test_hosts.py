"""The time after which a host without a heartbeat counts as failed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NoConnectionError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_runtime import hosts, state
from voice_runtime.hosts import Host, HostKind, HostRegistry


@pytest.mark.parametrize("started_at", [0.5, 1_000_000.0])
async def test_a_host_fails_a_fixed_time_after_its_last_heartbeat(
    store: Redis, monkeypatch: pytest.MonkeyPatch, started_at: float
) -> None:
    """The clock counts from the boot of the machine, which may be recent."""
    now = started_at
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now, time_ns=lambda: round(now * 1e9)))
    registry, host = HostRegistry(store, Tier.ASR), Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False)
    await registry.send_heartbeat(host)
    assert [each.id for each in await registry.read_live_hosts()] == ["h1"]
    now += HOST_HEARTBEAT_TIMEOUT_S - 0.25
    assert [each.id for each in await registry.read_live_hosts()] == ["h1"]
    for _ in range(5):
        now += 0.25
        assert await registry.read_live_hosts() == []
    await registry.send_heartbeat(host)
    assert [each.id for each in await registry.read_live_hosts()] == ["h1"]


async def test_the_time_of_an_outage_does_not_count_against_hosts(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: str) -> set[bytes]:
        raise NoConnectionError

    now = 1000.0
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now, time_ns=lambda: round(now * 1e9)))
    registry, host = HostRegistry(store, Tier.ASR), Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False)
    await registry.send_heartbeat(host)
    assert [each.id for each in await registry.read_live_hosts()] == ["h1"]
    now += 1
    with monkeypatch.context() as outage:
        outage.setattr(store, "smembers", fail)
        with pytest.raises(NoConnectionError):
            await registry.read_live_hosts()
    now += HOST_HEARTBEAT_TIMEOUT_S
    assert [each.id for each in await registry.read_live_hosts()] == ["h1"]
    now += HOST_HEARTBEAT_TIMEOUT_S
    assert await registry.read_live_hosts() == []


@pytest.mark.parametrize("heartbeats", [("9", "10"), ("10", "9")])
async def test_any_other_heartbeat_is_a_newer_one(
    store: Redis, monkeypatch: pytest.MonkeyPatch, heartbeats: tuple[str, str]
) -> None:
    """Heartbeats are compared as texts, and the clock of a host may be set back."""
    now = 1000.0
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now, time_ns=lambda: 0))
    registry = HostRegistry(store, Tier.ASR)
    await registry.send_heartbeat(Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False))
    key = state.build_host_key(Tier.ASR, "h1")
    for heartbeat in heartbeats:
        await store.hset(key, "heartbeat", heartbeat)
        assert await registry.read_live_hosts() != []
        now += HOST_HEARTBEAT_TIMEOUT_S
    assert await registry.read_live_hosts() == []


async def test_a_host_reads_what_another_has_announced(store: Redis) -> None:
    host = Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=True, slots=4, languages=("de", "en"), zone="a")
    registry = HostRegistry(store, Tier.ASR)
    await registry.send_heartbeat(host)
    assert await registry.is_registered("h1")
    (found,) = await registry.read_live_hosts()
    assert replace(found, heartbeat="") == host
    await registry.remove("h1")
    assert not await registry.is_registered("h1")
    assert not await store.exists(state.build_host_key(Tier.ASR, "h1"))


@pytest.mark.parametrize(("draining", "is_draining"), [("1", True), ("0", False), ("", False), ("2", False)])
def test_a_record_without_slots_has_none(draining: str, is_draining: bool) -> None:
    """Records of agents and VAD hosts have no number of slots; a host drains if its record says so with 1."""
    record = {"kind": "vad", "address": "10.0.0.1", "free_slots": "0", "draining": draining, "heartbeat": "5"}
    found = Host.from_fields("h", record)
    assert found == Host("h", HostKind.VAD, "10.0.0.1", 0, draining=is_draining, heartbeat="5")
    assert found.slots == 0
    assert not found.accepts_sessions
