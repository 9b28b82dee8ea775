"""Refusals of requests. Each one describes the problem and the remedy."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response


class Refusal(HTTPException):
    """A refused request.

    Attributes:
        error: Stable identifier in two or three words.
        elsewhere: Session APIs of other regions, which may have capacity.
    """

    def __init__(
        self,
        status: int,
        error: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        elsewhere: Sequence[str] = (),
    ) -> None:
        super().__init__(status, detail, headers)
        self.error = error
        self.elsewhere = elsewhere

    def to_response(self) -> JSONResponse:
        """Return the HTTP response for the caller."""
        body: dict[str, object] = {"error": self.error, "detail": self.detail}
        if self.elsewhere:
            body["elsewhere"] = list(self.elsewhere)
        return JSONResponse(body, status_code=self.status_code, headers=self.headers)


def build_retry_after_header(seconds: int) -> dict[str, str]:
    """Return the header that specifies when a client may try again."""
    return {"Retry-After": str(seconds)}


def build_no_capacity_refusal(detail: str, elsewhere: Sequence[str] = ()) -> Refusal:
    """Return the refusal for a session if all hosts are full, draining or unavailable."""
    if elsewhere:
        detail += f", or at {' or '.join(elsewhere)}"
    return Refusal(503, "no capacity", detail, build_retry_after_header(5), elsewhere=elsewhere)


def build_draining_refusal() -> Refusal:
    """Return the refusal for new work while this process is stopping."""
    return Refusal(
        503, "draining", "this gateway is stopping; try again, and another answers", build_retry_after_header(1)
    )


def build_busy_refusal() -> Refusal:
    """Return the refusal for a connection if this process has the maximum number of connections."""
    return Refusal(
        503, "busy", "this gateway has no connection left; try again, and another answers", build_retry_after_header(1)
    )


def build_store_unavailable_refusal() -> Refusal:
    """Return the refusal for a request while the state store does not respond."""
    return Refusal(503, "state store away", "the state store does not answer; try again", build_retry_after_header(2))


def build_unknown_session_refusal() -> Refusal:
    """Return the refusal if a request is for a session that does not exist, or no longer exists."""
    return Refusal(404, "unknown session", "there is no such session; it may have ended some minutes ago")


async def handle_http_exception(_: HTTPConnection, error: Exception) -> JSONResponse:
    """Return the response to a refusal or to one of Starlette's own errors. Both have the same format."""
    if isinstance(error, Refusal):
        return error.to_response()
    if not isinstance(error, HTTPException):  # pragma: no cover  the handler is only registered for HTTPException
        raise error
    errors = {404: "unknown path", 405: "unknown method"}
    return Refusal(
        error.status_code, errors.get(error.status_code, "refused"), error.detail, error.headers
    ).to_response()


async def handle_client_disconnect(_: HTTPConnection, __: Exception) -> Response:
    """Return a response for a client that disconnected before its request was complete. The client never reads it."""
    return Response(status_code=400)


async def handle_store_error(_: HTTPConnection, __: Exception) -> JSONResponse:
    """Return the response if the state store is unavailable for longer than the timeout of the store's client."""
    return build_store_unavailable_refusal().to_response()


async def handle_archive_error(_: HTTPConnection, __: Exception) -> JSONResponse:
    """Return the response to a request while the archive is unavailable."""
    return Refusal(
        503, "archive unavailable", "the archive does not answer; try again", build_retry_after_header(5)
    ).to_response()


def to_openai_response(error: HTTPException) -> JSONResponse:
    """Return a refusal in the format of OpenAI's API."""
    return JSONResponse({"error": to_openai_error(error)}, status_code=error.status_code, headers=error.headers)


def to_openai_error(error: HTTPException) -> dict[str, str | None]:
    """Return the OpenAI API's error object for a refusal.

    If a field of the request is invalid, the message starts with the field's name.
    """
    kinds = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
    field, colon, _ = error.detail.partition(": ")
    return {
        "message": error.detail,
        "type": kinds.get(error.status_code, "invalid_request_error"),
        "param": field if colon and error.status_code == HTTPStatus.BAD_REQUEST else None,
        "code": error.error.replace(" ", "_") if isinstance(error, Refusal) else None,
    }
