"""Streams that the VAD tier accepts, by codec, rate, channels and packet duration."""

import pytest

from voice_blueprint.contract.media import MAX_TELEPHONE_EVENTS, Codec
from voice_runtime.media import MediaFormat


@pytest.mark.parametrize(
    ("media", "problem"),
    [
        (MediaFormat(Codec.L16, 16000, 1, 20, 96), ""),
        (MediaFormat(Codec.L16, 24000, 1, 30, 96), ""),  # 1440 bytes, the most that a packet holds
        (MediaFormat(Codec.L16, 48000, 2, 20, 96), "a packet would have 3840 bytes, and holds 1440"),
        (MediaFormat(Codec.L16, 32000, 1, 30, 96), "a packet would have 1920 bytes"),
        (MediaFormat(Codec.L16, 11025, 1, 10, 96), "packets of 10 ms at 11025 Hz are not taken"),
        (MediaFormat(Codec.L16, 16000, 1, 70, 96), "packets of 70 ms"),
        (MediaFormat(Codec.L16, 16001, 1, 20, 96), "at 16001 Hz is not taken"),
        (MediaFormat(Codec.PCMU, 8000, 2, 20, 0), "with 2 channels is not taken"),
        (MediaFormat(Codec.PCMA, 8000, 1, 60, 8), ""),
        (MediaFormat(Codec.PCMA, 8000, 1, 20, 0), "payload type 0 is not taken"),
        (MediaFormat(Codec.L16, 16000, 1, 20, 101), "payload type 101 is not taken"),
        (MediaFormat(Codec.OPUS, 48000, 2, 60, 127), ""),
        (MediaFormat(Codec.OPUS, 48000, 2, 60, 128), "payload type 128 is not taken"),
        (MediaFormat(telephone_events=()), "0 payload types of telephone events: name 1 to"),
        (MediaFormat(telephone_events=tuple(range(100, 100 + MAX_TELEPHONE_EVENTS))), ""),
        (
            MediaFormat(telephone_events=tuple(range(100, 101 + MAX_TELEPHONE_EVENTS))),
            "payload types of telephone events",
        ),
        (MediaFormat(telephone_events=(95, 101)), "telephone events of payload type 95, 101 are not supported"),
        (MediaFormat(payload_type=97, telephone_events=(98, 97)), "payload type 97 is not taken"),
    ],
)
def test_media_settings_are_accepted_or_rejected_with_a_reason(media: MediaFormat, problem: str) -> None:
    assert media.unsupported_reason.startswith(problem) if problem == "" else problem in media.unsupported_reason
    assert bool(media.unsupported_reason) is bool(problem)


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (MediaFormat(), "96 L16/16000/1 20"),
        (MediaFormat(Codec.OPUS, 48000, 2, 60, 111), "111 opus/48000/2 60"),
        (MediaFormat(telephone_events=(100, 102)), "96 L16/16000/1 20 100,102"),
        (MediaFormat(telephone_events=(110, 126)), "96 L16/16000/1 20 110,126"),
        (MediaFormat(telephone_events=(101, 102)), "96 L16/16000/1 20 101,102"),
    ],
)
def test_a_record_contains_the_format(media: MediaFormat, text: str) -> None:
    assert str(media) == text
    assert MediaFormat.parse(text) == media


@pytest.mark.parametrize("text", ["", "96 L16/16000/1", "96 L16/16000/1 20 100 101", "x L16/16000/1 20"])
def test_another_record_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        MediaFormat.parse(text)


def test_sdp_names_the_stream_and_what_is_ignored_in_it() -> None:
    def lines(media: MediaFormat) -> list[str]:
        return media.to_sdp("198.51.100.7", 5004, ssrc=7, suite="AEAD_AES_128_GCM", key="a2V5").split("\r\n")

    assert lines(MediaFormat(Codec.PCMU, 8000, 1, 20, 0)) == [
        "v=0", "o=- 7 1 IN IP4 198.51.100.7", "s=-", "c=IN IP4 198.51.100.7", "t=0 0",
        "m=audio 5004 RTP/SAVP 0 101 13", "a=rtpmap:0 PCMU/8000", "a=rtpmap:101 telephone-event/8000",
        "a=rtpmap:13 CN/8000", "a=ptime:20", "a=sendonly", "a=rtcp-mux", "a=ssrc:7 cname:7",
        "a=crypto:1 AEAD_AES_128_GCM inline:a2V5", "",
    ]  # fmt: skip
    assert lines(MediaFormat())[5:8] == [
        "m=audio 5004 RTP/SAVP 96 101", "a=rtpmap:96 L16/16000", "a=rtpmap:101 telephone-event/16000"
    ]  # fmt: skip
    stereo = lines(MediaFormat(Codec.OPUS, 48000, 2, 20, 111))
    assert stereo[5:8] == [
        "m=audio 5004 RTP/SAVP 111 101", "a=rtpmap:111 opus/48000/2", "a=rtpmap:101 telephone-event/48000"
    ]  # fmt: skip
