"""Events of the streamed APIs, with the fields that a load test reads."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from pydantic import BaseModel, ValidationError

from voice_ops.loadtest.failures import EndpointResponseError, extract_error_message


class Delta(BaseModel):
    """New text in a chat or transcription chunk."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Choice(BaseModel):
    """The only choice in a chat completion chunk."""

    delta: Delta = Delta()


class Usage(BaseModel):
    """Tokens in a response, in the fields for chat and for speech."""

    completion_tokens: int | None = None
    output_tokens: int | None = None


class Event(BaseModel):
    """An event from any of the APIs; fields of other APIs are empty."""

    type: str = ""
    choices: list[Choice] = []
    delta: str | None = None
    text: str | None = None
    audio: str | None = None
    usage: Usage | None = None
    kind: str = ""
    """Kind of transcript from the session API: partial or final."""
    complete: bool | None = None
    """At the end of a session, whether all speech was transcribed."""
    error: Any = None

    @property
    def has_text(self) -> bool:
        """Whether the event contains text. Reasoning counts as text, but a role or a finish reason does not."""
        deltas = (choice.delta for choice in self.choices)
        return bool(self.delta) or any(d.content or d.reasoning or d.reasoning_content for d in deltas)

    @property
    def tokens(self) -> int | None:
        """Tokens in the whole response, if this event contains them."""
        return (self.usage.completion_tokens or self.usage.output_tokens) if self.usage else None


def parse_event(data: str | bytes) -> Event:
    """Parse one event, or one JSON response.

    Raises:
        EndpointResponseError: The event reports an error, or is invalid.
    """
    try:
        event = Event.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EndpointResponseError(f"malformed event: {'.'.join(map(str, first['loc']))} {first['msg']}") from None
    if event.error:
        raise EndpointResponseError(f"error in the stream: {extract_error_message({'error': event.error})}")
    return event


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Yield every server-sent event except ``[DONE]``.

    The stream is read to its end, so that the connection can be reused. All of these APIs write the JSON of an event on
    one line.

    Raises:
        EndpointResponseError: An event reports an error, or is malformed.
    """
    try:
        async for line in response.content:
            if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                yield parse_event(data)
    except ValueError as error:
        raise EndpointResponseError(f"the response is not an event stream: {error}") from None
