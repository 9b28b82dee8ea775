"""What was said in a conversation, in Valkey, and whose the conversation is."""

import contextlib
import json
import secrets
from collections.abc import Callable
from typing import Literal, TypedDict

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from blueprint.contract.state import CONVERSATION_KEY, CONVERSATION_LEASE_KEY

MESSAGES = 200
"""Kept of a conversation: an hour of short turns, and less than what a model of 32,000 tokens takes."""
LEASE_S = 5
"""A conversation whose agent has not renewed it for that long is anybody's."""

Role = Literal["user", "assistant"]


class Message(TypedDict):
    """One turn, as the language model is told it."""

    role: Role
    content: str


class LostLeaseError(Exception):
    """Another connection has the conversation."""


class Memory:
    """One connection's view of a conversation. Only who holds its lease writes."""

    def __init__(self, store: Redis, conversation: str, kept_s: int) -> None:
        self._store = store
        self._messages = CONVERSATION_KEY.format(id=conversation)
        self._lease = CONVERSATION_LEASE_KEY.format(id=conversation)
        self._mine = secrets.token_hex(8).encode()
        self._kept_s = kept_s

    async def take(self) -> list[Message]:
        """Take the conversation, whoever had it, and return what was said in it.

        A caller that connects anew knows better than its old connection that it is gone.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.set(self._lease, self._mine, ex=LEASE_S)
            pipe.lrange(self._messages, 0, -1)
            _, messages = await pipe.execute()
        return [json.loads(each) for each in messages]

    async def renew(self) -> None:
        """Keep the conversation.

        Raises:
            LostLeaseError: Another connection has taken it.
        """
        await self._as_holder(lambda pipe: pipe.set(self._lease, self._mine, ex=LEASE_S))

    async def add(self, role: Role, content: str) -> None:
        """Remember what was said, as it was heard.

        Raises:
            LostLeaseError: Another connection has taken the conversation.
        """

        def write(pipe: Pipeline) -> None:
            pipe.rpush(self._messages, json.dumps(Message(role=role, content=content)))
            pipe.ltrim(self._messages, -MESSAGES, -1)
            pipe.expire(self._messages, self._kept_s)

        await self._as_holder(write)

    async def release(self) -> None:
        """Leave the conversation to whoever comes next."""
        try:
            await self._as_holder(lambda pipe: pipe.delete(self._lease))
        except LostLeaseError:
            return

    async def _as_holder(self, write: Callable[[Pipeline], object]) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            while True:
                await pipe.watch(self._lease)
                holder = await pipe.get(self._lease)
                # Nobody's, where the store was away for longer than the lease.
                if holder not in (self._mine, None):
                    raise LostLeaseError
                pipe.multi()
                write(pipe)
                # Another write changed the lease meanwhile, perhaps one of this connection: look again.
                with contextlib.suppress(WatchError):
                    await pipe.execute()
                    return
