"""Stores the history and the lease of a conversation in Valkey."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Literal, TypedDict

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from voice_blueprint.contract.state import CONVERSATION_KEY, CONVERSATION_LEASE_KEY

MAX_MESSAGES = 200
"""Maximum number of messages that are stored, and that a conversation sends to the language model: an hour of short
turns, or about 10,000 tokens."""
LEASE_S = 5
"""Time after which any agent may take over a conversation whose lease is not renewed."""

Role = Literal["user", "assistant"]


class Message(TypedDict):
    """A message in the history, as sent to the language model."""

    role: Role
    content: str


class LostLeaseError(Exception):
    """Another connection has taken over the conversation."""


class ConversationHistory:
    """A connection's access to the history of a conversation. Only the holder of the conversation's lease may write."""

    def __init__(self, store: Redis, conversation: str, retention_s: int) -> None:
        self._store = store
        self._messages_key = CONVERSATION_KEY.format(id=conversation)
        self._lease_key = CONVERSATION_LEASE_KEY.format(id=conversation)
        self._owner_token = secrets.token_hex(8).encode()
        self._retention_s = retention_s
        self._message_lock = asyncio.Lock()

    async def take_over(self) -> list[Message]:
        """Take over the conversation from any other connection, and return the history.

        A caller can detect the loss of the old connection and reconnect before that connection's agent detects the
        loss.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.set(self._lease_key, self._owner_token, ex=LEASE_S)
            pipe.lrange(self._messages_key, 0, -1)
            _, messages = await pipe.execute()
        return [Message(role=each["role"], content=each["content"]) for each in map(json.loads, messages)]

    async def renew_lease(self) -> None:
        """Renew the lease.

        Raises:
            LostLeaseError: Another connection has taken over the conversation.
        """
        await self._write_with_lease(lambda pipe: pipe.set(self._lease_key, self._owner_token, ex=LEASE_S))

    async def add_message(self, role: Role, content: str) -> None:
        """Store a message with its spoken content. Messages are stored in the order of the calls.

        Raises:
            LostLeaseError: Another connection has taken over the conversation.
        """
        # A write whose reply was lost is repeated, and the id tells whether the message is already stored.
        message = json.dumps({"id": secrets.token_hex(8), **Message(role=role, content=content)})

        async def is_written(pipe: Pipeline) -> bool:
            return bool(await pipe.lindex(self._messages_key, -1) == message.encode())

        def write(pipe: Pipeline) -> None:
            pipe.rpush(self._messages_key, message)
            pipe.ltrim(self._messages_key, -MAX_MESSAGES, -1)
            pipe.expire(self._messages_key, self._retention_s)

        async with self._message_lock:
            await self._write_with_lease(write, is_written)

    async def release_lease(self) -> None:
        """Release the lease for the next connection."""
        try:
            await self._write_with_lease(lambda pipe: pipe.delete(self._lease_key))
        except LostLeaseError:
            return

    async def _write_with_lease(
        self, write: Callable[[Pipeline], object], is_written: Callable[[Pipeline], Awaitable[bool]] | None = None
    ) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            while True:
                await pipe.watch(self._lease_key)
                holder = await pipe.get(self._lease_key)
                # If the store was unavailable for longer than the lease, the lease has no holder.
                if holder not in (self._owner_token, None):
                    raise LostLeaseError
                if is_written and await is_written(pipe):
                    return
                pipe.multi()
                write(pipe)
                # Another write, possibly by this connection, changed the lease in the meantime, or the reply was lost.
                # Check again.
                with contextlib.suppress(WatchError):
                    await pipe.execute()
                    return
