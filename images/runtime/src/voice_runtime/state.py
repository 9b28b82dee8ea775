"""Keys, lifetimes and size limits of all data in Valkey.

Every key expires, and every stream and set is bounded, so a caller or host that disappears leaves nothing behind.
"""

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import (
    AGENT_DAILY_CALLERS_KEY,
    AGENT_USAGE_KEY,
    ARCHIVE_CLAIM_KEY,
    ARCHIVE_INDEX_CLAIM_KEY,
    ARCHIVE_INDEX_KEY,
    ARCHIVE_KEY,
    AUDIO_KEY,
    CALLER_SESSIONS_KEY,
    CALLER_USAGE_KEY,
    DAILY_CALLERS_KEY,
    DAILY_REPORT_KEY,
    FILE_PIECE_KEY,
    FILE_PIECE_LEASE_KEY,
    FILE_PIECES_KEY,
    FINALS_KEY,
    HOST_KEY,
    HOST_SESSIONS_KEY,
    HOSTS_KEY,
    RESERVED_SLOTS_KEY,
    REVISION_KEY_BY_TIER,
    SENT_AUDIO_KEY,
    SESSION_KEY,
    SESSION_LEASE_KEY,
    SRTP_KEYING_MATERIAL_KEY,
    TRANSCRIBED_AUDIO_KEY,
    TRANSCRIPT_KEY,
)

SLOT_RESERVATIONS_KEY = RESERVED_SLOTS_KEY
SESSIONS_TO_ARCHIVE_KEY = ARCHIVE_KEY
INDEX_ENTRIES_KEY = ARCHIVE_INDEX_KEY
INDEX_CLAIM_KEY = ARCHIVE_INDEX_CLAIM_KEY
QUEUED_FILE_PIECES_KEY = FILE_PIECES_KEY
TIER_REVISION_KEYS = REVISION_KEY_BY_TIER
REVISION_RETENTION_S = 86_400
"""Lifetime of the newest revision, which its tasks renew. After a day without such tasks, the next task to start sets
the revision."""
SESSION_RETENTION_S = 600
"""Time for which the record and transcript of a session are kept after the session expires, for late readers."""

USAGE_RETENTION_S = 3 * 86_400
"""Time for which a caller's usage for a day is kept: the day and two more."""

MAX_TRANSCRIPT_EVENTS = 4096
"""Maximum number of events of a transcript: about twenty minutes of partial transcripts at three per second. There are
far fewer final transcripts."""

MAX_FINALS = 20_000
"""Maximum number of final transcripts of an archived session: one every four seconds for a day, the maximum duration in
a deployment file."""

ARCHIVE_INDEX_RETENTION_S = 86_400
"""Time for which index entries wait for an unavailable archive."""

MAX_AUDIO_CHUNKS = 4096
"""Maximum number of chunks of a session without a final transcript, 3.2 kB and 100 ms each. The longest utterance of
engines with streaming input lasts 300 s, which is 3,000 chunks. The remaining chunks are 110 s of the next utterance,
until the first utterance has its final transcript."""

AUDIO_RETENTION_S = 120
"""Maximum time for which unfinished audio waits for another host."""

SESSION_LEASE_TTL_S = 5
"""Time without renewal after which another host may take over a session."""

HOST_SESSIONS_RETENTION_S = 300
"""Time for which the sessions of a failed host are stored."""


MAX_FILE_PIECES = 64
"""Maximum number of pieces across all files, 0.4 MB each: less than the unfinished audio of two sessions."""

FILE_PIECE_RETENTION_S = 20
"""Time without polling by its gateway after which a piece expires, since the gateway has failed."""

FILE_PIECE_LEASE_TTL_S = 5
"""Time without renewal after which another host transcribes a piece again."""


def build_session_key(ssrc: int) -> str:
    """Return the key for a session's record."""
    return SESSION_KEY.format(ssrc=ssrc)


def build_srtp_entry_key(ssrc: int) -> str:
    """Return the key for a session's SRTP key."""
    return SRTP_KEYING_MATERIAL_KEY.format(ssrc=ssrc)


def build_sent_audio_key(ssrc: int) -> str:
    """Return the key for a session's progress in the VAD tier."""
    return SENT_AUDIO_KEY.format(ssrc=ssrc)


def build_transcription_progress_key(ssrc: int) -> str:
    """Return the key for a session's progress in the ASR tier."""
    return TRANSCRIBED_AUDIO_KEY.format(ssrc=ssrc)


def build_host_lease_key(ssrc: int) -> str:
    """Return the key for the lease that an ASR host holds on a session."""
    return SESSION_LEASE_KEY.format(ssrc=ssrc)


def build_caller_sessions_key(caller: str) -> str:
    """Return the key for a caller's active sessions."""
    return CALLER_SESSIONS_KEY.format(caller=caller)


def build_socket_lease_key(ssrc: int) -> str:
    """Return the key for the lease that an audio socket holds on a session."""
    return f"{build_session_key(ssrc)}:socket"


def build_caller_creations_key(caller: str) -> str:
    """Return the key that counts the sessions opened by a caller in one second."""
    return f"session:rate:{caller}"


def build_caller_usage_key(caller: str, day: str) -> str:
    """Return the key for a caller's usage on a day, such as ``2026-11-26``."""
    return CALLER_USAGE_KEY.format(caller=caller, day=day)


def build_day_callers_key(day: str) -> str:
    """Return the key for the callers with usage on a day."""
    return DAILY_CALLERS_KEY.format(day=day)


def build_usage_report_claim_key(day: str) -> str:
    """Return the key for a gateway's claim to report a day's usage."""
    return DAILY_REPORT_KEY.format(day=day)


def build_agent_usage_key(caller: str, day: str) -> str:
    """Return the key for a caller's daily usage of the agents' engines."""
    return AGENT_USAGE_KEY.format(caller=caller, day=day)


def build_agent_day_callers_key(day: str) -> str:
    """Return the key for the callers that used the agents' engines on a day."""
    return AGENT_DAILY_CALLERS_KEY.format(day=day)


def build_transcript_key(ssrc: int) -> str:
    """Return the key for a session's transcript."""
    return TRANSCRIPT_KEY.format(ssrc=ssrc)


def build_finals_key(ssrc: int) -> str:
    """Return the key for an archived session's final transcripts."""
    return FINALS_KEY.format(ssrc=ssrc)


def build_archive_claim_key(ssrc: int) -> str:
    """Return the key for a gateway's claim to archive a session."""
    return ARCHIVE_CLAIM_KEY.format(ssrc=ssrc)


def build_audio_key(ssrc: int) -> str:
    """Return the key for a session's unfinished audio."""
    return AUDIO_KEY.format(ssrc=ssrc)


def build_file_piece_key(piece: str) -> str:
    """Return the key for a piece of an audio file."""
    return FILE_PIECE_KEY.format(piece=piece)


def build_file_piece_lease_key(piece: str) -> str:
    """Return the key for the lease that an ASR host holds on a piece."""
    return FILE_PIECE_LEASE_KEY.format(piece=piece)


def build_hosts_key(tier: Tier) -> str:
    """Return the key for the set of hosts in a tier."""
    return HOSTS_KEY.format(tier=tier)


def build_host_key(tier: Tier, host_id: str) -> str:
    """Return the key for a host's record."""
    return HOST_KEY.format(tier=tier, host=host_id)


def build_host_sessions_key(host_id: str) -> str:
    """Return the key for the set of sessions that an ASR host transcribes."""
    return HOST_SESSIONS_KEY.format(host=host_id)
