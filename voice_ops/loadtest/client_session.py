"""Driver of the gateway with the protocols of other services' clients: one socket, in real time."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import aiohttp

from voice_ops.call import dialects
from voice_ops.call.dialects import DIALECTS, ONE_TURN, Dialect
from voice_ops.call.session import CallError
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.failures import CUT_SHORT, AnswerError
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.realtime import cut, feed
from voice_ops.loadtest.trace import Trace


@dataclass(frozen=True)
class ClientSession:
    """A WebSocket client: sends audio and an end message, and finishes at the last final or the server's close."""

    dialect: ClassVar[Dialect]
    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: Trace) -> None:
        """Stream a recording; a piece of the response is committed text, or an interim or final result."""
        which = index % len(self.recordings)
        trace.input_audio_s = self.recordings[which].seconds
        path, _, query = self.dialect.path.partition("?")
        async with self.endpoint.session.ws_connect(self.endpoint.at(path).with_query(query)) as socket:
            if self.dialect.first:
                await socket.send_str(self.dialect.first)
            speaking = asyncio.create_task(self._speak(socket, which, trace))
            try:
                await self._listen(socket, trace)
            except CallError as error:
                raise AnswerError(str(error)) from None
            finally:
                speaking.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await speaking

    @cached_property
    def _frames(self) -> list[list[str | bytes]]:
        return [[self.dialect.audio(frame) for frame in cut(recording)] for recording in self.recordings]

    async def _speak(self, socket: aiohttp.ClientWebSocketResponse, which: int, trace: Trace) -> None:
        async def send(frame: str | bytes) -> None:
            await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))

        await feed(self._frames[which], send, trace)
        await socket.send_str(self.dialect.last)

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, trace: Trace) -> None:
        async for message in socket:
            said = json.loads(message.data)
            heard = self.dialect.heard(said)
            if said.get("delta") or (heard and heard.text and self.dialect.says_end):
                trace.text_arrived()
            if heard and not self.dialect.says_end:
                trace.ended()
                return
        if not self.dialect.says_end or socket.close_code != aiohttp.WSCloseCode.OK:
            raise AnswerError(CUT_SHORT)
        trace.ended()


class OpenAi(ClientSession):
    """All audio is one item, so its transcript is the last one."""

    dialect = replace(DIALECTS[dialects.Api.OPENAI], first=ONE_TURN)


class Deepgram(ClientSession):
    """The server closes after the last final."""

    dialect = DIALECTS[dialects.Api.DEEPGRAM]
