"""Files, by the unmodified `openai` package, over gateway, store and an engine with a real model."""

import io
import os
import signal
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from openai import OpenAI
from openai.types.audio import TranscriptionVerbose

from ops.call.recording import RATE, read
from ops.call.senders import Samples
from ops.demo.command import SAMPLE, SAMPLE_TEXT, weights, word_error_rate
from ops.demo.services import Gateway, Service, VoicePath
from tests.voice.callers import PLACES_S, SENTENCES, speech

SAID = SAMPLE_TEXT.read_text(encoding="utf-8")
WORST_ERROR_RATE = 0.1
HOUR_S = 3600
LEAST_TOLD = 3
"""Segments that a stream brings one by one."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[VoicePath]:
    with VoicePath(tmp_path, weights(None)) as path:
        path.start_store().wait_ready()
        yield path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoicePath]:
    with VoicePath(tmp_path_factory.mktemp("files"), weights(None)) as path:
        path.start_store().wait_ready()
        path.start_engine()
        yield path


@pytest.fixture(scope="module")
def gateway(files: VoicePath) -> Gateway:
    gateway = files.start_gateway()
    files.wait_ready()
    return gateway


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> OpenAI:
    # Who comes before the gateway has seen the engine is told to come again, which the package does.
    return OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=5)


def wav(samples: Samples) -> io.BytesIO:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(samples.tobytes())
    return named(file, "speech.wav")


def named(file: io.BytesIO, name: str) -> io.BytesIO:
    file.seek(0)
    file.name = name
    return file


def encoded(samples: Samples, container: str, codec: str, rate: int) -> io.BytesIO:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout="stereo")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return named(file, f"speech.{container}")


def verbose(client: OpenAI, file: io.BytesIO) -> TranscriptionVerbose:
    return client.audio.transcriptions.create(
        file=file, model="whisper-1", response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )


def test_words_are_told_where_they_were_said(client: OpenAI) -> None:
    heard = verbose(client, wav(read(SAMPLE)))
    assert word_error_rate(SAID, heard.text) <= WORST_ERROR_RATE
    assert heard.language == "en"
    assert heard.duration == pytest.approx(len(read(SAMPLE)) / RATE, abs=0.01)
    assert heard.words
    assert heard.segments
    starts = [word.start for word in heard.words]
    assert starts == sorted(starts)
    assert " ".join(segment.text for segment in heard.segments) == heard.text
    first, last = SENTENCES[1].split()[0], SENTENCES[1].split()[-1]
    begin, end = PLACES_S[SENTENCES[1]]
    (found,) = [each for each in heard.segments if each.text.startswith(first) and each.text.endswith(last)]
    # The model counts some of the pause to the first word behind it, how much depends on a processor's rounding.
    assert PLACES_S[SENTENCES[0]][1] <= found.start <= begin + 0.5
    second = next(word for word in heard.words if word.start > found.start)
    assert begin - 0.5 <= second.start <= begin + 1
    assert found.end == pytest.approx(end, abs=0.5)


def test_other_formats_say_the_same(client: OpenAI) -> None:
    create = client.audio.transcriptions.create
    whole = create(file=wav(read(SAMPLE)), model="whisper-1", language="en")
    assert word_error_rate(SAID, whole.text) <= WORST_ERROR_RATE
    assert whole.usage
    text = str(create(file=wav(read(SAMPLE)), model="whisper-1", response_format="text"))
    assert text.split() == whole.text.split()
    srt = str(create(file=wav(read(SAMPLE)), model="whisper-1", response_format="srt"))
    numbers, times, lines, empty = (srt.splitlines()[place::4] for place in range(4))
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert " ".join(lines) == whole.text
    assert times == sorted(times)
    assert times[0].startswith("00:00:00,")
    assert set(empty) == {""}
    vtt = str(create(file=wav(read(SAMPLE)), model="whisper-1", response_format="vtt"))
    assert vtt.splitlines()[:2] == ["WEBVTT", ""]
    assert vtt.splitlines()[2::3] == [span.replace(",", ".") for span in times]


def test_stream_brings_text_while_the_rest_is_heard(client: OpenAI) -> None:
    with client.audio.transcriptions.create(file=wav(read(SAMPLE)), model="whisper-1", stream=True) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert len(deltas) >= LEAST_TOLD
    assert events[-1].type == "transcript.text.done"
    assert "".join(deltas) == events[-1].text
    assert word_error_rate(SAID, events[-1].text) <= WORST_ERROR_RATE


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("mp3", "libmp3lame", 44_100), ("flac", "flac", 48_000), ("ogg", "libopus", 48_000), ("mp4", "aac", 44_100)],
)
def test_file_of_any_usual_kind_is_read(client: OpenAI, container: str, codec: str, rate: int) -> None:
    file = encoded(speech(SENTENCES[:2], 0.5), container, codec, rate)
    heard = client.audio.transcriptions.create(file=file, model="whisper-1", response_format="json")
    assert word_error_rate(" ".join(SENTENCES[:2]), heard.text) <= 2 * WORST_ERROR_RATE


def test_hour_takes_little_memory_and_keeps_its_times(client: OpenAI, files: VoicePath) -> None:
    said, places_s = speech(SENTENCES[1:2], 0.0), (0.0, 1800.5, 3590.0)
    hour = np.zeros(HOUR_S * RATE, np.int16)
    for at_s in places_s:
        hour[round(at_s * RATE) : round(at_s * RATE) + len(said)] = said
    process = files.services["gateway"].process
    assert process
    before, most = memory_mib(process.pid), 0.0
    stopping = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stopping.wait(0.05):
            most = max(most, memory_mib(process.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        heard = verbose(client, wav(hour))
    finally:
        stopping.set()
        watching.join()
    assert most - before < 64, "an hour is 110 MiB"
    assert heard.duration == HOUR_S
    assert heard.words
    starts = [word.start for word in heard.words if word.word == "We"]
    assert starts == [pytest.approx(at_s, abs=1) for at_s in places_s]
    assert word_error_rate(" ".join(SENTENCES[1:2] * 3), heard.text) <= WORST_ERROR_RATE


def memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_engine_that_dies_takes_no_word_with_it(path: VoicePath) -> None:
    engines = {name: path.start_engine(name, address) for name, address in (("a", "127.0.0.1"), ("b", "127.0.0.2"))}
    gateway = path.start_gateway()
    path.wait_ready()
    sentences = SENTENCES * 8
    threading.Thread(target=_kill_whoever_works, args=(path, engines)).start()
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=5)
    heard = client.audio.transcriptions.create(file=wav(speech(sentences, 0.6)), model="whisper-1")
    assert any(engine.process and engine.process.poll() is not None for engine in engines.values())
    assert word_error_rate(" ".join(sentences), heard.text) <= WORST_ERROR_RATE


def _kill_whoever_works(path: VoicePath, engines: dict[str, Service]) -> None:
    import redis  # noqa: PLC0415  the synchronous client, of this thread alone

    settings = path.store_settings
    password = settings.secret()
    with redis.Redis(port=settings.port, password=password, decode_responses=True) as store:
        while True:
            for lease in store.scan_iter("file:*:asr"):
                holder = store.get(lease)
                if holder in engines:
                    process = engines[holder].process
                    assert process
                    process.send_signal(signal.SIGKILL)
                    return
            time.sleep(0.005)
