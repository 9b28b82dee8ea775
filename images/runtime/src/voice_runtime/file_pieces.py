"""Queue of audio file pieces: gateways add them, and idle ASR hosts claim them.

A gateway that fails leaves nothing behind, since pieces that are not polled expire. The piece of a failed host is
queued again.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis

from voice_blueprint.contract.state import FilePieceField
from voice_runtime import state
from voice_runtime.replies import decode_text
from voice_runtime.transcripts import TimedWord


class PieceTranscript(BaseModel):
    """Transcript of a piece.

    Attributes:
        words: Words with times relative to the piece; empty if the engine does not report them.
        failed: Whether the engine could not transcribe the piece.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    language: str | None = None
    words: list[TimedWord] = []
    failed: bool = False


@dataclass(frozen=True)
class FilePiece:
    """A piece as received by a host.

    Attributes:
        audio: PCM16, little-endian, 16 kHz.
        language: Spoken language, or ``None`` to detect the language.
        prompt: Words that are likely to occur.
    """

    name: str
    audio: bytes
    language: str | None
    prompt: str = ""


class FilePieceQueue:
    """The queued pieces, and those in progress."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    # --- For gateways -----------------------------------------------------------------------------------------

    async def count_queued(self) -> int:
        """Return the number of queued pieces of all files."""
        return int(await self._store.llen(state.QUEUED_FILE_PIECES_KEY))

    async def put(self, piece: FilePiece) -> None:
        key = state.build_file_piece_key(piece.name)
        fields: dict[Any, bytes | str] = {
            FilePieceField.AUDIO: piece.audio,
            FilePieceField.LANGUAGE: piece.language or "",
            FilePieceField.PROMPT: piece.prompt,
        }
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=fields)
            pipe.expire(key, state.FILE_PIECE_RETENTION_S)
            await pipe.execute()
        await self._enqueue(piece.name)

    async def read_result(self, name: str) -> PieceTranscript | None:
        """Return the transcript of a piece once it is available."""
        answer = await self._store.hget(state.build_file_piece_key(name), FilePieceField.TRANSCRIPT)
        return PieceTranscript.model_validate_json(answer) if answer else None

    async def refresh(self, name: str) -> bool:
        """Extend the lifetime of a piece, and return True if the piece still exists.

        A piece whose host has failed is queued again.
        """
        if not await self._store.expire(state.build_file_piece_key(name), state.FILE_PIECE_RETENTION_S):
            return False
        # The queue is read before the lease, since a host removes the piece from the queue after it has written the
        # lease.
        waits = await self._store.lpos(state.QUEUED_FILE_PIECES_KEY, name)
        if waits is not None or await self._store.exists(state.build_file_piece_lease_key(name)):
            return True
        # The lease is read before the transcript, since a host removes the lease after it has written the transcript.
        if not await self._store.hexists(state.build_file_piece_key(name), FilePieceField.TRANSCRIPT):
            await self._enqueue(name)
        return True

    async def delete(self, name: str) -> None:
        """Remove a piece in any state."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.build_file_piece_key(name))
            pipe.lrem(state.QUEUED_FILE_PIECES_KEY, 0, name)
            await pipe.execute()

    async def _enqueue(self, name: str) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.rpush(state.QUEUED_FILE_PIECES_KEY, name)
            pipe.expire(state.QUEUED_FILE_PIECES_KEY, state.SESSION_RETENTION_S)
            await pipe.execute()

    # --- For hosts --------------------------------------------------------------------------------------------

    async def claim(self, host: str) -> FilePiece | None:
        """Claim and return the oldest piece, or ``None`` if there is none or another host was faster."""
        first = await self._store.lindex(state.QUEUED_FILE_PIECES_KEY, 0)
        if first is None:
            return None
        name = decode_text(first)
        if not await self._store.set(
            state.build_file_piece_lease_key(name), host, ex=state.FILE_PIECE_LEASE_TTL_S, nx=True
        ):
            return None
        await self._store.lrem(state.QUEUED_FILE_PIECES_KEY, 0, name)
        fields = [FilePieceField.AUDIO, FilePieceField.LANGUAGE, FilePieceField.PROMPT]
        read: Any = await self._store.hmget(state.build_file_piece_key(name), fields)
        audio, language, prompt = read
        return (
            FilePiece(name, audio, decode_text(language or b"") or None, decode_text(prompt or b"")) if audio else None
        )

    async def renew(self, name: str) -> bool:
        """Renew the lease of a piece, and return True if its transcript is still needed."""
        await self._store.expire(state.build_file_piece_lease_key(name), state.FILE_PIECE_LEASE_TTL_S)
        return bool(await self._store.exists(state.build_file_piece_key(name)))

    async def complete(self, name: str, transcript: PieceTranscript) -> None:
        """Store the transcript of a piece."""
        key = state.build_file_piece_key(name)
        # A piece that is no longer needed is not recreated.
        if await self._store.exists(key):
            await self._store.hset(key, FilePieceField.TRANSCRIPT, transcript.model_dump_json(exclude_defaults=True))
            await self._store.expire(key, state.FILE_PIECE_RETENTION_S)
        await self._store.delete(state.build_file_piece_lease_key(name))
