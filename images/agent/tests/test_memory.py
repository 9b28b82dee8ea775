"""Concurrent operations of a connection on its conversation."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from voice_agent.memory import ConversationHistory, LostLeaseError
from voice_blueprint.contract.state import CONVERSATION_KEY, CONVERSATION_LEASE_KEY

KEPT_S = 60


async def lasts_five_seconds(store: Redis, lease: str, write: Callable[[], Awaitable[object]]) -> None:
    """Repeat a write until its lease is read within half a second, for which the store reports the whole time."""
    await write()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (left_s := await store.ttl(lease)) != 5:
            assert 0 < left_s < 5
            await write()


async def test_writes_during_a_renewal_keep_the_lease_and_the_order_of_the_messages(store: Redis) -> None:
    memory = ConversationHistory(store, "c", KEPT_S)
    await memory.take_over()
    said = [str(number) for number in range(40)]
    await asyncio.gather(*(work for text in said for work in (memory.add_message("user", text), memory.renew_lease())))
    assert [each["content"] for each in await memory.take_over()] == said


async def test_a_message_is_stored_once_although_a_reply_was_lost(lossy_store: Redis) -> None:
    """Regression: the client repeats the write."""
    memory = ConversationHistory(lossy_store, "c", KEPT_S)
    await memory.take_over()
    await memory.add_message("user", "Yes.")
    await memory.add_message("user", "Yes.")
    assert [each["content"] for each in await memory.take_over()] == ["Yes.", "Yes."]


async def test_an_older_connection_loses_the_lease_to_a_newer_one(store: Redis) -> None:
    old, new = ConversationHistory(store, "c", KEPT_S), ConversationHistory(store, "c", KEPT_S)
    await old.take_over()
    await new.take_over()
    with pytest.raises(LostLeaseError):
        await old.renew_lease()
    with pytest.raises(LostLeaseError):
        await old.add_message("user", "late")
    await new.renew_lease()


async def test_the_newest_messages_are_kept_for_the_configured_time(store: Redis) -> None:
    memory = ConversationHistory(store, "c", KEPT_S)
    assert await memory.take_over() == []
    for number in range(202):
        await memory.add_message("user", str(number))
    assert [each["content"] for each in await memory.take_over()] == [str(number) for number in range(2, 202)]
    assert 0 < await store.ttl(CONVERSATION_KEY.format(id="c")) <= KEPT_S


async def test_a_lease_ends_unless_it_is_renewed_and_only_its_holder_releases_it(store: Redis) -> None:
    old, new = ConversationHistory(store, "c", KEPT_S), ConversationHistory(store, "c", KEPT_S)
    lease = CONVERSATION_LEASE_KEY.format(id="c")
    await old.take_over()
    await store.persist(lease)
    await lasts_five_seconds(store, lease, old.renew_lease)
    await lasts_five_seconds(store, lease, new.take_over)
    await old.release_lease()
    await new.renew_lease()
    await new.release_lease()
    assert not await store.exists(lease)
    await old.add_message("user", "after an outage of the store")
    assert [each["content"] for each in await new.take_over()] == ["after an outage of the store"]
