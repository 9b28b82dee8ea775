"""Reasons for failed requests, normalized so that they can be counted."""

import json
import os
from contextlib import suppress
from http import HTTPStatus

import aiohttp

_MAX_MESSAGE_LENGTH = 160


class EndpointResponseError(Exception):
    """The endpoint responded with an error, or its response is invalid."""


REQUEST_ERRORS = (EndpointResponseError, aiohttp.ClientError, OSError, TimeoutError)
"""Exceptions that count as a failed request. Any other exception is a defect of the harness."""

INCOMPLETE_RESPONSE_MESSAGE = "the connection was closed before the response was complete"


def describe_failure(error: Exception, timeout_s: float) -> str:
    """Return the reason for a failed request on one line."""
    match error:
        case TimeoutError():
            return f"timeout: no complete response within {timeout_s:g} s"
        case aiohttp.WSServerHandshakeError():
            return format_error_response(error.status, b"")
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {os.strerror(error.errno) if error.errno else error.strerror}"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | ConnectionError():
            return INCOMPLETE_RESPONSE_MESSAGE
        case _:
            return _to_one_line(str(error) or type(error).__name__)


def format_error_response(status: int, body: bytes) -> str:
    """Return the status and the message of an error response, in OpenAI's format or any other."""
    text = body.decode(errors="replace")
    with suppress(ValueError):
        text = extract_error_message(json.loads(text))
    return _to_one_line(f"HTTP {status}: {text or HTTPStatus(status).phrase}")


def extract_error_message(answer: object) -> str:
    """Return the message of an error: ``{"error": {"message": ...}}``, ``{"error": ...}`` or ``{"detail": ...}``."""
    if isinstance(answer, dict):
        for key in ("error", "message", "detail"):
            if answer.get(key):
                return extract_error_message(answer[key])
    return str(answer)


def _to_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE_LENGTH else f"{line[: _MAX_MESSAGE_LENGTH - 1]}…"
