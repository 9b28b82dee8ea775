"""Frames leave in real time; how they leave from a socket is in test_audio_socket.py."""

from voice_gateway.pacer import Pacer


async def test_the_frame_of_a_caller_in_real_time_waits_for_no_timer() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send)
    pacer.put([b"1", b"2", b"3"])
    assert sent == [b"1"]
    await pacer.empty()
    assert sent == [b"1", b"2", b"3"]
