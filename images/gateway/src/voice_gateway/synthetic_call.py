"""Makes synthetic calls from the gateway itself through the public host name, the data plane and the engine.

Health checks only show that a gateway is reachable. A synthetic call also fails if its audio is not transcribed.
"""

import asyncio
import json
import logging
import wave
from pathlib import Path

from redis.exceptions import RedisError
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from voice_blueprint.contract.session_api import LISTEN_PATH
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_no_capacity_refusal
from voice_gateway.session_routes import SessionRequest, find_full_tier, open_session

CALL_INTERVAL_S = 60.0
CALL_TIMEOUT_S = 20.0
"""Timeout of a call, including its 2 s of audio."""
CALLER_NAME = "synthetic"
"""Name under which the usage of synthetic calls is counted."""
SPEECH_FILE = Path(__file__).with_name("speech.wav")
FRAME_S = 0.02

log = logging.getLogger(__name__)


class SyntheticCaller:
    """A caller of the gateway's own deployment."""

    def __init__(self, gateway: Gateway, public_url: str) -> None:
        """Create a caller.

        Args:
            gateway: Gateway that opens its sessions.
            public_url: Address of the public listener, such as ``wss://media.voice.example.com``.
        """
        self._gateway, self._url = gateway, public_url
        with wave.open(str(SPEECH_FILE)) as file:
            self._rate, self._audio = file.getframerate(), file.readframes(file.getnframes())

    async def run(self) -> None:
        """Make a call every minute."""
        while not self._gateway.draining.is_set():
            await asyncio.sleep(CALL_INTERVAL_S)
            await self.make_call()

    async def make_call(self) -> bool:
        """Make one call, and return True if its speech was transcribed."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                text = await self._transcribe_speech()
        except (OSError, TimeoutError, WebSocketException, Refusal, RedisError) as error:
            text, reason = "", str(getattr(error, "detail", error)) or type(error).__name__
        else:
            reason = "its transcript is empty"
        if not text:
            log.warning("a synthetic call failed", extra={"fields": {"reason": reason}})
        self._gateway.metrics.observe("SyntheticCallSucceeds", 1 if text else 0)
        return bool(text)

    async def _transcribe_speech(self) -> str:
        gateway, request = self._gateway, SessionRequest(transport="websocket")
        if missing := find_full_tier(gateway, request):  # checked here, so that it is not counted as a caller's refusal
            raise build_no_capacity_refusal(f"no {missing.upper()} host has a free slot")
        session = await open_session(gateway, CALLER_NAME, request)
        token, _ = gateway.tokens.create(session.id)
        try:
            url = f"{self._url}{LISTEN_PATH}?encoding=linear16&sample_rate={self._rate}"
            headers = {"Authorization": f"Bearer {token}"}
            async with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
                size = 2 * int(self._rate * FRAME_S)
                for begin in range(0, len(self._audio), size):
                    await socket.send(self._audio[begin : begin + size])
                    await asyncio.sleep(FRAME_S)
                await socket.send('{"type": "CloseStream"}')
                results = [json.loads(message) async for message in socket]
        finally:
            await gateway.sessions.close(session)
            await gateway.reservations.release(session.ssrc)
        final_results = [each for each in results if each["type"] == "Results"]
        return " ".join(each["channel"]["alternatives"][0]["transcript"] for each in final_results).strip()
