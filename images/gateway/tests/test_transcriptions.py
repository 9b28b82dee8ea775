"""Authorization and validation of file transcriptions; `tests/voice` tests the results with an engine."""

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import av
import httpx2
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI
from redis.asyncio import Redis
from starlette.types import Message

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Hosts
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import MAX_FILE_BYTES
from voice_gateway.audio import SAMPLE_RATE_HZ
from voice_gateway.file_audio import MAX_SEGMENT_S, MIN_SEGMENT_S, AudioSplitter, split_file
from voice_gateway.file_transcription import Upload
from voice_gateway.gateway import MAX_CONCURRENT_FILES
from voice_gateway.refusals import Refusal
from voice_runtime import state
from voice_runtime.file_pieces import FilePieceQueue

pytestmark = pytest.mark.usefixtures("hosts")
TOO_LONG_S = 3700
TRANSCRIPTIONS = "/v1/audio/transcriptions"


def client_of(gateway: GatewayProcess, key: str = "any") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.media_port}/v1", api_key=key, max_retries=0)


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(gateway) as client:
        yield client


def wav(samples: np.ndarray, rate: int = SAMPLE_RATE_HZ) -> tuple[str, bytes]:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        sound.setsampwidth(samples.itemsize)
        sound.setframerate(rate)
        sound.writeframes(samples.tobytes())
    return "sound.wav", file.getvalue()


def noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(1).integers(-9000, 9000, round(seconds * SAMPLE_RATE_HZ)).astype(np.int16)


class Unseekable(io.BytesIO):
    """A stream in which the writer cannot seek back to fill in the length."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError


def flac_that_hides_its_length() -> tuple[str, bytes]:
    file = Unseekable()
    with av.open(file, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=8000, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000 * 100), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        for number in range(TOO_LONG_S // 100):
            frame.pts = number * 8000 * 100
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return "sound.flac", file.getvalue()


# --- Who is let in --------------------------------------------------------------------------------------


async def test_key_is_required_and_a_session_token_is_accepted(start: Start) -> None:
    gateway = await (await start(AUTHORIZER="iam").ready()).accepts_callers()
    with pytest.raises(openai.AuthenticationError) as caught:
        await client_of(gateway).models.list()
    assert caught.value.code == "unauthorized"
    with pytest.raises(openai.AuthenticationError):
        await client_of(gateway).audio.transcriptions.create(file=wav(noise(1)), model="any")
    models = await client_of(gateway, (await gateway.open()).token).models.list()
    assert [model.id for model in models.data] == ["whisper"]


async def test_model_is_described(client: AsyncOpenAI) -> None:
    assert (await client.models.retrieve("whisper")).owned_by == "voice-serve"
    with pytest.raises(openai.NotFoundError, match="'whisper'"):
        await client.models.retrieve("whisper-1")


async def test_file_is_retried_while_live_calls_need_all_hosts(gateway: GatewayProcess, hosts: Hosts) -> None:
    hosts.put(Tier.ASR, "asr-1", slots=0)
    await hosts.beat()
    await gateway.answers(503)
    with pytest.raises(openai.RateLimitError) as caught:
        await client_of(gateway).audio.transcriptions.create(file=wav(noise(60)), model="any")
    assert caught.value.response.headers["Retry-After"] == "5"
    assert "live calls" in caught.value.message


async def test_third_file_is_retried_and_a_disconnect_frees_its_work(client: AsyncOpenAI, store: Redis) -> None:
    waiting = [
        asyncio.create_task(client.audio.transcriptions.create(file=wav(noise(60)), model="any"))
        for _ in range(MAX_CONCURRENT_FILES)
    ]
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await store.llen(state.QUEUED_FILE_PIECES_KEY) < MAX_CONCURRENT_FILES:
            await asyncio.sleep(0.02)
    with pytest.raises(openai.RateLimitError):
        await client.audio.transcriptions.create(file=wav(noise(1)), model="any")
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await store.keys("file:*"):
            await asyncio.sleep(0.05)


async def test_killed_gateway_leaves_no_work_and_accepts_the_file_again(start: Start, store: Redis) -> None:
    gateway = await (await start().ready()).accepts_callers()
    pieces = FilePieceQueue(store)

    async def asked() -> "asyncio.Task[object]":
        asking = asyncio.create_task(client_of(gateway).audio.transcriptions.create(file=wav(noise(60)), model="any"))
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not await pieces.count_queued():
                assert not asking.done(), asking.result()
                await asyncio.sleep(0.02)
        return asking

    asking = await asked()
    gateway.kill()
    with pytest.raises(openai.APIConnectionError):
        await asking
    left = [key for key in await store.keys("file:*") if await store.type(key) == b"hash"]
    assert left
    for key in left:
        assert 0 < await store.ttl(key) <= state.FILE_PIECE_RETENTION_S
        await store.pexpire(key, 1)  # simulates expiry
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await store.exists(*left):
            await asyncio.sleep(0.01)
    while await pieces.count_queued():
        assert await pieces.claim("asr-1") is None, "no caller waits for it"
    await gateway.start().ready()
    await gateway.accepts_callers()
    (await asked()).cancel()


async def test_work_ends_with_its_request_even_if_a_cancellation_is_lost() -> None:
    ended = asyncio.Event()

    async def work() -> str:
        for _ in range(2):  # like `asyncio.wait_for` of Python 3.11 when the awaited task ends at that moment
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(BUSY_TIMEOUT_S)
        ended.set()
        return ""

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(Refusal, match="gone"):
        await asyncio.wait_for(Upload(gone).run_until_disconnect(work()), BUSY_TIMEOUT_S / 2)
    assert ended.is_set()


async def test_file_queue_is_limited(client: AsyncOpenAI, store: Redis) -> None:
    await store.rpush(state.QUEUED_FILE_PIECES_KEY, *map(str, range(state.MAX_FILE_PIECES)))
    with pytest.raises(openai.RateLimitError, match="other files"):
        await client.audio.transcriptions.create(file=wav(noise(1)), model="any")


# --- Which files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (("x.wav", b"no audio at all"), "no audio file"),
        (("x.m3u8", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"), "no audio file"),
        (("x.txt", b"ffconcat version 1.0\nfile /etc/passwd\n"), "no audio file"),
        (wav(np.zeros(TOO_LONG_S * 1000, np.uint8), 1000), "3700 s"),
        (flac_that_hides_its_length(), "longer than it says"),
    ],
    ids=["text", "playlist", "list of files", "too long", "longer than it says"],
)
async def test_unreadable_file_is_rejected(client: AsyncOpenAI, file: tuple[str, bytes], why: str) -> None:
    with pytest.raises(openai.BadRequestError, match=why) as caught:
        await client.audio.transcriptions.create(file=file, model="any")
    assert caught.value.param == "file"


def test_file_cannot_reference_other_files(tmp_path: Path) -> None:
    """No supported format refers to other files. Even one that does must open none, whatever format is added later."""
    (tmp_path / "other.wav").write_bytes(wav(noise(1))[1])
    widened = (
        "import sys; from voice_gateway import decode; decode.FORMAT_WHITELIST += ',concat'; sys.exit(decode.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", widened, "60"],
        input=b"ffconcat version 1.0\nfile other.wav\n",
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=BUSY_TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"it is no audio file that can be read here")


async def test_decoder_inherits_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_TOKEN_KEY", "only the gateway's")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb"):
        decoding = split_file(file, AudioSplitter())
        first = asyncio.ensure_future(anext(decoding))
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not (decoders := _children(b"voice_gateway.decode")):
                await asyncio.sleep(0.01)
        inherited = [(folder / "environ").read_bytes() for folder in decoders]
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        await decoding.aclose()
    assert len(inherited) == 1
    assert not [name for name in inherited[0].split(b"\0") if name.startswith(b"VOICE_")]


def _children(command: bytes) -> list[Path]:
    """Return the /proc folders of this process's children whose command contains a word."""
    lists = Path("/proc/self/task").glob("*/children")
    folders = [Path("/proc") / pid for each in lists for pid in each.read_text(encoding="ascii").split()]
    return [folder for folder in folders if command in (folder / "cmdline").read_bytes().split(b"\0")]


