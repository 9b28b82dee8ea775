"""Pieces of audio files: gateways put them there, and ASR hosts that have nothing else to do take them.

A gateway that dies leaves nothing: what nobody asks for expires. The piece of a host that dies is put there again.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis

from blueprint.contract.state import PieceField
from voice_runtime import state
from voice_runtime.replies import text
from voice_runtime.transcripts import TimedWord


class PieceHeard(BaseModel):
    """What a piece says.

    Attributes:
        words: From the piece's beginning; none where the engine does not tell.
        failed: Whether the engine could not transcribe it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    language: str | None = None
    words: list[TimedWord] = []
    failed: bool = False


@dataclass(frozen=True)
class Piece:
    """A piece as a host takes it.

    Attributes:
        audio: PCM16, little-endian, 16 kHz.
        language: That is spoken; ``None``: find out which.
    """

    name: str
    audio: bytes
    language: str | None


class FilePieces:
    """The pieces that wait, and those that hosts have."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    # --- For gateways -----------------------------------------------------------------------------------------

    async def waiting(self) -> int:
        """Return how many wait, of all files."""
        return int(await self._store.llen(state.FILE_PIECES))

    async def put(self, piece: Piece) -> None:
        key = state.file_piece(piece.name)
        fields: dict[Any, bytes | str] = {PieceField.AUDIO: piece.audio, PieceField.LANGUAGE: piece.language or ""}
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=fields)
            pipe.expire(key, state.FILE_PIECE_KEPT_S)
            await pipe.execute()
        await self._line_up(piece.name)

    async def heard(self, name: str) -> PieceHeard | None:
        """Return what a piece says, once a host has said it."""
        answer = await self._store.hget(state.file_piece(name), PieceField.HEARD)
        return PieceHeard.model_validate_json(answer) if answer else None

    async def keep(self, name: str) -> bool:
        """Keep a piece for a while longer, put it back where its host has died, and return whether it still exists."""
        if not await self._store.expire(state.file_piece(name), state.FILE_PIECE_KEPT_S):
            return False
        # In this order: a host takes it off the list after it has written the lease.
        waits = await self._store.lpos(state.FILE_PIECES, name)
        if waits is None and not await self._store.exists(state.file_piece_lease(name)):
            await self._line_up(name)
        return True

    async def forget(self, name: str) -> None:
        """Take a piece away, wherever it is."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.file_piece(name))
            pipe.lrem(state.FILE_PIECES, 0, name)
            await pipe.execute()

    async def _line_up(self, name: str) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.rpush(state.FILE_PIECES, name)
            pipe.expire(state.FILE_PIECES, state.SESSION_KEPT_S)
            await pipe.execute()

    # --- For hosts --------------------------------------------------------------------------------------------

    async def take(self, host: str) -> Piece | None:
        """Take the piece that has waited longest; ``None`` where none waits, or another host was faster."""
        first = await self._store.lindex(state.FILE_PIECES, 0)
        if first is None:
            return None
        name = text(first)
        if not await self._store.set(state.file_piece_lease(name), host, ex=state.FILE_PIECE_LEASE_S, nx=True):
            return None
        await self._store.lrem(state.FILE_PIECES, 0, name)
        read: Any = await self._store.hmget(state.file_piece(name), [PieceField.AUDIO, PieceField.LANGUAGE])
        audio, language = read
        return Piece(name, audio, text(language or b"") or None) if audio else None

    async def renew(self, name: str) -> bool:
        """Go on having a piece, and return whether anybody still waits for it."""
        await self._store.expire(state.file_piece_lease(name), state.FILE_PIECE_LEASE_S)
        return bool(await self._store.exists(state.file_piece(name)))

    async def answer(self, name: str, heard: PieceHeard) -> None:
        """Say what a piece says."""
        key = state.file_piece(name)
        # One that nobody waits for any more is not made anew.
        if await self._store.exists(key):
            await self._store.hset(key, PieceField.HEARD, heard.model_dump_json(exclude_defaults=True))
            await self._store.expire(key, state.FILE_PIECE_KEPT_S)
        await self._store.delete(state.file_piece_lease(name))
