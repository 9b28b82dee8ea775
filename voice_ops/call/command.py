"""`voice call`: stream a recording to a deployment, and print its transcripts."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from rich.text import Text

from voice_ops.call.access import (
    AuthorizerType,
    ClientAuth,
    CredentialsError,
    HeaderProvider,
    create_header_provider,
    read_secret,
)
from voice_ops.call.dialects import Api
from voice_ops.call.other_apis import stream_to_server
from voice_ops.call.recording import SAMPLE_RATE_HZ, RecordingError, read_samples
from voice_ops.call.senders import Samples, create_sender
from voice_ops.call.session import REQUEST_TIMEOUT_S, CallError, Session, TranscriptEvent
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.output import create_exit, err, format_markup, out

LOCAL_SERVER = "http://127.0.0.1:8080"
PLACEHOLDER_API_KEY = "none"
"""Key for servers without authentication. Clients of the other APIs always send a key."""


def call(  # noqa: PLR0917  Typer passes parameters by name
    file: Annotated[
        Path, typer.Argument(metavar="FILE.wav", help="Recording: PCM WAV with any sample rate, up to one hour.")
    ],
    server: Annotated[
        str, typer.Option(metavar="URL", help="Base URL of the session API, including the stage.")
    ] = LOCAL_SERVER,
    auth: Annotated[
        AuthorizerType | None,
        typer.Option(
            help="Authorizer of the deployment. `iam` signs requests with AWS credentials.", show_default=False
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that contains the key or token.", show_default=False),
    ] = None,
    websocket: Annotated[
        bool, typer.Option("--websocket", help="Send audio over a WebSocket, as browsers do, instead of SRTP over UDP.")
    ] = False,
    api: Annotated[
        Api,
        typer.Option(
            help="API to use. For openai and deepgram, --server is the media host and the key a bearer token."
        ),
    ] = Api.SESSIONS,
) -> None:
    """Stream a recording in real time, and print the transcripts as they arrive.

    Output contains the time since the first packet, and the position of the words in the recording, both in seconds.

    Example: voice call question.wav --server https://api.example.com --auth iam
    """
    try:
        samples = read_samples(file)
        secret = read_secret(api_key_env)
        headers_for = create_header_provider(auth, secret, server) if api is Api.SESSIONS else None
    except (RecordingError, CredentialsError) as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    try:
        if headers_for:
            asyncio.run(_stream_to_session(samples, server, headers_for, websocket=websocket))
        else:
            asyncio.run(_call_server(api, samples, server, secret or PLACEHOLDER_API_KEY))
    except CallError as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: the session is closed", INTERRUPTED) from None


async def _stream_to_session(samples: Samples, server: str, headers_for: HeaderProvider, *, websocket: bool) -> None:
    async with httpx2.AsyncClient(auth=ClientAuth(headers_for), timeout=REQUEST_TIMEOUT_S) as client:
        session = await Session.open(client, server, "websocket" if websocket else "srtp")
        err.print(
            format_markup("[dim]{} s of audio to {}[/]", f"{samples.size / SAMPLE_RATE_HZ:.1f}", server), soft_wrap=True
        )
        begin = time.monotonic()
        print_task = asyncio.create_task(_print_events(session, begin))
        try:
            await create_sender(session).send(samples)
            await session.close()
            await print_task
        except (CallError, asyncio.CancelledError):
            with contextlib.suppress(CallError):
                await session.close()
            raise
        finally:
            print_task.cancel()


async def _call_server(api: Api, samples: Samples, server: str, key: str) -> None:
    err.print(
        format_markup("[dim]{} s of audio to {}[/]", f"{samples.size / SAMPLE_RATE_HZ:.1f}", server), soft_wrap=True
    )
    begin = time.monotonic()
    async for event in stream_to_server(api, server, key, samples):
        if event.text:
            out.print(_format_event(event, time.monotonic() - begin), soft_wrap=True)


async def _print_events(session: Session, begin: float) -> None:
    async for event in session.stream_events():
        if event.text or event.commit or event.kind == "gap":
            out.print(_format_event(event, time.monotonic() - begin), soft_wrap=True)


def _format_event(event: TranscriptEvent, at_s: float) -> Text:
    time_range = f"{event.start_ms / 1000:6.2f}-{event.end_ms / 1000:.2f} s"
    line = f"{at_s:7.2f} s  {event.kind:7}  {time_range:16}  {event.text}"
    return Text(line, "" if event.kind == "final" else "dim")
