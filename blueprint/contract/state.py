"""The state store: keys, what is in them, and who may touch which."""

from dataclasses import dataclass
from enum import StrEnum

from blueprint.contract.network import Tier


@dataclass(frozen=True)
class StateAccess:
    """What one tier's user may do in the state store, as a Valkey ACL string."""

    tier: Tier
    acl: str


_SAFE = "-@all +@connection +@read +@write +@stream +@hash +@keyspace +@transaction -@dangerous"
STATE_USERS: tuple[StateAccess, ...] = (
    StateAccess(Tier.GATEWAY, f"on resetkeys ~session:* ~file:* %R~transcript:* %R~host:* resetchannels {_SAFE}"),
    StateAccess(Tier.VAD, f"on resetkeys ~session:* ~host:* resetchannels {_SAFE}"),
    StateAccess(Tier.AGENT, f"on resetkeys ~conversation:* ~host:agent* resetchannels {_SAFE}"),
    StateAccess(Tier.ASR, f"on resetkeys ~session:* ~file:* ~transcript:* ~audio:* ~host:* resetchannels {_SAFE}"),
)
"""Who may touch which of the keys below."""

SESSION_KEY = "session:{ssrc}"
"""Hash of one session, its SSRC in decimal; ``SessionField`` names what is in it."""

SESSION_LEASE_KEY = "session:{ssrc}:asr"
"""Id of the ASR host that transcribes the session, for as long as it renews it."""

CALLER_SESSIONS_KEY = "session:of:{caller}"
"""Sorted set of a caller's live sessions, scored by their expiry: what bounds the sessions of one key."""

PLACES_KEY = "session:places"
"""Sorted set of the sessions that hold a place at the ASR hosts, scored by when it is free again. The gateways see
to it that there are never more than slots."""

TRANSCRIPT_KEY = "transcript:{ssrc}"
"""Bounded stream of the session's transcript. An entry's id is where its utterance begins in the audio, in 20 ms
frames, and a number that counts up inside the utterance; the final's is ``TRANSCRIPT_FINAL_NUMBER``. So Valkey itself
refuses whatever a host says of an utterance that another host has finished."""

TRANSCRIPT_FINAL_NUMBER = 2**32

AUDIO_KEY = "audio:{ssrc}"
"""Bounded stream of the ``AudioChunk`` datagrams of utterances that have no final transcript yet: what another host
goes on from when the session's host dies."""

FILE_PIECES_KEY = "file:pieces"
"""List of pieces of audio files that wait for an ASR host with nothing else to do, by their names."""

FILE_PIECE_KEY = "file:{piece}"
"""Hash of one of them; ``PieceField`` names what is in it. It lives as long as its gateway says so."""

FILE_PIECE_LEASE_KEY = "file:{piece}:asr"
"""Id of the ASR host that transcribes the piece, for as long as it renews it."""

CONVERSATION_KEY = "conversation:{id}"
"""Bounded list of what was said in a conversation, as JSON: the caller as transcribed, the agent as it was heard."""

CONVERSATION_LEASE_KEY = "conversation:{id}:lease"
"""The connection that holds the conversation, for as long as its agent renews it."""

HOSTS_KEY = "host:{tier}"
"""Set of the ids of a tier's hosts (``vad``, ``asr``, ``agent``), so that readers need not scan the store."""

HOST_KEY = "host:{tier}:{host}"
"""Hash of one host, written anew with every heartbeat and left to expire; ``HostField`` names what is in it."""

HOST_SESSIONS_KEY = "host:{tier}:{host}:sessions"
"""Set of the sessions that an ASR host transcribes; outlives the host, for those who take over."""


