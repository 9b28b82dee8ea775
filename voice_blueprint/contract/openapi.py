"""The session API as one OpenAPI document, which the gateway serves at ``/openapi.json``."""

from dataclasses import dataclass
from typing import Any, Literal

from voice_blueprint.contract import session_api
from voice_blueprint.contract.session_api import LAST_EVENT_ID_HEADER, TOKEN_HEADER

OPENAPI_PATH = "/openapi.json"
"""Path on both ports, available without credentials."""

OPENAPI_VERSION = "3.1.0"


@dataclass(frozen=True)
class Route:
    """A route in the API.

    Attributes:
        credentials: Required credentials: those of the caller, a session token, or either as an API key.
        responses: Meaning of each status, and the schema of its body.
        query: Query parameters: name and meaning.
        form: Fields of a form; the first is a file.
    """

    method: Literal["GET", "POST", "DELETE", "WebSocket"]
    path: str
    summary: str
    credentials: Literal["caller", "session", "key"] | None
    responses: tuple[tuple[int, str, str | None], ...]
    request: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    form: tuple[tuple[str, str], ...] = ()


_SWITCHING_PROTOCOLS_RESPONSE = (101, "the socket is open", None)
_INVALID_KEY_RESPONSE = (401, "the key opens nothing", "Error")
_NO_SLOT_RESPONSE = (503, "no host has a free slot; retry after `Retry-After`", "Error")
_UNKNOWN_SESSION_RESPONSE = (404, "there is no such session", "Error")

ROUTES = (
    Route(
        "POST", session_api.SESSIONS_PATH, "opens a session", "caller",
        (
            (201, "it is open", "Session"), (307, "another cell opens it: send the same there", None),
            (400, "what is wrong in the request", "Error"), _NO_SLOT_RESPONSE,
        ),
        request="SessionRequest",
        query=((session_api.FULL_CELLS_PARAMETER, "cells that have no room, of a redirected request"),),
    ),
    Route(
        "DELETE",
        session_api.SESSION_PATH,
        "closes it",
        "session",
        ((204, "it is closed", None), _UNKNOWN_SESSION_RESPONSE),
    ),
    Route(
        "GET", session_api.EVENTS_PATH, "its transcript, as server-sent events", "session",
        ((200, "the events", None), _UNKNOWN_SESSION_RESPONSE),
    ),
    Route(
        "GET", session_api.TRANSCRIPT_PATH, "its archived transcript, while it is kept", "caller",
        ((200, "JSON lines, or WebVTT", None), _UNKNOWN_SESSION_RESPONSE), query=(("format", "jsonl or vtt"),),
    ),
    Route(
        "DELETE", session_api.TRANSCRIPT_PATH, "deletes it", "caller",
        ((204, "it is deleted", None), _UNKNOWN_SESSION_RESPONSE),
    ),
    Route(
        "WebSocket", session_api.AUDIO_PATH, "its audio; of the media port, as are the next", "session",
        (_SWITCHING_PROTOCOLS_RESPONSE, _UNKNOWN_SESSION_RESPONSE, _NO_SLOT_RESPONSE),
    ),
    Route(
        "WebSocket", session_api.REALTIME_PATH, "audio and transcripts for OpenAI's clients", "key",
        (_SWITCHING_PROTOCOLS_RESPONSE, _INVALID_KEY_RESPONSE, _NO_SLOT_RESPONSE),
        query=(("intent", "transcription"), ("model", "any name")),
    ),
    Route(
        "POST", session_api.CLIENT_SECRETS_PATH, "a key for one call, for a page of OpenAI's clients", "key",
        (
            (200, "the key, and the session that it opens", None), (400, "what is wrong in the request", "OpenAiError"),
            (401, "the key opens nothing", "OpenAiError"), (503, "no host has a free slot", "OpenAiError"),
        ),
    ),
    Route(
        "WebSocket", session_api.LISTEN_PATH, "the same for Deepgram's", "key",
        (_SWITCHING_PROTOCOLS_RESPONSE, _INVALID_KEY_RESPONSE, _NO_SLOT_RESPONSE),
        query=(
            ("encoding", "linear16, mulaw, alaw or opus; a container needs none"),
            ("sample_rate", "8000 to 48000"), ("channels", "1 or 2, which are mixed"), ("language", "BCP 47"),
            ("interim_results", "true or false"), ("vad_events", "true or false"),
            ("utterance_end_ms", "milliseconds"), ("keyterm", "a word that is likely; several times"),
            ("punctuate", "true or false"), ("redact", "pci, email_address or pii"),
        ),
    ),
    Route(
        "WebSocket", session_api.PRESENCE_PATH, "a session without audio of its own, for as long as the socket is open",
        "key",
        (
            _SWITCHING_PROTOCOLS_RESPONSE,
            _INVALID_KEY_RESPONSE,
            (429, "the caller has as many sessions as it may have", "Error"),
        ),
    ),
    Route(
        "POST", session_api.TRANSCRIPTIONS_PATH, "what a file of up to an hour says, for OpenAI's clients", "key",
        (
            (200, "the transcript", None), (400, "what is wrong in the form or the file", "OpenAiError"),
            (401, "the key opens nothing", "OpenAiError"), (413, "the file is too large", "OpenAiError"),
            (429, "live calls need all there is; `Retry-After` says when to try again", "OpenAiError"),
        ),
        form=(
            ("file", "wav, mp3, flac, ogg, m4a, mp4 or webm"), ("model", "any name"), ("language", "BCP 47"),
            ("response_format", "json, verbose_json, text, srt or vtt"), ("stream", "true or false"),
            ("timestamp_granularities[]", "word or segment, of verbose_json"),
        ),
    ),
    Route(
        "POST", session_api.LISTEN_PATH, "what a file says, for Deepgram's clients", "key",
        (
            (200, "the transcript", None), (400, "what is wrong in the address or the file", None),
            (401, "the key opens nothing", None), (413, "the file is too large", None),
            (429, "live calls need all there is; `Retry-After` says when to try again", None),
        ),
        query=(
            ("language", "BCP 47"), ("keyterm", "a word that is likely; several times"),
            ("multichannel", "true or false"), ("utterances", "true or false"), ("punctuate", "true or false"),
            ("redact", "pci, email_address or pii"),
        ),
    ),
    Route(
        "GET", session_api.MODELS_PATH, "names that such clients may send", "key",
        ((200, "the names", None), (401, "the key opens nothing", "OpenAiError")),
    ),
    Route(
        "GET", session_api.MODEL_PATH, "one of them", "key",
        ((200, "it is known", None), (401, "the key opens nothing", "OpenAiError"), (404, "it is not", "OpenAiError")),
    ),
    Route(
        "GET", session_api.HEALTH_PATH, "200 while the task can take callers", None,
        ((200, "it can", None), (503, "it cannot", None)),
    ),
    Route(
        "GET", session_api.LIVENESS_PATH,
        "200 unless the process must be replaced, also while it drains or waits for its store", None,
        ((200, "it works", None), (503, "its store rejects it, or has been away for ten minutes", None)),
    ),
    Route("GET", OPENAPI_PATH, "this list as an OpenAPI document", None, ((200, "the document", None),)),
)  # fmt: skip

