"""The state store: keys, their values, and the permissions of each tier."""

from dataclasses import dataclass
from enum import StrEnum

from voice_blueprint.contract.network import Tier


@dataclass(frozen=True)
class StateStoreUser:
    """Permissions of a tier's user in the state store, as a Valkey ACL string."""

    tier: Tier
    acl: str


_SAFE_COMMANDS = (
    "-@all +@connection +@read +@write +@stream +@hash +@keyspace +@transaction -@dangerous -scan -randomkey"
)
"""Permitted commands. Commands that list keys are excluded: SCAN and RANDOMKEY are not in the dangerous category, and
ignore key patterns."""
_SESSION_RECORD_PERMISSIONS = "%R~session:[0-9]*"
"""Read access to session records. Keys of callers' sets and slots, which only gateways read, do not match."""
_KEY_PERMISSIONS_BY_TIER: dict[Tier, str] = {
    Tier.GATEWAY: "~session:* ~srtp:* %R~shipped:* ~transcribed:* ~file:* %R~transcript:* %R~host:* %R~usage:*",
    # VAD hosts remove the ids of expired records from the set of ASR hosts, but do not write these records.
    Tier.VAD: f"{_SESSION_RECORD_PERMISSIONS} %R~srtp:[0-9]* ~shipped:[0-9]* ~host:vad* ~host:asr %R~host:asr:*",
    Tier.AGENT: "~conversation:* ~usage:* ~host:agent*",
    Tier.ASR: f"{_SESSION_RECORD_PERMISSIONS} %R~shipped:[0-9]* ~transcribed:[0-9]* ~lease:[0-9]* ~held:* ~file:* "
    "~transcript:* ~audio:* ~host:asr*",
}
STATE_USERS: tuple[StateStoreUser, ...] = tuple(
    StateStoreUser(tier, f"on resetkeys {keys} resetchannels {_SAFE_COMMANDS}")
    for tier, keys in _KEY_PERMISSIONS_BY_TIER.items()
)
"""Permissions of each tier on the keys below. ``docs/security.md`` lists what a compromised host of each tier can do
with them, as measured by ``images/runtime/tests/test_blast_radius.py``."""

SESSION_KEY = "session:{ssrc}"
"""Hash for a session, by its SSRC in decimal. Only gateways write it; ``SessionField`` lists its fields."""

SRTP_KEYING_MATERIAL_KEY = "srtp:{ssrc}"
"""Base64 of the master key and salt of a session with ``external`` audio. The length determines the suite. The gateway
writes the value, VAD hosts read it, and no other tier has access."""

SENT_AUDIO_KEY = "shipped:{ssrc}"
"""Hash for a session's audio that the VAD tier has sent; ``SentAudioField`` lists its fields."""

TRANSCRIBED_AUDIO_KEY = "transcribed:{ssrc}"
"""Hash for a session's audio that the ASR tier has transcribed; ``TranscribedAudioField`` lists its fields."""

SESSION_LEASE_KEY = "lease:{ssrc}"
"""Id of the ASR host that transcribes the session. The host renews the key before it expires."""

CALLER_SESSIONS_KEY = "session:of:{caller}"
"""Sorted set of a caller's active sessions, scored by their expiry. The set limits the sessions per API key."""

CALLER_USAGE_KEY = "session:usage:{caller}:{day}"
"""Hash for a caller's usage on a UTC day: ``audio_s``, ``speech_s`` and ``characters``."""

DAILY_CALLERS_KEY = "session:used:{day}"
"""Set of the callers with usage on a day."""

DAILY_REPORT_KEY = "session:used:{day}:report"
"""Claim of the gateway that writes the day's usage to the archive; the claim remains after the usage is written."""

AGENT_USAGE_KEY = "usage:of:{caller}:{day}"
"""Hash of a caller's usage of the agents' engines on a day: ``prompt_tokens``, ``answer_tokens`` and
``spoken_characters``. Agents write it, gateways read it."""

AGENT_DAILY_CALLERS_KEY = "usage:on:{day}"
"""Set of the callers that used the agents' engines on a day."""

RESERVED_SLOTS_KEY = "session:places"
"""Sorted set of the sessions that occupy a slot of the ASR hosts, scored by the time at which the slot is released. The
gateways never admit more sessions than there are slots."""