class SessionField(StrEnum):
    """Fields of the hash of a session. Each is written by one tier; readers skip what they do not know."""

    STATE = "state"
    """Gateway: ``open``, or ``closed``; the VAD tier lets in nothing but ``open``."""
    KIND = "kind"
    """Gateway: ``gateway`` for plain RTP from inside the network, ``external`` for SRTP."""
    SRTP_KEY = "srtp_key"
    """Gateway: base64 of the master key and salt, whose length says the suite; with ``external`` only."""
    GATEWAY = "gateway"
    """Gateway: IPv4 address that plain RTP comes from, written when the session's socket opens; none is taken from
    elsewhere."""
    BEGINS_AT = "begins_at"
    """Gateway: RTP timestamp of the first frame that its first socket sends: what places in the audio count from,
    whichever VAD host hears it."""
    MEDIA = "media"
    """Gateway: what packets hold, such as ``96 L16/16000/1 20``: payload type, codec, rate, channels, milliseconds;
    absent: that."""
    EXPIRES_AT = "expires_at"
    """Gateway: seconds since 1970 (UTC) after which no audio is taken."""
    LAPSES_AT = "lapses_at"
    """Gateway: seconds since 1970 at which the session is over, unless its caller connects again before."""
    REFUSED_AT = "refused_at"
    """ASR: seconds since 1970 at which a full host did not take the session's audio; absent once a host does."""
    ID = "id"
    """Gateway: the session's name in the API."""
    CALLER = "caller"
    """Gateway: who opened it."""
    TOLD = "told"
    """Gateway: id of the last event that was told on an audio socket, and behind which its next socket goes on."""
    LANGUAGE = "language"
    """Gateway: spoken language (BCP 47); absent: found out from the audio."""
    END_OF_TURN_MS = "end_of_turn_ms"
    """Gateway: silence that ends a finished sentence, milliseconds; what sounds unfinished waits twice as long."""
    LAST_SEQUENCE = "last_sequence"
    """VAD: ``sequence`` of the last chunk that was shipped."""
    CHUNKS = "chunks"
    """VAD: chunks shipped."""
    SEEN_AT = "seen_at"
    """VAD: seconds since 1970 of the last packet."""
    TRANSCRIBED_CHUNKS = "transcribed_chunks"
    """ASR: number of the chunk behind that one: what comes next, unless some are lost; -1: its utterance broke off."""
    LOST_MS = "lost_ms"
    """ASR: audio between chunks that never came, milliseconds; absent: none."""
    TRANSCRIBED_TO = "transcribed_to"
    """ASR: ``sequence`` of the last chunk that a final transcript covers. Not less than ``last_sequence``: all that was
    said has been transcribed."""


class PieceField(StrEnum):
    """Fields of the hash of a piece of an audio file."""

    AUDIO = "audio"
    """Gateway: PCM16, little-endian, 16 kHz."""
    LANGUAGE = "language"
    """Gateway: spoken language; empty: found out from the audio."""
    HEARD = "heard"
    """ASR: what it says, as JSON."""


class HostField(StrEnum):
    """Fields of the hash of a host."""

    KIND = "kind"
    """``neuron`` or ``gpu`` in the ASR tier, where Neuron hosts are filled first; else ``vad`` or ``agent``."""
    ADDRESS = "address"
    """IPv4 address that other tiers send to."""
    ZONE = "zone"
    """Availability zone, of ASR hosts: the VAD tier takes one of its own first. Empty: it does not tell."""
    SLOTS = "slots"
    """Sessions that it takes in all; of ASR hosts, for the gateways' promises."""
    LANGUAGES = "languages"
    """Languages that it understands, with commas between them; of ASR hosts. Empty: it does not tell."""
    FREE_SLOTS = "free_slots"
    """Sessions that it can still take."""
    DRAINING = "draining"
    """``1``: takes no new session; ``0`` otherwise."""
    HEARTBEAT = "heartbeat"
    """A number that changes every second; a host whose number stands still for ``HOST_DEAD_AFTER_S`` is dead."""


HOST_HEARTBEAT_S = 1
HOST_DEAD_AFTER_S = 3
"""Two heartbeats may be late."""
HOST_EXPIRES_S = 10
"""A dead host's hash is gone after that."""