async def test_silence_gives_empty_text_without_an_engine(client: AsyncOpenAI) -> None:
    heard = await client.audio.transcriptions.create(file=wav(np.zeros(SAMPLE_RATE_HZ, np.int16)), model="any")
    assert heard.text == ""
    assert heard.usage
    assert heard.usage.to_dict() == {"type": "duration", "seconds": 1}


async def test_form_fields_are_validated(gateway: GatewayProcess, hosts: Hosts) -> None:
    hosts.put(Tier.ASR, "asr-1", languages=("en",))
    await hosts.beat()
    async with gateway.client() as client:
        for data, field in (
            ({"response_format": "docx"}, "response_format"),
            ({"language": "no language"}, "language"),
        ):
            answer = await client.post(TRANSCRIPTIONS, data=data, files={"file": wav(noise(1))})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
        answer = await client.post(TRANSCRIPTIONS, data={"model": "any"}, files={"other": b"x"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")


async def test_oversized_file_is_rejected_before_upload(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.media_port)
    head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    writer.write(f"{head}Content-Length: {MAX_FILE_BYTES + 1}\r\n\r\n".encode())
    assert b"413" in await reader.readline()
    writer.close()


async def test_endless_body_is_cut_off(gateway: GatewayProcess) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(MAX_FILE_BYTES // 2**20 + 2):
            yield bytes(2**20)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with gateway.client() as client:
        try:
            answer = await client.post(TRANSCRIPTIONS, content=endless(), headers=headers)
        except httpx2.TransportError:
            return  # closed during the client's upload
    assert answer.status_code == 413


# --- How they are cut -----------------------------------------------------------------------------------


def test_segments_end_in_pauses_and_omit_silence() -> None:
    spoken = np.concatenate(
        [
            noise(9),
            np.zeros(SAMPLE_RATE_HZ // 2, np.int16),
            noise(11),
            np.zeros(30 * SAMPLE_RATE_HZ, np.int16),
            noise(1),
        ]
    )
    splitter = AudioSplitter()
    found = [cut for start in range(0, len(spoken), 1111) for cut in splitter.push(spoken[start : start + 1111])]
    found += splitter.flush()
    assert [round(cut.start_s, 1) for cut in found] == [0.0, 9.4, 50.3]
    assert [round(cut.end_s, 1) for cut in found] == [9.2, 20.7, 51.5]
    assert splitter.total_duration_s == len(spoken) / SAMPLE_RATE_HZ


def test_speech_without_a_pause_is_also_split() -> None:
    splitter = AudioSplitter()
    found = [*splitter.push(noise(60)), *splitter.flush()]
    assert sum(len(cut.samples) for cut in found) == 60 * SAMPLE_RATE_HZ
    assert all(MIN_SEGMENT_S <= cut.end_s - cut.start_s <= MAX_SEGMENT_S for cut in found[:-1])