TRANSCRIPT_KEY = "transcript:{ssrc}"
"""Bounded stream of the session's transcript. An entry's id consists of the start of its utterance in the audio, in 20
ms frames, and a sequence number within the utterance. The number of the final transcript is ``FINAL_SEQUENCE_NUMBER``.
Valkey therefore rejects entries for an utterance that another host has completed."""

FINAL_SEQUENCE_NUMBER = 2**32

FINALS_KEY = "transcript:{ssrc}:finals"
"""Stream of only the final transcripts of a session that is archived, with the same ids. The session's transcript
stream is too short for a meeting's partial transcripts."""

ARCHIVE_KEY = "session:archive"
"""Sorted set of the sessions to archive, scored by the end of each session in seconds since 1970."""

ARCHIVE_CLAIM_KEY = "session:archive:{ssrc}"
"""Claim of the gateway that archives the session. The claim expires after the maximum duration of the upload."""

ARCHIVE_INDEX_KEY = "session:archive:index"
"""List of index entries of archived transcripts, as JSON, until a gateway writes them to an object in the archive."""

ARCHIVE_INDEX_CLAIM_KEY = "session:archive:index:claim"
"""Claim of the gateway that writes the index entries. The claim expires when the next object is due."""

AUDIO_KEY = "audio:{ssrc}"
"""Bounded stream of the ``AudioChunk`` datagrams of utterances without a final transcript. If the session's host fails,
another host continues from these chunks."""

FILE_PIECES_KEY = "file:pieces"
"""List of the names of audio file pieces that wait for an idle ASR host."""

FILE_PIECE_KEY = "file:{piece}"
"""Hash for a piece of a file; ``FilePieceField`` lists its fields. Its gateway sets the expiry."""

FILE_PIECE_LEASE_KEY = "file:{piece}:asr"
"""Id of the ASR host that transcribes the piece. The host renews the key before it expires."""

CONVERSATION_KEY = "conversation:{id}"
"""Bounded list of the messages of a conversation, as JSON. The caller's messages are transcripts, and the agent's
contain only the spoken part."""

CONVERSATION_LEASE_KEY = "conversation:{id}:lease"
"""Id of the connection that owns the conversation. Its agent renews the key before it expires."""

HOSTS_KEY = "host:{tier}"
"""Set with the ids of a tier's hosts (``vad``, ``asr``, ``agent``), so that readers need not scan the store."""

HOST_KEY = "host:{tier}:{host}"
"""Hash of a host, which every heartbeat rewrites and which expires without heartbeats; ``HostField`` lists its
fields."""

HOST_SESSIONS_KEY = "held:{host}"
"""Set of the sessions that an ASR host transcribes. The set outlives the host, so that other hosts can take over its
sessions. VAD hosts may not read it, so they cannot discover sessions that send them no packets."""


REVISION_KEY_BY_TIER = {Tier.GATEWAY: "session:revision", Tier.AGENT: "conversation:revision"}
"""Task definition revision of the tier's newest ECS task. Tasks with another revision belong to an older
deployment."""


class SessionField(StrEnum):
    """Fields of a session's record, all written by the gateway; readers ignore unknown fields."""

    STATE = "state"
    """``open`` or ``closed``; the VAD tier only admits ``open`` sessions."""
    KIND = "kind"
    """``gateway`` for plain RTP from inside the network, ``external`` for SRTP."""
    GATEWAY = "gateway"
    """IPv4 address from which plain RTP is accepted, written when the session's socket opens."""
    BEGINS_AT = "begins_at"
    """RTP timestamp of the first frame of the session's first socket. Positions in the audio are relative to this
    timestamp, regardless of the VAD host. For external sessions, the VAD tier writes ``SentAudioField.BEGINS_AT``
    instead."""
    MEDIA = "media"
    """Format of the session's packets, such as ``96 L16/16000/1 20`` (the default): payload type, codec, rate,
    channels, milliseconds. Payload types of telephone events follow, such as ``110,126``, if they differ from 101."""
    EXPIRES_AT = "expires_at"
    """Seconds since 1970 (UTC) after which audio is rejected."""
    RECONNECT_DEADLINE = "lapses_at"
    """Seconds since 1970 at which the session ends, unless its caller reconnects before then."""
    ID = "id"
    """Id of the session in the API."""
    CALLER = "caller"
    """Caller who opened the session."""
    ARCHIVED_FROM = "archived_from"
    """Seconds since 1970 at which the session was opened, if its transcript is archived; otherwise absent."""
    LAST_SENT_EVENT = "told"
    """Id of the last event that was sent on an audio socket, after which the next socket continues."""
    LANGUAGE = "language"
    """Spoken language (BCP 47); if absent, it is detected from the audio."""
    END_OF_TURN_MS = "end_of_turn_ms"
    """Silence that ends a turn after a complete sentence, milliseconds; twice as long after an incomplete one."""
    PROMPT = "prompt"
    """Words that are likely to occur, for the engine's prompt, if any."""
    REDACT = "redact"
    """Comma-separated kinds of data that are redacted from transcripts, if any."""
    AUDIO_S = "audio_s"
    """Duration of the audio that the session's sockets have received, seconds, if any."""
    SETTLED = "settled"
    """Random id of the session's first usage report; absent before it."""
    REALTIME = "realtime"
    """Settings with which a client of OpenAI's API connects, as JSON; if absent, the client sends its settings."""


