"""Counts the usage of the engines per conversation, for billing.

At the end of a conversation, its usage is logged as a line whose ``message`` is ``usage``, and is added to the caller's
usage of the UTC day. The gateway counts audio.
"""

import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from redis.asyncio import Redis

from voice_runtime import state

log = logging.getLogger(__name__)


@dataclass
class Usage:
    """Counters of a conversation.

    Attributes:
        prompt_tokens: Tokens sent to the language model, including cached ones.
        answer_tokens: Generated tokens.
        spoken_characters: Synthesized characters.
    """

    prompt_tokens: int = 0
    answer_tokens: int = 0
    spoken_characters: int = 0

    def log_usage(self, caller: str, conversation: str) -> None:
        """Log the usage of a connection. Earlier connections of the conversation are not included."""
        log.info("usage", extra={"fields": {"caller": caller, "conversation": conversation, **asdict(self)}})

    async def add_to_daily_usage(self, store: Redis, caller: str) -> None:
        """Add the usage to the caller's usage for the day.

        Raises:
            RedisError: The store does not respond.
        """
        day = datetime.now(UTC).date().isoformat()
        key, callers = state.build_agent_usage_key(caller, day), state.build_agent_day_callers_key(day)
        async with store.pipeline(transaction=True) as pipe:
            for name, number in asdict(self).items():
                pipe.hincrby(key, name, number)
            pipe.sadd(callers, caller)
            for each in (key, callers):
                pipe.expire(each, state.USAGE_RETENTION_S)
            await pipe.execute()
