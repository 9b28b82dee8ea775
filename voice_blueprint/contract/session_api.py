"""The session API for callers: its routes, and the schemas of requests and responses (JSON Schema draft 4).

API Gateway rejects requests that do not match. Schemas of responses are documentation, since a proxy integration does
not validate them.
"""

from typing import Any

from voice_blueprint.contract.media import (
    CODECS,
    DYNAMIC_PAYLOAD_TYPES,
    MAX_PAYLOAD_BYTES,
    MAX_TELEPHONE_EVENTS,
    PACKET_MS_RANGE,
    TELEPHONE_EVENT,
)

HEALTH_PATH = "/healthz"
"""Health check path. Both ports of the gateway respond with 200 while the task can accept callers."""

LIVENESS_PATH = "/livez"
"""Liveness path. Both ports of the gateway, and an agent, respond with 200 while the process runs, even if it is
draining or its store is unavailable. A gateway responds with 503 if it must be replaced to reach its store."""

HEALTH_COMMAND = "/usr/local/bin/healthcheck"
"""Program of the gateway image that exits with status 0 if ``LIVENESS_PATH`` responds with 200; it requires no
shell."""

TOKEN_HEADER = "X-Voice-Token"  # noqa: S105  the name of a header
"""Header with the session token for the session API; ``Authorization`` contains the caller's own credentials."""
ROUTING_HEADER = "x-session-id"
"""Header on requests to a cluster's router: requests with the same value go to the same replica."""

CALLER_HEADER = "X-Voice-Caller"
"""Header with the caller who opens a session. API Gateway sets the header, overwriting any value in the request; the
gateway ignores it if callers present a JWT. If callers are distinguished, the gateway also sets it on a client's socket
to an agent."""

SESSIONS_PATH = "/v1/sessions"
SESSION_PATH = "/v1/sessions/{id}"
EVENTS_PATH = "/v1/sessions/{id}/events"
TRANSCRIPT_PATH = "/v1/sessions/{id}/transcript"
"""Path of a session's archived transcript, which only the caller who opened the session may use."""
ARCHIVE_PREFIX = "transcripts/"
"""Key prefix for archived transcripts, in the bucket or container."""
ARCHIVE_INDEX_PREFIX = "index/"
"""Prefix of the objects that list archived transcripts for query engines."""
USAGE_PREFIX = "usage/"
"""Prefix of the archive objects with a day's usage."""
ARCHIVE_CONTENT_TYPE = "application/x-ndjson"
AUDIO_PATH = "/v1/sessions/{id}/audio"
"""WebSocket on the media port."""

REALTIME_PATH = "/v1/realtime"
"""WebSocket on the media port for clients of OpenAI's realtime transcription."""
CLIENT_SECRETS_PATH = "/v1/realtime/client_secrets"
"""Path on the media port that issues short-lived keys for browser clients of OpenAI's API."""
LISTEN_PATH = "/v1/listen"
"""WebSocket on the media port for Deepgram's clients."""
PRESENCE_PATH = "/v1/presence"
"""WebSocket on the media port that keeps a session, such as an agent's, open while its audio is sent elsewhere."""
TRANSCRIPTIONS_PATH = "/v1/audio/transcriptions"
"""Path on the media port for file transcription by OpenAI clients."""
MAX_FILE_BYTES = 128 << 20
"""Maximum size of the body of a transcription request: an hour of PCM16 at 16 kHz, or of any compressed format such as
MP3 and AAC. Proxies in front of the gateway must allow the same size."""
MODELS_PATH = "/v1/models"
"""Path on the media port that lists the models for OpenAI's clients."""
MODEL_PATH = "/v1/models/{model}"

LAST_EVENT_ID_HEADER = "Last-Event-ID"
"""Header with the position at which a caller's event stream resumes after an interruption (HTML Standard, section 9.2,
server-sent events)."""

REQUEST_HEADERS = (
    *("Content-Type", TOKEN_HEADER, LAST_EVENT_ID_HEADER),
    *("Authorization", "X-Api-Key", "X-Amz-Date", "X-Amz-Security-Token"),
)
"""Headers that a page from an allowed origin may send: those of the API, and those of each kind of authorizer."""

EXPOSED_HEADERS = ("Retry-After",)
"""Response headers that a page from an allowed origin may read."""

HEARTBEATS_PER_IDLE_TIMEOUT = 3
"""Number of heartbeat comments per idle timeout of an event stream: two may be lost."""

SRTP_KEY_BYTES_BY_SUITE = {"AES_CM_128_HMAC_SHA1_80": 30, "AEAD_AES_128_GCM": 28}
"""Bytes of master key and salt by suite (RFC 4568, section 6.2; RFC 7714, section 14.2); the first suite is
mandatory."""
_DEFAULT_SRTP_SUITE = next(iter(SRTP_KEY_BYTES_BY_SUITE))
SRTP_KEY_BASE64_CHARACTERS = 40
"""Length of the encoded key of either suite, including padding."""

DEFAULT_END_OF_TURN_MS = 500
"""Silence that ends a turn after a complete sentence, unless a session or the deployment file sets another value."""
MAX_END_OF_TURN_MS = 5000
MAX_PROMPT_CHARACTERS = 1000
MAX_CALL_NAME_CHARACTERS = 128
FULL_CELLS_PARAMETER = "full"
"""Query parameter of a redirected request for a session. It lists the cells without capacity for the session."""
REDACTION_KINDS = ("card", "email")

JsonSchema = dict[str, Any]

