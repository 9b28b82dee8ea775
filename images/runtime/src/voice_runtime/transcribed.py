"""Progress of a session in the ASR tier, which is stored separately from the session's record."""

from typing import Any

from redis.asyncio import Redis

from voice_runtime import state


async def write_transcription_progress(store: Redis, ssrc: int, fields: dict[Any, str]) -> None:
    """Write the progress of a session in the ASR tier, which expires with the session's record."""
    key = state.build_transcription_progress_key(ssrc)
    retention_s = max(await store.ttl(state.build_session_key(ssrc)), state.SESSION_RETENTION_S)
    async with store.pipeline(transaction=True) as pipe:
        pipe.hset(key, mapping=fields)
        pipe.expire(key, retention_s)
        await pipe.execute()
