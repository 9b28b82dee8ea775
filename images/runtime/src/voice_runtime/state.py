"""Keys, lifetimes and bounds of all that is kept in Valkey.

Every key expires by itself, and every stream and set is bounded: a caller, or a host that dies, leaves nothing behind.
"""

from blueprint.contract.network import Tier
from blueprint.contract.state import (
    AUDIO_KEY,
    CALLER_SESSIONS_KEY,
    FILE_PIECE_KEY,
    FILE_PIECE_LEASE_KEY,
    FILE_PIECES_KEY,
    HOST_KEY,
    HOST_SESSIONS_KEY,
    HOSTS_KEY,
    PLACES_KEY,
    SESSION_KEY,
    SESSION_LEASE_KEY,
    TRANSCRIPT_KEY,
)

PLACES = PLACES_KEY
FILE_PIECES = FILE_PIECES_KEY
SESSION_KEPT_S = 600
"""A session's record and transcript outlive its expiry by that, for readers that come late."""

TRANSCRIPT_EVENTS = 4096
"""About twenty minutes of partial transcripts at three a second; finals are far fewer."""

AUDIO_CHUNKS = 1024
"""Chunks of a session without a final transcript, 3.2 kB each: an utterance that is cut at 30 s, twice, and its overlap
with the next."""

AUDIO_KEPT_S = 120
"""Longest that unfinished audio waits for a host that goes on with it."""

LEASE_S = 5
"""A session whose host has not renewed it for that long may be taken by another."""

HOST_SESSIONS_KEPT_S = 300
"""What a dead host was doing is told for that long."""


FILE_PIECES_WAITING = 64
"""Of all files together, 0.4 MB each: less than the unfinished audio of ten sessions."""

FILE_PIECE_KEPT_S = 20
"""A piece whose gateway has not asked for it for that long is nobody's: the gateway has died."""

FILE_PIECE_LEASE_S = 5
"""A piece whose host has not renewed it for that long is done again by another."""


def session(ssrc: int) -> str:
    """Return the key of a session's record."""
    return SESSION_KEY.format(ssrc=ssrc)


def lease(ssrc: int) -> str:
    """Return the key that says which ASR host has a session."""
    return SESSION_LEASE_KEY.format(ssrc=ssrc)


def caller_sessions(caller: str) -> str:
    """Return the key of a caller's live sessions."""
    return CALLER_SESSIONS_KEY.format(caller=caller)


def socket(ssrc: int) -> str:
    """Return the key that says which audio socket a session has."""
    return f"{session(ssrc)}:socket"


def caller_creations(caller: str) -> str:
    """Return the key that counts the sessions that a caller opens in one second."""
    return f"session:rate:{caller}"


def transcript(ssrc: int) -> str:
    """Return the key of a session's transcript."""
    return TRANSCRIPT_KEY.format(ssrc=ssrc)


def audio(ssrc: int) -> str:
    """Return the key of a session's unfinished audio."""
    return AUDIO_KEY.format(ssrc=ssrc)


def file_piece(piece: str) -> str:
    """Return the key of a piece of an audio file."""
    return FILE_PIECE_KEY.format(piece=piece)


def file_piece_lease(piece: str) -> str:
    """Return the key that says which ASR host has a piece."""
    return FILE_PIECE_LEASE_KEY.format(piece=piece)


def hosts(tier: Tier) -> str:
    """Return the key of the set of a tier's hosts."""
    return HOSTS_KEY.format(tier=tier)


def host(tier: Tier, host_id: str) -> str:
    """Return the key of a host's record."""
    return HOST_KEY.format(tier=tier, host=host_id)


def host_sessions(host_id: str) -> str:
    """Return the key of the set of sessions that an ASR host transcribes."""
    return HOST_SESSIONS_KEY.format(tier=Tier.ASR, host=host_id)
