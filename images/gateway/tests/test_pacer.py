"""Frames are sent in real time; test_audio_socket.py covers sockets."""

import asyncio

from voice_gateway.pacer import MAX_REDUCED_BUFFER_S, Backlog, Pacer
from voice_gateway.rtp import COMMIT, FRAME_MS


async def test_frames_of_a_real_time_caller_are_not_delayed() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"1", b"2", b"3"])
    assert sent == [b"1"]
    await pacer.wait_until_empty()
    assert sent == [b"1", b"2", b"3"]


async def test_each_frame_has_its_send_time() -> None:
    left: list[float] = []
    loop = asyncio.get_running_loop()

    def send(_: bytes) -> bool:
        left.append(loop.time())
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"frame"] * 5)
    await pacer.wait_until_empty()
    times = [pacer.get_sent_time(frame) for frame in range(5)]
    for before, at, after in zip([0.0, *left], times, left, strict=False):
        assert at is not None
        assert before < at <= after
    assert pacer.get_sent_time(5) is None
    pacer.close()


async def test_audio_after_the_last_commit_can_be_cleared() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"1", b"2", COMMIT, b"3", b"4"])
    assert pacer.clear() == 2
    assert pacer.clear() == 0
    await pacer.wait_until_empty()
    assert sent == [b"1", b"2", COMMIT]


async def test_the_total_backlog_of_all_callers_is_limited() -> None:
    """Each caller may be minutes ahead, until all together have filled the gateway.

    A few seconds each are always permitted.
    """
    frame, kept = bytes(640), round(1000 * MAX_REDUCED_BUFFER_S / FRAME_MS)
    backlog = Backlog(max_bytes=640 * (2 * kept - 1))
    first, second = (Pacer(lambda _: True, backlog) for _ in range(2))
    first.put([frame] * (kept + 1))
    assert not first.is_full
    second.put([frame] * kept)
    assert first.is_full
    first.close()
    assert not second.is_full
    second.close()
    assert backlog.waiting_bytes == 0
