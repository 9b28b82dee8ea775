"""`voice call` with a real gateway, a real store, and a UDP port that decrypts like the VAD tier."""

import asyncio
import base64
import socket
import sys
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import pylibsrtp
import pytest
from redis.asyncio import Redis

from images.conftest import StoreServer
from images.gateway.tests.running import BYE, GatewayProcess, Hosts, VadHost, holds
from voice_blueprint.contract.network import Tier
from voice_ops.call.session import CallError, Session
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_runtime import state
from voice_runtime.replies import decode_text
from voice_runtime.store import connect
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore
from voice_sandbox.loopback import find_free_port

SECONDS = 2


@pytest.mark.parametrize("error", [httpx2.ReadTimeout(""), httpx2.ConnectError("no route")])
async def test_an_unreachable_server_is_reported_with_a_reason(error: httpx2.HTTPError) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise error

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(fail)) as client:
        with pytest.raises(CallError, match=r"cannot reach .*: (ReadTimeout|no route)"):
            await Session.open(client, "http://voice.test", "srtp")


@dataclass
class Scene:
    """The environment of a call."""

    store: Redis
    gateway: GatewayProcess
    recording: Path
    audio: np.ndarray

    async def session(self) -> int:
        """Wait for the call's session, and return its SSRC."""
        while True:
            for key in await self.store.keys("session:[0-9]*"):
                name = decode_text(key).split(":")
                if len(name) == 2 and await self.store.hget(key, "state") == b"open":
                    return int(name[1])
            await asyncio.sleep(0.05)

    async def transcribe(self, ssrc: int) -> None:
        """Write a transcript like an engine."""
        transcripts = TranscriptStore(self.store)
        for number, (kind, words) in enumerate([(EventKind.PARTIAL, "good"), (EventKind.FINAL, "good [morning]")], 1):
            said = Transcript(kind=kind, utterance=0, text=words, start_ms=0, end_ms=1500)
            assert await transcripts.publish(ssrc, said, number)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = StoreServer(tmp_path)
    store = connect(server.settings)
    hosts = Hosts(store)
    hosts.put(Tier.ASR, "asr-1")
    hosts.put(Tier.VAD, "vad-1")
    gateway = await GatewayProcess(server, find_free_port(socket.SOCK_DGRAM)).start().ready()
    audio = np.random.default_rng(7).integers(-9000, 9000, SECONDS * 16_000).astype("<i2")
    recording = tmp_path / "speech.wav"
    with wave.open(str(recording), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(audio.tobytes())
    with hosts.beating(server.settings):
        await gateway.accepts_callers()
        yield Scene(store, gateway, recording, audio)
    gateway.kill()
    await store.aclose()
    server.stop()


async def voice_call(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from voice_ops.main import main; main()", "call", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def wait_for_exit(call: asyncio.subprocess.Process) -> tuple[int | None, list[str], str]:
    out, err = await asyncio.wait_for(call.communicate(), 120)
    return call.returncode, out.decode().splitlines(), err.decode()


def parse_lines(lines: list[str]) -> list[tuple[str, str]]:
    """Return kind and text of each line."""
    return [(line.split()[2], line.split("s  ")[-1].strip()) for line in lines]


async def test_recording_is_sent_over_srtp_and_its_transcript_printed(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        receiver.bind(("127.0.0.1", scene.gateway.rtp_port))
        call = await voice_call(scene.recording, "--server", scene.gateway.url)
        ssrc = await scene.session()
        await asyncio.sleep(1)
        key = base64.b64decode(await scene.store.get(state.build_srtp_entry_key(ssrc)) or b"")
        await scene.transcribe(ssrc)
        code, lines, _ = await wait_for_exit(call)
        packets = []
        receiver.setblocking(False)
        while True:
            try:
                packets.append(receiver.recv(2048))
            except BlockingIOError:
                break
    assert not await scene.store.exists(state.build_srtp_entry_key(ssrc)), "it is deleted with the session"
    policy = pylibsrtp.Policy(key=key, ssrc_type=pylibsrtp.Policy.SSRC_SPECIFIC, ssrc_value=ssrc)
    srtp = pylibsrtp.Session(policy)
    *sent, goodbye = packets
    heard = np.concatenate([np.frombuffer(srtp.unprotect(packet), ">i2", offset=12) for packet in sent])
    np.testing.assert_array_equal(heard[: scene.audio.size], scene.audio)
    assert not heard[scene.audio.size :].any(), "the last frame is filled up"
    assert heard.size - scene.audio.size < 320
    assert srtp.unprotect_rtcp(goodbye)[9:10] == BYE
    assert await scene.store.hget(state.build_session_key(ssrc), "state") == b"closed"
    assert code == 0
    assert parse_lines(lines) == [("partial", "good"), ("final", "good [morning]")]
    assert "0.00-1.50 s" in lines[1]


async def test_recording_is_sent_over_a_websocket(scene: Scene) -> None:
    vad = VadHost(scene.gateway.rtp_port)
    try:
        call = await voice_call(scene.recording, "--server", scene.gateway.url, "--websocket")
        ssrc = await scene.session()
        await holds("audio", lambda: len(vad.of(ssrc)) > 10)
        await scene.transcribe(ssrc)
        code, lines, _ = await wait_for_exit(call)
        np.testing.assert_array_equal(vad.audio(ssrc)[: scene.audio.size], scene.audio)
    finally:
        vad.stop()
    assert code == 0
    assert parse_lines(lines) == [("partial", "good"), ("final", "good [morning]")]


@pytest.mark.parametrize(("api", "printed_lines"), [("openai", []), ("deepgram", [("partial", "good")])])
async def test_recording_is_sent_with_other_protocols(
    scene: Scene, api: str, printed_lines: list[tuple[str, str]]
) -> None:
    vad = VadHost(scene.gateway.rtp_port)
    try:
        call = await voice_call(scene.recording, "--server", scene.gateway.url, "--api", api)
        ssrc = await scene.session()
        await holds("audio", lambda: len(vad.of(ssrc)) > 10)
        await scene.transcribe(ssrc)
        code, lines, _ = await wait_for_exit(call)
        np.testing.assert_array_equal(vad.audio(ssrc)[: scene.audio.size], scene.audio)
    finally:
        vad.stop()
    assert code == 0
    assert parse_lines(lines) == [*printed_lines, ("final", "good [morning]")]


async def test_server_refusals_are_reported_in_one_line(scene: Scene) -> None:
    call = await voice_call(scene.recording, "--server", f"{scene.gateway.url}/nowhere")
    code, lines, said = await wait_for_exit(call)
    assert (code, lines) == (FAILED, [])
    assert "returned 404: unknown path" in said
    assert len(said.splitlines()) == 1


async def test_missing_server_is_reported_in_one_line(tmp_path: Path) -> None:
    recording = tmp_path / "a.wav"
    with wave.open(str(recording), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(640))
    for arguments, code, message in (
        ((recording, "--server", f"http://127.0.0.1:{find_free_port()}"), FAILED, "cannot reach"),
        ((recording, "--server", "gopher"), FAILED, "cannot reach"),
        ((tmp_path / "gone.wav",), INVALID_INPUT, "No such file"),
        ((recording, "--api-key-env", "NO_SUCH_KEY"), INVALID_INPUT, "that variable is not set"),
    ):
        found, lines, said = await wait_for_exit(await voice_call(*arguments))
        assert (found, lines) == (code, [])
        assert message in said
        assert len(said.splitlines()) == 1
