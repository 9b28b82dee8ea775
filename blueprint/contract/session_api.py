"""The session API as callers see it: its routes, and what requests and responses hold (JSON Schema draft 4).

API Gateway refuses a request that does not match; responses are documentation, since a proxy passes them unread.
"""

from typing import Any

from blueprint.contract.media import CODECS, DYNAMIC, MOST_PAYLOAD_BYTES, PACKET_MS, TELEPHONE_EVENT

HEALTH_PATH = "/healthz"
"""Both ports of the gateway answer 200 here while the task can take callers."""

HEALTH_COMMAND = "/usr/local/bin/healthcheck"
"""Program of the gateway image that exits 0 while ``HEALTH_PATH`` answers 200; the image needs no shell."""

TOKEN_HEADER = "X-Voice-Token"  # noqa: S105  the name of a header
"""Carries the session token to the session API; ``Authorization`` belongs to the caller's own credentials."""
ROUTING_HEADER = "x-session-id"
"""Of requests to the router of a cluster: those with the same value go to the same replica."""

CALLER_HEADER = "X-Voice-Caller"
"""Who opens a session, as API Gateway tells it: it overwrites what a caller sends. Unread where callers bring a JWT."""

SESSIONS_PATH = "/v1/sessions"
SESSION_PATH = "/v1/sessions/{id}"
EVENTS_PATH = "/v1/sessions/{id}/events"
AUDIO_PATH = "/v1/sessions/{id}/audio"
"""Of the media port: a WebSocket."""

REALTIME_PATH = "/v1/realtime"
"""Of the media port: a WebSocket for clients of OpenAI's realtime transcription."""
LISTEN_PATH = "/v1/listen"
"""Of the media port: a WebSocket for clients of Deepgram's."""
PRESENCE_PATH = "/v1/presence"
"""Of the media port: a WebSocket that holds a session whose audio goes elsewhere, as an agent's may."""
TRANSCRIPTIONS_PATH = "/v1/audio/transcriptions"
"""Of the media port: files, for clients of OpenAI's."""
MODELS_PATH = "/v1/models"
"""Of the media port: what such clients may name."""

LAST_EVENT_ID_HEADER = "Last-Event-ID"
"""Where a caller's event stream goes on after a break (HTML Standard, section 9.2, server-sent events)."""

REQUEST_HEADERS = (
    *("Content-Type", TOKEN_HEADER, LAST_EVENT_ID_HEADER),
    *("Authorization", "X-Api-Key", "X-Amz-Date", "X-Amz-Security-Token"),
)
"""Headers that a page of an allowed origin may send: those of the API, and those of each kind of authorizer."""

EXPOSED_HEADERS = ("Retry-After",)
"""Headers of an answer that such a page may read."""

HEARTBEATS_PER_IDLE_TIMEOUT = 3
"""Comments that an event stream sends in the longest silence that is allowed: two may be lost."""

SRTP_SUITES = {"AES_CM_128_HMAC_SHA1_80": 30, "AEAD_AES_128_GCM": 28}
"""Bytes of master key and salt (RFC 4568, section 6.2; RFC 7714, section 14.2), first of the suite that all have."""
SRTP_KEY_BASE64_CHARACTERS = 40
"""Of either, with its padding."""

END_OF_TURN_MS = 500
"""Silence behind a finished sentence that ends a turn, unless a session or the deployment file says otherwise."""
MOST_END_OF_TURN_MS = 5000

Schema = dict[str, Any]

MEDIA: dict[str, Schema] = {
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
        "minimum": PACKET_MS.start,
        "maximum": PACKET_MS.stop - 1,
        "description": f"20 unless another is named; a payload has at most {MOST_PAYLOAD_BYTES} bytes.",
    },
    "payload_type": {
        "type": "integer",
        "minimum": 0,
        "maximum": DYNAMIC.stop - 1,
        "description": "Of packets with audio: the codec's own (PCMU 0, PCMA 8), or any from "
        f"{DYNAMIC.start} to {DYNAMIC.stop - 1} but {TELEPHONE_EVENT}.",
    },
}
"""What a session's packets hold."""

SESSION_REQUEST: Schema = {
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
            "enum": [*SRTP_SUITES],
            "description": f"Encrypts packets of `srtp`; `{next(iter(SRTP_SUITES))}` unless another is named.",
        },
        "end_of_turn_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": MOST_END_OF_TURN_MS,
            "description": "Silence that ends a turn where the text sounds finished; where it does not, twice as much. "
            "0: every pause does. The deployment file says how much without it.",
        },
        "media": {
            "type": "object",
            "additionalProperties": False,
            "properties": MEDIA,
            "description": "What packets are to hold; of `srtp` only.",
        },
    },
}

SESSION: Schema = {
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
                    "required": ["host", "port", "ssrc", "suite", "key", *MEDIA, "sdp"],
                    "properties": {
                        "host": {"type": "string"},
                        "port": {"type": "integer"},
                        "ssrc": {"type": "integer", "description": "Synchronization source that packets must carry."},
                        "suite": {"type": "string", "enum": [*SRTP_SUITES]},
                        "key": {
                            "type": "string",
                            "minLength": SRTP_KEY_BASE64_CHARACTERS,
                            "maxLength": SRTP_KEY_BASE64_CHARACTERS,
                            "description": "Master key and salt of this session alone, in base64.",
                        },
                        **MEDIA,
                        "sdp": {"type": "string", "description": "All of that as the stream's sender describes it."},
                    },
                },
            },
        },
    },
}

ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "detail": {"type": "string"},
        "elsewhere": {
            "type": "array",
            "items": {"type": "string", "format": "uri"},
            "description": "Session APIs of other regions: where none here has room, ask there with the same request.",
        },
    },
}

OPENAI_ERROR: Schema = {
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
"""What OpenAI's clients read."""
