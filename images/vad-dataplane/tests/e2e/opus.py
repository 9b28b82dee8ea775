"""An Opus encoder with the features that telephones use: forward error correction and discontinuous transmission."""

import ctypes
from collections.abc import Iterator

from running import SAMPLES_PER_FRAME, frames

_VOIP = 2048
_SET_BITRATE, _SET_INBAND_FEC, _SET_PACKET_LOSS, _SET_DTX, _SET_SIGNAL = 4002, 4012, 4014, 4016, 4024
_VOICE = 3001
_MAX_BYTES = 1275
NOT_SENT_BYTES = 2
"""A packet of this size need not be sent (opus_encoder.c): the decoder continues without it."""


class Encoder:
    """Encodes one channel of 16 kHz audio."""

    def __init__(self, *, copies: bool = False, pauses: bool = False) -> None:
        self._library = ctypes.CDLL("libopus.so.0")
        self._library.opus_encoder_create.restype = ctypes.c_void_p
        error = ctypes.c_int()
        self._state = ctypes.c_void_p(
            self._library.opus_encoder_create(16_000, 1, _VOIP, ctypes.byref(error)),
        )
        assert error.value == 0
        settings = {_SET_BITRATE: 24_000, _SET_SIGNAL: _VOICE, _SET_DTX: int(pauses)}
        settings |= {_SET_INBAND_FEC: int(copies), _SET_PACKET_LOSS: 30 * copies}
        for setting, value in settings.items():
            assert self._library.opus_encoder_ctl(self._state, setting, ctypes.c_int(value)) == 0

    def encode(self, audio: bytes) -> Iterator[bytes]:
        """Yield a packet for each 20 ms of 16 kHz samples."""
        into = ctypes.create_string_buffer(_MAX_BYTES)
        for frame in frames(audio):
            size = self._library.opus_encode(self._state, frame, SAMPLES_PER_FRAME, into, _MAX_BYTES)
            assert size > 0
            yield into.raw[:size]


def has_copy(payload: bytes) -> bool:
    """Return whether a packet with one 20 ms frame contains a copy of the previous frame (RFC 6716, section 4.2.4)."""
    is_celt, frames_code = payload[0] & 0x80, payload[0] & 3
    return not is_celt and not frames_code and len(payload) > 1 and bool(payload[1] & 0x40)