MEDIA_SCHEMAS: dict[str, JsonSchema] = {
    "codec": {
        "type": "string",
        "enum": [codec.value for codec in CODECS],
        "description": "By its name in SDP; `L16` unless another is named.",
    },
    "rate": {
        "type": "integer",
        "description": "Samples a second, and ticks of the timestamps' clock. L16: 16000 unless it is one of "
        f"{', '.join(map(str, sorted(next(iter(CODECS.values())).rates)))}; G.711: 8000; Opus: 48000.",
    },
    "channels": {"type": "integer", "description": "L16: 1 unless it is 2, which are mixed; G.711: 1; Opus: 2."},
    "packet_ms": {
        "type": "integer",
        "minimum": PACKET_MS_RANGE.start,
        "maximum": PACKET_MS_RANGE.stop - 1,
        "description": f"20 unless another is named; a payload has at most {MAX_PAYLOAD_BYTES} bytes.",
    },
    "payload_type": {
        "type": "integer",
        "minimum": 0,
        "maximum": DYNAMIC_PAYLOAD_TYPES.stop - 1,
        "description": "Of packets with audio: the codec's own (PCMU 0, PCMA 8), or any from "
        f"{DYNAMIC_PAYLOAD_TYPES.start} to {DYNAMIC_PAYLOAD_TYPES.stop - 1} but those of `telephone_events`.",
    },
    "telephone_events": {
        "type": "array",
        "items": {"type": "integer", "minimum": DYNAMIC_PAYLOAD_TYPES.start, "maximum": DYNAMIC_PAYLOAD_TYPES.stop - 1},
        "minItems": 1,
        "maxItems": MAX_TELEPHONE_EVENTS,
        "description": "Payload types of DTMF digits (RFC 4733), one for each clock rate that was negotiated; "
        f"{TELEPHONE_EVENT} alone by default. Digits are skipped, and are not counted as lost audio.",
    },
}
"""Schema of a session's media description."""

SESSION_REQUEST_SCHEMA: JsonSchema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["transport"],
    "properties": {
        "transport": {
            "type": "string",
            "enum": ["websocket", "srtp"],
            "description": "How audio comes: WebSocket over TLS for browsers, SRTP over UDP for native callers.",
        },
        "language": {
            "type": "string",
            "pattern": "^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
            "maxLength": 35,
            "description": "Spoken language (BCP 47); found out from the audio where it is missing.",
        },
        "suite": {
            "type": "string",
            "enum": [*SRTP_KEY_BYTES_BY_SUITE],
            "description": f"Encrypts packets of `srtp`; `{_DEFAULT_SRTP_SUITE}` unless another is named.",
        },
        "end_of_turn_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_END_OF_TURN_MS,
            "description": "Silence that ends a turn where the text sounds finished; where it does not, twice as much. "
            "0: every pause does. The deployment file says how much without it.",
        },
        "prompt": {
            "type": "string",
            "maxLength": MAX_PROMPT_CHARACTERS,
            "description": "Words that are likely to be said, such as names of products and people. Whisper's engines "
            "read them before the audio; others pass them over.",
        },
        "redact": {
            "type": "array",
            "items": {"type": "string", "enum": [*REDACTION_KINDS]},
            "description": "What is taken out of transcripts by rules: numbers of payment cards, e-mail addresses.",
        },
        "media": {
            "type": "object",
            "additionalProperties": False,
            "properties": MEDIA_SCHEMAS,
            "description": "What packets are to hold; of `srtp` only.",
        },
        "archive": {
            "type": "boolean",
            "description": "Keep the transcript after the session; false unless set. The deployment needs an archive.",
        },
        "call": {
            "type": "string",
            "maxLength": MAX_CALL_NAME_CHARACTERS,
            "description": "Name of the call, such as its SIP Call-ID. Its hash selects the cell in a deployment with "
            "several; without it, that of the caller does.",
        },
    },
}

SESSION_SCHEMA: JsonSchema = {
    "type": "object",
    "required": ["id", "token", "expires_at", "media", "events"],
    "properties": {
        "id": {"type": "string", "description": "Names the session in the other routes."},
        "token": {"type": "string", "description": "Signed and short-lived; opens the session's audio and events."},
        "expires_at": {"type": "string", "format": "date-time", "description": "When the token stops to be taken."},
        "events": {
            "type": "string",
            "format": "uri-reference",
            "description": "Event stream, relative to the URL of this request; where there are several regions, at the "
            "region's own API. What is before `/events` closes the session.",
        },
        "media": {
            "type": "object",
            "description": "The one that the request asked for.",
            "properties": {
                "websocket": {"type": "string", "format": "uri", "description": "WebSocket over TLS, port 443."},
                "srtp": {
                    "type": "object",
                    "required": ["host", "port", "ssrc", "suite", "key", *MEDIA_SCHEMAS, "sdp"],
                    "properties": {
                        "host": {"type": "string"},
                        "port": {"type": "integer"},
                        "ssrc": {"type": "integer", "description": "Synchronization source that packets must carry."},
                        "suite": {"type": "string", "enum": [*SRTP_KEY_BYTES_BY_SUITE]},
                        "key": {
                            "type": "string",
                            "minLength": SRTP_KEY_BASE64_CHARACTERS,
                            "maxLength": SRTP_KEY_BASE64_CHARACTERS,
                            "description": "Master key and salt of this session alone, in base64.",
                        },
                        **MEDIA_SCHEMAS,
                        "sdp": {"type": "string", "description": "All of that as the stream's sender describes it."},
                    },
                },
            },
        },
    },
}

ERROR_SCHEMA: JsonSchema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "detail": {"type": "string"},
        "elsewhere": {
            "type": "array",
            "items": {"type": "string", "format": "uri"},
            "description": "Session APIs of other regions, for the same request if no host here has a free slot.",
        },
    },
}

OPENAI_ERROR_SCHEMA: JsonSchema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
"""Error schema in OpenAI's API."""