class SentAudioField(StrEnum):
    """Fields in the hash for a session's sent audio, all written by the VAD tier."""

    LAST_SEQUENCE = "last_sequence"
    """``sequence`` of the last chunk that was sent."""
    CHUNKS = "chunks"
    """Number of chunks that were sent."""
    SEEN_AT = "seen_at"
    """Time of the last packet, in seconds since 1970."""
    BEGINS_AT = "begins_at"
    """RTP timestamp of the first frame of an external session. Positions in the session's audio are relative to this
    timestamp, regardless of the VAD host. The field is absent before the first packet, and for a gateway's session."""
    WRONG_PAYLOAD = "wrong_payload"
    """Authenticated packets that do not match ``media``, if any."""


class TranscribedAudioField(StrEnum):
    """Fields in the hash for a session's transcribed audio, written by the ASR tier."""

    REFUSED_AT = "refused_at"
    """Seconds since 1970 at which a full host rejected the session's audio; absent after a host accepts the audio. The
    gateway removes the field when the caller reconnects."""
    TRANSCRIBED_TO = "transcribed_to"
    """``sequence`` of the last chunk that a final transcript covers. If it is not less than ``last_sequence``, all
    speech has been transcribed."""
    TRANSCRIBED_CHUNKS = "transcribed_chunks"
    """Number of the chunk after ``TRANSCRIBED_TO`` if no chunks are lost; -1 if its utterance was aborted."""
    CHARACTERS = "characters"
    """Number of characters in the session's final transcripts, if any."""
    LOST_MS = "lost_ms"
    """Duration of chunks that never arrived, milliseconds, if any."""


class FilePieceField(StrEnum):
    """Fields in the hash for a piece of an audio file."""

    AUDIO = "audio"
    """Written by the gateway: PCM16, little-endian, 16 kHz."""
    PROMPT = "prompt"
    """Written by the gateway: words that are likely to occur, or empty."""
    LANGUAGE = "language"
    """Written by the gateway: spoken language; if empty, it is detected from the audio."""
    TRANSCRIPT = "heard"
    """Written by the ASR tier: the transcript, as JSON."""


class HostField(StrEnum):
    """Fields in the hash for a host."""

    KIND = "kind"
    """In the ASR tier ``neuron`` or ``gpu``, where Neuron hosts are filled first; otherwise ``vad`` or ``agent``."""
    ADDRESS = "address"
    """IPv4 address to which other tiers send."""
    ZONE = "zone"
    """Availability zone of an ASR host; the VAD tier prefers hosts in its own zone. Empty if unknown."""
    SLOTS = "slots"
    """Maximum number of sessions. For ASR hosts, gateways limit the admitted sessions to this number."""
    LANGUAGES = "languages"
    """Comma-separated languages that an ASR host supports. Empty if unknown."""
    FREE_SLOTS = "free_slots"
    """Number of further sessions that the host accepts."""
    DRAINING = "draining"
    """``1`` if the host accepts no new sessions; otherwise ``0``."""
    HEARTBEAT = "heartbeat"
    """Changes every second. If it does not change for ``HOST_HEARTBEAT_TIMEOUT_S``, the host is treated as dead."""


HOST_HEARTBEAT_INTERVAL_S = 1
HOST_HEARTBEAT_TIMEOUT_S = 3
"""Time without a new heartbeat after which a host counts as dead. Two heartbeats may be late."""
HOST_TTL_S = 10
"""Time after which the hash of a dead host expires."""
