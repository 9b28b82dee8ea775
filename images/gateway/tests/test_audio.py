"""Audio formats of a socket."""

import pytest
from pydantic import ValidationError

from voice_gateway.audio import AudioFormat, Encoding


@pytest.mark.parametrize(("rate", "is_allowed"), [(7_999, False), (8_000, True), (192_000, True), (192_001, False)])
def test_sample_rates_of_sound_cards_are_accepted(rate: int, is_allowed: bool) -> None:
    if is_allowed:
        assert AudioFormat(encoding=Encoding.MULAW, rate=rate).rate == rate
        return
    with pytest.raises(ValidationError, match="rate"):
        AudioFormat(rate=rate)


def test_opus_accepts_no_sample_rate() -> None:
    assert AudioFormat(encoding=Encoding.OPUS).rate == 16_000
    with pytest.raises(ValidationError, match="leave rate and channels away"):
        AudioFormat(encoding=Encoding.OPUS, rate=48_000)