_SECURITY_BY_CREDENTIALS: dict[str, list[dict[str, list[str]]]] = {
    "caller": [{"caller": []}],
    "session": [{"session": []}],
    "key": [{"caller": []}],
}


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document for the session API.

    OpenAPI can only describe the initial GET request of a WebSocket.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        method = "get" if route.method == "WebSocket" else route.method.lower()
        paths.setdefault(route.path, {})[method] = _build_operation(route)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Sessions of live speech", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {
                "SessionRequest": session_api.SESSION_REQUEST_SCHEMA,
                "Session": session_api.SESSION_SCHEMA,
                "Error": session_api.ERROR_SCHEMA,
                "OpenAiError": session_api.OPENAI_ERROR_SCHEMA,
            },
            "securitySchemes": {
                "caller": {
                    "type": "http", "scheme": "bearer",
                    "description": "A caller's own key: what it is says `edge.authorizer` of the deployment file.",
                },
                "session": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
            },
        },
    }  # fmt: skip


def _build_operation(route: Route) -> dict[str, Any]:
    parameters = [_build_parameter(name, "query", meaning) for name, meaning in route.query]
    for name, meaning in (("id", "the session"), ("model", "the model")):
        if f"{{{name}}}" in route.path:
            parameters.append(_build_parameter(name, "path", meaning) | {"required": True})
    if route.path == session_api.EVENTS_PATH:
        parameters.append(_build_parameter(LAST_EVENT_ID_HEADER, "header", "goes on behind that event"))
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": parameters,
        "security": _SECURITY_BY_CREDENTIALS.get(route.credentials or "", []),
        "responses": {
            str(status): {"description": meaning, **(_build_json_body(schema) if schema else {})}
            for status, meaning, schema in route.responses
        },
    }
    body = _build_json_body(route.request) if route.request else _build_form_body(route.form)
    return operation | ({"requestBody": {"required": True, **body}} if body else {})


def _build_form_body(fields: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    if not fields:
        return {}
    properties: dict[str, Any] = {name: {"type": "string", "description": meaning} for name, meaning in fields}
    schema = {"type": "object", "required": [fields[0][0]], "properties": properties}
    properties[fields[0][0]] |= {"format": "binary"}
    return {"content": {"multipart/form-data": {"schema": schema}}}


def _build_parameter(name: str, location: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "in": location, "description": meaning, "schema": {"type": "string"}}


def _build_json_body(schema: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}
