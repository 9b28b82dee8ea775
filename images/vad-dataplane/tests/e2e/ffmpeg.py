"""ffmpeg as the sender of a session."""

import socket
import subprocess

from running import DataPlane

from voice_blueprint.contract.media import Codec
from voice_runtime.media import MediaFormat

ENCODERS = {Codec.L16: "pcm_s16be", Codec.PCMU: "pcm_mulaw", Codec.PCMA: "pcm_alaw", Codec.OPUS: "libopus"}


def send(
    plane: DataPlane, ssrc: int, media: MediaFormat, audio: bytes, *, key: str = "", sequence: int = 1000, port: int = 0
) -> None:
    """Send 16 kHz samples at three times real time, as RTP, or as SRTP with a base64 key.

    Args:
        port: Source port, such as that of a known sender; 0 is any.
    """
    to = f"{plane.network.near_address}:{plane.port('VOICE_RTP_PORT')}"
    frames = ["-frame_duration", str(media.packet_ms), "-b:a", "48k"]
    if media.codec is not Codec.OPUS:
        frames = ["-af", f"aresample={media.rate},asetnsamples={media.rate * media.packet_ms // 1000}"]
    secret = ["-srtp_out_suite", "AES_CM_128_HMAC_SHA1_80", "-srtp_out_params", key] if key else []
    local = f"localaddr={plane.network.far_address}"
    if port:
        local += f"&localrtpport={port}&localrtcpport={plane.store.free_port(socket.SOCK_DGRAM)}"
    with plane.network.far():
        subprocess.run(
            [
                *("chrt", "--fifo", "1"),  # like the senders of scene.py
                *("ffmpeg", "-v", "error", "-readrate", "3", "-f", "s16le", "-ar", "16000", "-ac", "1", "-i", "-"),
                *("-c:a", ENCODERS[media.codec], "-ar", str(media.rate), "-ac", str(media.channels), *frames),
                *("-f", "rtp", "-payload_type", str(media.payload_type), "-ssrc", str(ssrc), "-seq", str(sequence)),
                *secret,
                f"{'srtp' if key else 'rtp'}://{to}?{local}",
            ],
            input=audio,
            check=True,
        )
