"""Audio formats of a socket, and their conversion to frames of 16 kHz PCM16."""

import av
import numpy as np
import opuslib_next
import pytest
from pydantic import ValidationError

from voice_gateway.audio import AudioFormat, Encoding, Framer, InvalidAudioError

FRAME_SAMPLES = 320
"""Samples of 20 ms at 16 kHz."""


def samples_of(frames: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(frames), ">i2")


def converted(audio_format: AudioFormat, *messages: bytes) -> np.ndarray:
    framer = Framer(audio_format)
    return samples_of([*(frame for message in messages for frame in framer.push(message)), *framer.flush()])


def tone(duration_s: float, rate: int) -> np.ndarray:
    """Return a tone of 440 Hz."""
    return (10_000 * np.sin(2 * np.pi * 440 * np.arange(round(duration_s * rate)) / rate)).astype("<i2")


def assert_is_the_tone(samples: np.ndarray, duration_s: float) -> None:
    assert len(samples) == pytest.approx(duration_s * 16_000, abs=FRAME_SAMPLES)
    middle = samples[len(samples) // 4 : 3 * len(samples) // 4].astype(float)
    spectrum = np.abs(np.fft.rfft(middle))
    assert spectrum.argmax() * 16_000 / len(middle) == pytest.approx(440, abs=5)
    assert np.sqrt((middle**2).mean()) == pytest.approx(10_000 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize(("rate", "is_allowed"), [(7_999, False), (8_000, True), (192_000, True), (192_001, False)])
def test_sample_rates_of_sound_cards_are_accepted(rate: int, is_allowed: bool) -> None:
    if is_allowed:
        assert AudioFormat(encoding=Encoding.MULAW, rate=rate).rate == rate
        return
    with pytest.raises(ValidationError, match="rate"):
        AudioFormat(rate=rate)


@pytest.mark.parametrize(("channels", "is_allowed"), [(0, False), (1, True), (2, True), (3, False)])
def test_one_or_two_channels_are_accepted(channels: int, is_allowed: bool) -> None:
    if is_allowed:
        assert AudioFormat(channels=channels).channels == channels
        return
    with pytest.raises(ValidationError, match="channels"):
        AudioFormat(channels=channels)


def test_a_start_message_without_parameters_means_pcm16_at_16_khz_in_one_channel() -> None:
    assert AudioFormat() == AudioFormat(encoding=Encoding.PCM16, rate=16_000, channels=1)


@pytest.mark.parametrize(
    ("encoding", "given", "what"),
    [
        (Encoding.OPUS, {"rate": 48_000}, "an Opus packet"),
        (Encoding.OPUS, {"channels": 2}, "an Opus packet"),
        (Encoding.CONTAINER, {"rate": 16_000}, "a container"),
    ],
)
def test_formats_that_describe_themselves_accept_no_rate_or_channels(
    encoding: Encoding, given: dict[str, int], what: str
) -> None:
    assert AudioFormat(encoding=encoding).rate == 16_000
    with pytest.raises(ValidationError, match=f"{what} names both: leave rate and channels away"):
        AudioFormat.model_validate({"encoding": encoding, **given})


@pytest.mark.parametrize("encoding", [Encoding.PCM16, Encoding.CONTAINER])
@pytest.mark.parametrize("size", [1, 3, 639, 640, 641, 1999])
def test_messages_may_end_anywhere_even_within_a_sample(encoding: Encoding, size: int) -> None:
    samples = np.arange(-1000, 1000).astype("<i2")
    audio = samples.tobytes()
    framer = Framer(AudioFormat(encoding=encoding))
    frames = [frame for at in range(0, len(audio), size) for frame in framer.push(audio[at : at + size])]
    assert len(frames) == len(samples) // FRAME_SAMPLES, "each complete frame is returned at once"
    assert (samples_of(frames) == samples[: FRAME_SAMPLES * len(frames)]).all()
    remaining = samples[FRAME_SAMPLES * len(frames) :]
    [last] = framer.flush()
    assert last == remaining.astype(">i2").tobytes() + bytes(640 - 2 * len(remaining)), "padded with silence"
    assert framer.flush() == []


def test_whole_frames_are_not_padded() -> None:
    framer = Framer(AudioFormat())
    assert [len(frame) for frame in framer.push(bytes(1280))] == [640, 640]
    assert framer.flush() == []


def test_two_channels_are_mixed() -> None:
    left, right = np.arange(-500, 500).astype("<i2"), np.full(1000, 3000).astype("<i2")
    audio = np.stack([left, right], axis=1).tobytes()
    mixed = converted(AudioFormat(channels=2), *(audio[at : at + 7] for at in range(0, len(audio), 7)))
    assert np.abs(mixed[:1000] - (left.astype(int) + right) / 2).max() <= 0.5


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000, 192_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_other_sample_rates_are_resampled(rate: int, channels: int) -> None:
    audio = np.repeat(tone(1.0, rate), channels).tobytes()
    messages = [audio[at : at + 4000] for at in range(0, len(audio), 4000)]
    assert_is_the_tone(converted(AudioFormat(rate=rate, channels=channels), *messages), 1.0)


@pytest.mark.parametrize(("encoding", "codec"), [(Encoding.MULAW, "pcm_mulaw"), (Encoding.ALAW, "pcm_alaw")])
def test_g711_is_decoded_as_ffmpeg_does(encoding: Encoding, codec: str) -> None:
    every_byte = bytes(range(256))
    reference = av.codec.CodecContext.create(codec, "r")
    assert isinstance(reference, av.AudioCodecContext)
    reference.sample_rate, reference.layout = 16_000, "mono"
    expected = np.concatenate([frame.to_ndarray()[0] for frame in reference.decode(av.Packet(every_byte))])
    assert converted(AudioFormat(encoding=encoding), every_byte)[:256].tolist() == expected.tolist()


@pytest.mark.parametrize("encoding", [Encoding.MULAW, Encoding.ALAW])
def test_g711_in_two_channels_of_a_telephone_is_mixed_and_resampled(encoding: Encoding) -> None:
    codec = av.codec.CodecContext.create(f"pcm_{encoding}", "w")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout, codec.format = 8_000, "mono", "s16"
    samples = av.AudioFrame.from_ndarray(tone(1.0, 8_000)[None], "s16", "mono")
    samples.sample_rate = 8_000
    audio = b"".join(map(bytes, codec.encode(samples)))
    both = bytes(byte for byte in audio for _ in range(2))
    assert_is_the_tone(converted(AudioFormat(encoding=encoding, rate=8_000, channels=2), both), 1.0)


@pytest.mark.parametrize("packet_ms", [2.5, 20, 60, 120])
def test_opus_packets_of_all_durations_are_decoded(packet_ms: float) -> None:
    """RFC 6716, section 3.2.5: a packet lasts up to 120 ms."""
    encoder = opuslib_next.Encoder(48_000, 2, "audio")
    audio = np.repeat(tone(1.2, 48_000), 2).tobytes()
    samples = round(48 * packet_ms)
    packets = [encoder.encode(audio[at : at + 4 * samples], samples) for at in range(0, len(audio), 4 * samples)]
    assert_is_the_tone(converted(AudioFormat(encoding=Encoding.OPUS), *packets), 1.2)


@pytest.mark.parametrize(
    ("encoding", "message", "reason"),
    [
        (Encoding.PCM16, b"", "0 bytes are no audio"),
        (Encoding.MULAW, b"", "0 bytes are no audio"),
        (Encoding.OPUS, b"", "0 bytes are no Opus packet"),
        (Encoding.OPUS, b"\xff" * 3, "3 bytes are no Opus packet: "),
    ],
)
def test_a_message_without_audio_is_refused(encoding: Encoding, message: bytes, reason: str) -> None:
    with pytest.raises(InvalidAudioError, match=reason):
        Framer(AudioFormat(encoding=encoding)).push(message)
