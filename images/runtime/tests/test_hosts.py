"""The time after which a host without a heartbeat counts as failed."""

from types import SimpleNamespace

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NoConnectionError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_runtime import hosts
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
