"""Transcription of files with the unmodified `openai` package, a gateway, a store and an engine with a real model."""

import io
import os
import re
import signal
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError as DeepgramError
from deepgram.environment import DeepgramClientEnvironment
from openai import BadRequestError, OpenAI
from openai.types.audio import TranscriptionVerbose

from tests.voice.callers import SENTENCE_STARTS_S, SENTENCES, speech
from voice_ops.call.recording import SAMPLE_RATE_HZ, read_samples
from voice_ops.call.senders import Samples
from voice_ops.demo.command import SAMPLE_FILE, SAMPLE_TEXT_FILE, calculate_word_error_rate, find_weights
from voice_ops.demo.services import Gateway, Service, VoicePath

SPOKEN_TEXT = SAMPLE_TEXT_FILE.read_text(encoding="utf-8")
MAX_ERROR_RATE = 0.1
MAX_SENTENCE_ERROR_RATE = 0.25
"""Maximum word error rate of one sentence, about two words."""
TIME_TOLERANCE_S = 0.4
"""Tolerance of sentence times, which include parts of the pauses."""
HOUR_S = 3600
MIN_DELTAS = 3
"""Minimum number of segments that a stream returns separately."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[VoicePath]:
    with VoicePath(tmp_path, find_weights(None)) as path:
        path.start_store().wait_until_ready()
        yield path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoicePath]:
    with VoicePath(tmp_path_factory.mktemp("files"), find_weights(None)) as path:
        path.start_store().wait_until_ready()
        path.start_engine()
        yield path


@pytest.fixture(scope="module")
def gateway(files: VoicePath) -> Gateway:
    gateway = files.start_gateway()
    files.wait_until_ready()
    return gateway


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> OpenAI:
    # Before the gateway has discovered the engine it asks clients to retry, which the package does.
    return OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=5)


def wav(samples: Samples) -> io.BytesIO:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SAMPLE_RATE_HZ)
        sound.writeframes(samples.tobytes())
    return named_file(file, "speech.wav")


def named_file(file: io.BytesIO, name: str) -> io.BytesIO:
    file.seek(0)
    file.name = name
    return file


def encode(samples: Samples, container: str, codec: str, rate: int) -> io.BytesIO:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout="stereo")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return named_file(file, f"speech.{container}")


def verbose(client: OpenAI, file: io.BytesIO) -> TranscriptionVerbose:
    return client.audio.transcriptions.create(
        file=file, model="whisper-1", response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )


def test_words_have_the_times_at_which_they_were_spoken(client: OpenAI) -> None:
    heard = verbose(client, wav(read_samples(SAMPLE_FILE)))
    assert calculate_word_error_rate(SPOKEN_TEXT, heard.text) <= MAX_ERROR_RATE
    assert heard.language == "en"
    assert heard.duration == pytest.approx(len(read_samples(SAMPLE_FILE)) / SAMPLE_RATE_HZ, abs=0.01)
    assert heard.words
    assert heard.segments
    starts = [word.start for word in heard.words]
    assert starts == sorted(starts)
    assert " ".join(segment.text for segment in heard.segments) == heard.text
    first, last = SENTENCES[1].split()[0], SENTENCES[1].split()[-1]
    begin, end = SENTENCE_STARTS_S[SENTENCES[1]]
    (found,) = [each for each in heard.segments if each.text.startswith(first) and each.text.endswith(last)]
    # Pauses are part of neither the previous nor the next word.
    assert found.start == pytest.approx(begin, abs=TIME_TOLERANCE_S)
    assert found.end == pytest.approx(end, abs=TIME_TOLERANCE_S)
    for sentence, (_, its_end) in SENTENCE_STARTS_S.items():
        last_word = max((word for word in heard.words if word.start < its_end), key=lambda word: word.start)
        assert last_word.end == pytest.approx(its_end, abs=TIME_TOLERANCE_S), (sentence, last_word)
    assert all(word.end > word.start for word in heard.words)


def stereo(left: Samples, right: Samples) -> io.BytesIO:
    """Return a file with a speaker on each channel."""
    length = max(len(left), len(right))
    both = np.stack([np.pad(each, (0, length - len(each))) for each in (left, right)], axis=1)
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(SAMPLE_RATE_HZ)
        sound.writeframes(both.astype("<i2").tobytes())
    return named_file(file, "call.wav")


CALL = stereo(
    np.concatenate([speech(SENTENCES[:1], 0.5), np.zeros(4 * SAMPLE_RATE_HZ, np.int16)]),
    np.concatenate([np.zeros(4 * SAMPLE_RATE_HZ, np.int16), speech(SENTENCES[2:3], 0.5)]),
).getvalue()
"""Two speakers, one after the other."""


def test_speakers_of_two_channels_are_distinguished(client: OpenAI, gateway: Gateway) -> None:
    """Covers the clients of OpenAI and Deepgram."""
    told = client.audio.transcriptions.create(
        file=named_file(io.BytesIO(CALL), "call.wav"), model="any", response_format="diarized_json"
    )
    for speaker, sentence in (("A", SENTENCES[0]), ("B", SENTENCES[2])):
        said = " ".join(segment.text for segment in told.segments if segment.speaker == speaker)
        assert calculate_word_error_rate(sentence, said) <= MAX_SENTENCE_ERROR_RATE, said
    assert [segment.start for segment in told.segments] == sorted(segment.start for segment in told.segments)
    with pytest.raises(BadRequestError, match="a channel for each speaker"):
        client.audio.transcriptions.create(
            file=wav(read_samples(SAMPLE_FILE)), model="any", response_format="diarized_json"
        )
    place = DeepgramClientEnvironment(base=gateway.url, production="", agent="", agent_rest="")
    listen = DeepgramClient(api_key="any", environment=place).listen.v1.media.transcribe_file
    heard = listen(request=CALL, model="nova-3", multichannel=True, utterances=True, punctuate=False)
    assert (heard.metadata.channels, heard.metadata.duration) == (
        2,
        pytest.approx(len(CALL) / 4 / SAMPLE_RATE_HZ, abs=0.01),
    )
    for channel, sentence in zip(heard.results.channels, (SENTENCES[0], SENTENCES[2]), strict=True):
        (best,) = channel.alternatives
        assert calculate_word_error_rate(sentence, best.transcript) <= MAX_SENTENCE_ERROR_RATE, best.transcript
        assert best.transcript == best.transcript.lower().replace(".", "")
        assert 0.3 < best.confidence <= 1
        assert all(word.end > word.start and word.confidence > 0 for word in best.words)
    assert {utterance.channel for utterance in heard.results.utterances} == {0, 1}
    with pytest.raises(DeepgramError, match="nothing is fetched"):
        DeepgramClient(api_key="any", environment=place).listen.v1.media.transcribe_url(url="https://example.com/x.wav")


def test_other_formats_contain_the_same_text(client: OpenAI) -> None:
    create = client.audio.transcriptions.create
    whole = create(file=wav(read_samples(SAMPLE_FILE)), model="whisper-1", language="en")
    assert calculate_word_error_rate(SPOKEN_TEXT, whole.text) <= MAX_ERROR_RATE
    assert whole.usage
    text = str(create(file=wav(read_samples(SAMPLE_FILE)), model="whisper-1", response_format="text"))
    assert text.split() == whole.text.split()
    srt = str(create(file=wav(read_samples(SAMPLE_FILE)), model="whisper-1", response_format="srt"))
    numbers, times, lines, empty = (srt.splitlines()[place::4] for place in range(4))
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert " ".join(lines) == whole.text
    assert times == sorted(times)
    assert times[0].startswith("00:00:00,")
    assert set(empty) == {""}
    vtt = str(create(file=wav(read_samples(SAMPLE_FILE)), model="whisper-1", response_format="vtt"))
    assert vtt.splitlines()[:2] == ["WEBVTT", ""]
    assert vtt.splitlines()[2::3] == [span.replace(",", ".") for span in times]


def test_a_stream_returns_text_during_the_transcription(client: OpenAI) -> None:
    with client.audio.transcriptions.create(
        file=wav(read_samples(SAMPLE_FILE)), model="whisper-1", stream=True
    ) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert len(deltas) >= MIN_DELTAS
    assert events[-1].type == "transcript.text.done"
    assert "".join(deltas) == events[-1].text
    assert calculate_word_error_rate(SPOKEN_TEXT, events[-1].text) <= MAX_ERROR_RATE


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("mp3", "libmp3lame", 44_100), ("flac", "flac", 48_000), ("ogg", "libopus", 48_000), ("mp4", "aac", 44_100)],
)
def test_common_audio_formats_are_supported(client: OpenAI, container: str, codec: str, rate: int) -> None:
    file = encode(speech(SENTENCES[:2], 0.5), container, codec, rate)
    heard = client.audio.transcriptions.create(file=file, model="whisper-1", response_format="json")
    assert calculate_word_error_rate(" ".join(SENTENCES[:2]), heard.text) <= 2 * MAX_ERROR_RATE


def test_an_hour_of_audio_needs_little_memory_and_has_correct_times(client: OpenAI, files: VoicePath) -> None:
    said, places_s = speech(SENTENCES[1:2], 0.0), (0.0, 1800.5, 3590.0)
    hour = np.zeros(HOUR_S * SAMPLE_RATE_HZ, np.int16)
    for at_s in places_s:
        hour[round(at_s * SAMPLE_RATE_HZ) : round(at_s * SAMPLE_RATE_HZ) + len(said)] = said
    process = files.services["gateway"].process
    assert process
    before, most = memory_mib(process.pid), 0.0
    stopping = threading.Event()

    def sample_memory() -> None:
        nonlocal most
        while not stopping.wait(0.05):
            most = max(most, memory_mib(process.pid))

    watching = threading.Thread(target=sample_memory)
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
    assert calculate_word_error_rate(" ".join(SENTENCES[1:2] * 3), heard.text) <= MAX_ERROR_RATE


def memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_killed_engine_loses_no_word(path: VoicePath) -> None:
    engines = {name: path.start_engine(name, address) for name, address in (("a", "127.0.0.1"), ("b", "127.0.0.2"))}
    gateway = path.start_gateway()
    path.wait_until_ready()
    sentences = SENTENCES * 8
    threading.Thread(target=_kill_busy_engine, args=(path, engines)).start()
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=5)
    heard = client.audio.transcriptions.create(file=wav(speech(sentences, 0.6)), model="whisper-1")
    assert any(engine.process and engine.process.poll() is not None for engine in engines.values())
    assert calculate_word_error_rate(" ".join(sentences), heard.text) <= MAX_ERROR_RATE


def _kill_busy_engine(path: VoicePath, engines: dict[str, Service]) -> None:
    import redis  # noqa: PLC0415  the synchronous client, which only this thread uses

    settings = path.store_settings
    password = settings.read_password()
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


def test_the_documented_program_transcribes_a_file(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Path(__file__).parents[2] / "docs/clients.md"
    programs = re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [each for each in programs if "import OpenAI" in each]
    monkeypatch.chdir(tmp_path)
    Path("meeting.m4a").write_bytes(
        wav(read_samples(SAMPLE_FILE)).getvalue()
    )  # the content determines the format, not the name
    exec(compile(text.replace("http://127.0.0.1:8080", gateway.url), document.name, "exec"), {})  # noqa: S102
    words = " ".join(line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines())
    assert calculate_word_error_rate(SPOKEN_TEXT, words) <= MAX_ERROR_RATE
