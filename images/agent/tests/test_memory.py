"""What a connection does with its conversation at the same time as it keeps it."""

import asyncio

import pytest
from redis.asyncio import Redis

from voice_agent.memory import LostLeaseError, Memory

KEPT_S = 60


async def test_who_remembers_while_it_renews_loses_neither_conversation_nor_words(store: Redis) -> None:
    memory = Memory(store, "c", KEPT_S)
    await memory.take()
    said = [str(number) for number in range(40)]
    await asyncio.gather(*(work for text in said for work in (memory.add("user", text), memory.renew())))
    assert {each["content"] for each in await memory.take()} == set(said)


async def test_who_is_followed_by_another_connection_loses_it(store: Redis) -> None:
    old, new = Memory(store, "c", KEPT_S), Memory(store, "c", KEPT_S)
    await old.take()
    await new.take()
    with pytest.raises(LostLeaseError):
        await old.renew()
    with pytest.raises(LostLeaseError):
        await old.add("user", "late")
    await new.renew()
