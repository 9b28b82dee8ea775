"""The decoder's own process: its output, its exit codes and messages, and its limits."""

import io
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import av
import numpy as np
import pytest

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.test_audio_socket import recorded
from images.gateway.tests.test_transcriptions import Unseekable
from images.gateway.tests.test_transcriptions import wav as named_wav
from voice_gateway import decode

NOT_AUDIO = "it is no audio file that can be read here: wav, mp3, flac, ogg, m4a, mp4 and webm can"


@dataclass
class Decoded:
    """What a decoder has written."""

    output: io.BytesIO
    errors: io.StringIO
    code: int = -1

    @property
    def samples(self) -> list[int]:
        return [int(sample) for sample in np.frombuffer(self.output.getvalue(), "<i2")]


Decode = Callable[..., Decoded]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, tuple[object, ...]], Decoded]:
    """Prepares a decoder in this process, whose own limits stay as they are."""
    monkeypatch.setattr("voice_gateway.decode.os.nice", lambda _: 0)
    monkeypatch.setattr("voice_gateway.decode.resource.setrlimit", lambda *_: None)

    def prepare(stdin: int, arguments: tuple[object, ...]) -> Decoded:
        decoded = Decoded(io.BytesIO(), io.StringIO())
        process = SimpleNamespace(
            argv=["decode", *map(str, arguments)],
            stdin=SimpleNamespace(fileno=lambda: stdin),
            stdout=SimpleNamespace(buffer=decoded.output),
            stderr=decoded.errors,
        )
        monkeypatch.setattr(decode, "sys", process)
        return decoded

    return prepare


@pytest.fixture
def run(prepared: Callable[[int, tuple[object, ...]], Decoded], tmp_path: Path) -> Decode:
    """Decodes a file: its content, the maximum duration, and the channel if there is one."""

    def decode_file(content: bytes, *arguments: object) -> Decoded:
        (tmp_path / "file").write_bytes(content)
        with (tmp_path / "file").open("rb") as file:
            decoded = prepared(file.fileno(), arguments)
            decoded.code = decode.main()
        return decoded

    return decode_file


def ramp(size: int, first: int = 0) -> np.ndarray:
    return (first + np.arange(size) % 5000).astype(np.int16)


def wav(samples: np.ndarray, rate: int = 16_000) -> bytes:
    return named_wav(samples, rate)[1]


def encoded(form: str, codec: str, *tracks: np.ndarray, file: io.BytesIO | None = None) -> bytes:
    """Return a file with a mono track of 16 kHz for each array of samples."""
    file = file or io.BytesIO()
    with av.open(file, "w", format=form) as output:
        streams = [output.add_stream(codec, rate=16_000, layout="mono") for _ in tracks]
        for stream, samples in zip(streams, tracks, strict=True):
            assert isinstance(stream, av.AudioStream)
            frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts = 16_000, 0
            output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    return file.getvalue()


def test_samples_are_written_as_little_endian_pcm16(run: Decode) -> None:
    samples = ramp(40_000, -2500)
    decoded = run(wav(samples), 60)
    assert (decoded.code, decoded.errors.getvalue()) == (0, "")
    assert decoded.samples == samples.tolist()


def test_all_channels_are_mixed_unless_one_is_requested(run: Decode) -> None:
    left, right = ramp(20_000), ramp(20_000, -4000)
    content = wav(np.stack([left, right], axis=1))
    assert run(content, 60, 0).samples == left.tolist()
    assert run(content, 60, 1).samples == right.tolist()
    mixed = run(content, 60).samples
    assert np.abs(np.array(mixed) - (left.astype(int) + right) / 2).max() <= 1


@pytest.mark.parametrize(("channels", "channel", "code"), [(1, 0, 0), (1, 1, 2), (2, 1, 0), (2, 2, 2), (1, 2, 2)])
def test_a_missing_channel_has_its_own_exit_code(run: Decode, channels: int, channel: int, code: int) -> None:
    content = wav(np.stack([ramp(1600)] * channels, axis=1))
    decoded = run(content, 60, channel)
    assert (decoded.code, decoded.errors.getvalue(), len(decoded.samples)) == (code, "", 0 if code else 1600)


def test_other_sample_rates_are_resampled_to_16_khz(run: Decode) -> None:
    assert len(run(wav(ramp(48_000), 48_000), 60).samples) == pytest.approx(16_000, abs=50)
    assert len(run(wav(ramp(8_000), 8_000), 60).samples) == pytest.approx(16_000, abs=50)


def test_the_first_of_several_tracks_is_decoded(run: Decode) -> None:
    first, second = ramp(1600), np.full(1600, 7, np.int16)
    assert run(encoded("matroska", "pcm_s16le", first, second), 60).samples == first.tolist()
    assert run(encoded("matroska", "pcm_s16le", first, second), 60, 0).samples == first.tolist()


