"""`voice call`: speak a recording to a deployment, and print what it hears."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from rich.markup import escape

from ops.call.access import Access, AccessError, Auth, ClientAuth, access, secret_of
from ops.call.dialects import Api
from ops.call.other_apis import speak
from ops.call.recording import RATE, RecordingError, read
from ops.call.senders import Samples, sender_of
from ops.call.session import TIMEOUT_S, CallError, Heard, Session
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.output import err, out, stop

LOCAL = "http://127.0.0.1:8080"
NO_KEY = "none"
"""Where callers need none, their clients send one all the same."""


def call(  # noqa: PLR0917  Typer's parameters
    file: Annotated[Path, typer.Argument(metavar="FILE.wav", help="Recording: PCM, any rate, at most an hour.")],
    server: Annotated[str, typer.Option(metavar="URL", help="Session API, with its stage.")] = LOCAL,
    auth: Annotated[
        Auth | None,
        typer.Option(help="Authorizer of the deployment; iam signs with AWS credentials.", show_default=False),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable that holds the key or token.", show_default=False)
    ] = None,
    websocket: Annotated[bool, typer.Option("--websocket", help="Send as browsers do, not by SRTP over UDP.")] = False,
    api: Annotated[
        Api,
        typer.Option(help="Protocol; with that of another service URL is the media host's, and the key its bearer."),
    ] = Api.SESSIONS,
) -> None:
    """Speak a recording in real time, and print what is heard as it comes.

    Times are seconds since the first packet, and where in the recording the words are.

    Example: voice call question.wav --server https://api.example.com --auth iam
    """
    try:
        samples = read(file)
        secret = secret_of(api_key_env)
        headers_of = access(auth, secret, server) if api is Api.SESSIONS else None
    except (RecordingError, AccessError) as error:
        raise stop(str(error), REFUSED) from None
    try:
        if headers_of:
            asyncio.run(_call(samples, server, headers_of, websocket=websocket))
        else:
            asyncio.run(_call_other(api, samples, server, secret or NO_KEY))
    except CallError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: the session is closed", INTERRUPTED) from None


async def _call(samples: Samples, server: str, headers_of: Access, *, websocket: bool) -> None:
    async with httpx2.AsyncClient(auth=ClientAuth(headers_of), timeout=TIMEOUT_S) as client:
        session = await Session.open(client, server, "websocket" if websocket else "srtp")
        err.print(f"[dim]{samples.size / RATE:.1f} s of audio to {escape(server)}[/]", soft_wrap=True)
        begin = time.monotonic()
        printing = asyncio.create_task(_print(session, begin))
        try:
            await sender_of(session).send(samples)
            await session.close()
            await printing
        except (CallError, asyncio.CancelledError):
            with contextlib.suppress(CallError):
                await session.close()
            raise
        finally:
            printing.cancel()


async def _call_other(api: Api, samples: Samples, server: str, key: str) -> None:
    err.print(f"[dim]{samples.size / RATE:.1f} s of audio to {escape(server)}[/]", soft_wrap=True)
    begin = time.monotonic()
    async for heard in speak(api, server, key, samples):
        if heard.text:
            out.print(_line(heard, time.monotonic() - begin), soft_wrap=True)


async def _print(session: Session, begin: float) -> None:
    async for heard in session.follow():
        if heard.text or heard.commit or heard.kind == "gap":
            out.print(_line(heard, time.monotonic() - begin), soft_wrap=True)


def _line(heard: Heard, at_s: float) -> str:
    place = f"{heard.start_ms / 1000:6.2f}-{heard.end_ms / 1000:.2f} s"
    line = f"{at_s:7.2f} s  {heard.kind:7}  {place:16}  {escape(heard.text)}"
    return line if heard.kind == "final" else f"[dim]{line}[/]"
