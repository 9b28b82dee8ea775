"""Driver of the gateway by the protocols of other services' clients: one socket, at the pace of speech."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import aiohttp

from ops.call import dialects
from ops.call.dialects import DIALECTS, ONE_TURN, Dialect
from ops.call.session import CallError
from ops.loadtest.endpoint import Endpoint
from ops.loadtest.failures import CUT_SHORT, AnswerError
from ops.loadtest.inputs import Recording
from ops.loadtest.realtime import cut, feed
from ops.loadtest.trace import Trace


@dataclass(frozen=True)
class ClientSession:
    """A socket, audio, and the message behind it; what ends it is the last final or the other side's close."""

    dialect: ClassVar[Dialect]
    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: Trace) -> None:
        """Speak one recording; a piece of the answer is committed text, or an interim or final result."""
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
    """All that is said is one item, so that its transcript is the end."""

    dialect = replace(DIALECTS[dialects.Api.OPENAI], first=ONE_TURN)


class Deepgram(ClientSession):
    """The other side closes behind the last final."""

    dialect = DIALECTS[dialects.Api.DEEPGRAM]