@pytest.mark.parametrize(
    ("limit_s", "code", "message"),
    [(3, 0, ""), (2, 0, ""), (1, 1, "it lasts 2 s, and the limit is 1 s")],
)
def test_a_file_may_be_as_long_as_the_limit(run: Decode, limit_s: int, code: int, message: str) -> None:
    decoded = run(wav(ramp(32_000)), limit_s)
    assert (decoded.code, decoded.errors.getvalue()) == (code, message)
    assert len(decoded.samples) == (0 if code else 32_000)


@pytest.mark.parametrize(
    ("limit_s", "code", "message"),
    [(3, 0, ""), (2, 0, ""), (1, 1, "it lasts longer than it says, and the limit is 1 s")],
)
def test_a_file_without_its_duration_is_measured(run: Decode, limit_s: int, code: int, message: str) -> None:
    decoded = run(encoded("flac", "flac", ramp(32_000), file=Unseekable()), limit_s)
    assert (decoded.code, decoded.errors.getvalue()) == (code, message)
    assert len(decoded.samples) <= 16_000 * limit_s


def test_a_file_without_audio_is_refused(run: Decode) -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream("rawvideo", rate=25)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((24, 16), np.uint8), format="yuv420p")))
    decoded = run(file.getvalue(), 60)
    assert (decoded.code, decoded.errors.getvalue()) == (1, "there is no audio in it")


def test_a_file_whose_audio_is_damaged_throughout_is_refused(run: Decode) -> None:
    content = encoded("matroska", "flac", ramp(16_000))
    start = content.index(b"\xff\xf8")  # the first frame
    damaged = content[:start] + bytes(len(content) - start)
    decoded = run(damaged, 60)
    assert (decoded.code, decoded.errors.getvalue()) == (1, "there is no audio in it that can be decoded")


@pytest.mark.parametrize("content", [b"", b"RIFF", b"no audio" * 1000])
def test_other_files_are_refused(run: Decode, content: bytes) -> None:
    decoded = run(content, 60)
    assert (decoded.code, decoded.errors.getvalue(), decoded.samples) == (1, NOT_AUDIO, [])


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.FileIO]]:
    """A pipe: the descriptor of its reader, and its writer."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0), io.FileIO(writer, "wb") as writing:
        yield reader, writing


@pytest.mark.parametrize(("form", "codec"), [("webm", "libopus"), ("ogg", "libopus"), ("wav", "pcm_s16le")])
def test_a_growing_file_is_decoded_while_it_arrives(
    prepared: Callable[[int, tuple[object, ...]], Decoded], pipe: tuple[int, io.FileIO], form: str, codec: str
) -> None:
    pieces = list(recorded(np.tile(ramp(4800), 20), form, codec))
    reader, writer = pipe
    decoded = prepared(reader, (60,))

    def decode_pipe() -> None:
        decoded.code = decode.main()

    decoding = threading.Thread(target=decode_pipe)
    decoding.start()
    writer.write(b"".join(pieces[:10]))
    end = time.monotonic() + BUSY_TIMEOUT_S
    while len(decoded.samples) < 8000 and time.monotonic() < end:
        time.sleep(0.01)
    early = len(decoded.samples)
    writer.write(b"".join(pieces[10:]))
    writer.close()
    decoding.join()
    assert 8000 <= early <= 16_000
    assert decoded.code == 0
    assert len(decoded.samples) == pytest.approx(32_000, abs=1600)


def test_a_decoder_has_little_memory_and_time_and_writes_no_core_file() -> None:
    """1 GiB and three minutes are enough for an hour of audio; its files contain callers' speech."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "voice_gateway.decode", "60"]
    with Popen(command, stdin=PIPE, stdout=PIPE, env=environment) as decoder:
        assert decoder.stdin
        assert decoder.stdout
        decoder.stdin.write(wav(ramp(64_000)))  # more than is read to detect the format
        decoder.stdin.flush()
        decoder.stdout.read(2)
        limits = {
            kind: resource.prlimit(decoder.pid, kind)
            for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)
        }
        niceness = os.getpriority(os.PRIO_PROCESS, decoder.pid) - os.getpriority(os.PRIO_PROCESS, 0)
        decoder.stdin.close()
        decoder.stdout.read()
    assert decoder.returncode == 0
    assert limits == {
        resource.RLIMIT_AS: (2**30, 2**30), resource.RLIMIT_CPU: (180, 180), resource.RLIMIT_CORE: (0, 0),
    }  # fmt: skip
    assert niceness == 10
