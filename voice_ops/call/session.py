"""Opens, follows and closes sessions over HTTP, as callers do."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal, Self, get_args
from urllib.parse import urljoin

import httpx2
from pydantic import BaseModel, ValidationError

from voice_blueprint.contract.session_api import LAST_EVENT_ID_HEADER, SESSIONS_PATH, TOKEN_HEADER

SUBPROTOCOL = "voice.v1"
"""Subprotocol of the audio WebSocket. The token is sent as a second subprotocol."""

REQUEST_TIMEOUT_S = 30.0
"""Timeout of requests. Heartbeats prevent event streams from timing out."""
MAX_RECONNECTS = 10
"""Maximum number of consecutive interruptions of an event stream without an event in between."""
RECONNECT_PAUSE_S = 1.0
MAX_CELL_REDIRECTS = 10
"""Maximum number of cells to which a request is redirected."""
ACCESS_ERROR_STATUSES = {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}
WAF_BLOCK_DETAIL = "WAF_FILTERED"
"""Detail in API Gateway's 403 responses to requests that AWS WAF blocks, such as requests above the rate limit for an
address."""


class CallError(Exception):
    """The call failed or was interrupted."""


class AccessRejectedError(CallError):
    """The session API does not accept the caller's credentials, which may have expired."""


class SrtpParameters(BaseModel):
    """Destination and key of the encrypted packets."""

    host: str
    port: int
    ssrc: int
    suite: Literal["AES_CM_128_HMAC_SHA1_80"]
    key: str


class MediaEndpoint(BaseModel):
    """Endpoint of the requested transport."""

    websocket: str | None = None
    srtp: SrtpParameters | None = None


class SessionResponse(BaseModel):
    """Response to the request that opens a session."""

    id: str
    token: str
    media: MediaEndpoint
    events: str


EventKind = Literal["partial", "final", "speech_started", "speech_stopped", "gap"]
EVENT_KINDS = frozenset(get_args(EventKind))


class Word(BaseModel):
    """A word, and the time at which it ends in the audio."""

    text: str
    end_ms: int


class TranscriptEvent(BaseModel):
    """An event in a session's event stream.

    Attributes:
        kind: Kind of event; a partial transcript may still change. Events other than transcripts have no text.
        commit: Whether the event is the response to a ``commit``.
        start_ms: Start in the audio.
        committed: The part of the text that no longer changes.
        speech_final: Whether silence follows; otherwise, a long sentence continues.
        stages_ms: Duration of each stage of the engine.
    """

    kind: EventKind
    text: str = ""
    start_ms: int
    end_ms: int
    committed: str = ""
    words: list[Word] = []
    speech_final: bool = True
    stages_ms: dict[str, float] = {}
    commit: bool = False


class Session:
    """A session that the caller has opened."""

    def __init__(self, client: httpx2.AsyncClient, url: str, response: SessionResponse) -> None:
        self.media = response.media
        self._client = client
        self._events = urljoin(url, response.events)
        self._url = self._events.removesuffix("/events")
        self._token = response.token
        self._last_event_id = ""

    @classmethod
    async def open(cls, client: httpx2.AsyncClient, server: str, transport: Literal["websocket", "srtp"]) -> Self:
        """Open a session, following redirects to other cells.

        Args:
            server: Base URL of the API, including a stage if there is one.

        Raises:
            AccessRejectedError: The server does not accept the caller's credentials.
            CallError: The server is unreachable, or rejects the request.
        """
        url = server.rstrip("/") + SESSIONS_PATH
        for _ in range(MAX_CELL_REDIRECTS):
            try:
                response = await client.post(url, json={"transport": transport})
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise CallError(f"cannot reach {url}: {str(error) or type(error).__name__}") from None
            if response.status_code != httpx2.codes.TEMPORARY_REDIRECT:
                break
            # If the HTTP client followed the redirect, it would keep the signature for the first cell.
            url = urljoin(url, response.headers["Location"])
        if response.status_code in ACCESS_ERROR_STATUSES and _parse_error(response).get("detail") != WAF_BLOCK_DETAIL:
            raise AccessRejectedError(_describe_error(response, url))
        _raise_for_status(response, url)
        try:
            return cls(client, url, SessionResponse.model_validate_json(response.content))
        except ValidationError as error:
            raise CallError(f"{url} does not respond as the session API does: {error.errors()[0]['msg']}") from None

    @property
    def token(self) -> str:
        return self._token

    async def close(self) -> None:
        """Report the end of the audio. The session ends after the last transcript.

        Raises:
            CallError: The server is unreachable, or rejects the request.
        """
        try:
            response = await self._client.delete(self._url, headers={TOKEN_HEADER: self._token})
        except httpx2.HTTPError as error:
            raise CallError(f"the session could not be closed: {str(error) or type(error).__name__}") from None
        _raise_for_status(response, self._url)

    async def stream_events(self) -> AsyncIterator[TranscriptEvent]:
        """Yield the events until the session has ended. Reconnect if the event stream breaks.

        Raises:
            CallError: The stream cannot be resumed, or ends before all speech was transcribed.
        """
        failures = 0
        while failures < MAX_RECONNECTS:
            try:
                async for event in self._stream_server_sent_events():
                    failures = 0
                    if event.event == "end":
                        end = json.loads(event.data)
                        if end.get("lost_ms"):
                            raise CallError(f"{end['lost_ms'] / 1000:.1f} s of audio were lost on the way")
                        if not end["complete"]:
                            raise CallError("the server ended the stream before all speech was transcribed")
                        return
                    # a WebSocket client receives the error itself, and reconnects
                    if event.event == "error" and self.media.srtp:
                        raise CallError(json.loads(event.data)["detail"])
                    if event.event in EVENT_KINDS:
                        yield TranscriptEvent.model_validate_json(event.data)
            except httpx2.HTTPError:
                pass
            failures += 1
            await asyncio.sleep(RECONNECT_PAUSE_S)
        raise CallError(f"the event stream was interrupted {MAX_RECONNECTS} times in a row")

    async def _stream_server_sent_events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        headers = {TOKEN_HEADER: self._token, "Accept": "text/event-stream"}
        if self._last_event_id:
            headers[LAST_EVENT_ID_HEADER] = self._last_event_id
        async with self._client.stream("GET", self._events, headers=headers) as response:
            if response.is_server_error:
                return  # the error may be temporary, or another gateway may respond
            await _raise_for_stream_status(response, self._events)
            async for event in httpx2.EventSource(response):
                self._last_event_id = event.id or self._last_event_id
                if event.event == "token":
                    self._token = json.loads(event.data)["token"]
                yield event


async def _raise_for_stream_status(response: httpx2.Response, url: str) -> None:
    if not response.is_success:
        await response.aread()
    _raise_for_status(response, url)


def _raise_for_status(response: httpx2.Response, url: str) -> None:
    if not response.is_success:
        raise CallError(_describe_error(response, url))


def _parse_error(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object in an error response, or an empty object if the body is anything else."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _describe_error(response: httpx2.Response, url: str) -> str:
    body = _parse_error(response)
    message = ": ".join(str(body[name]) for name in ("error", "detail") if body.get(name)) or response.reason_phrase
    return f"{url} returned {response.status_code}: {message}"
