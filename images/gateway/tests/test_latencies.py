"""A caller's wait for transcripts, from the send times of its audio, with fixed times."""

from unittest.mock import Mock

import pytest

from voice_gateway.latencies import SocketLatencyRecorder
from voice_gateway.rtp import FRAME_MS
from voice_runtime.transcripts import EventKind, Transcript

FIRST_SENT_S = 100.0


def event(kind: EventKind, text: str, start_frame: int, end_frame: int) -> Transcript:
    return Transcript(
        kind=kind, utterance=start_frame, text=text, start_ms=start_frame * FRAME_MS, end_ms=end_frame * FRAME_MS
    )


def sent_at(frame: int) -> float | None:
    """Return the send time of a frame in real time; those from 1000 on are unknown."""
    return FIRST_SENT_S + frame * FRAME_MS / 1000 if frame < 1000 else None


def test_the_first_text_and_the_first_final_are_measured() -> None:
    """Each from its own speech: the first frame, and the last one."""
    metrics = Mock()
    waits = SocketLatencyRecorder(metrics, None, sent_at)
    waits.record(event(EventKind.SPEECH_STARTED, "", 50, 50), 101.5)
    waits.record(event(EventKind.PARTIAL, "Hello", 50, 80), 102.0)
    waits.record(event(EventKind.PARTIAL, "Hello there", 50, 90), 102.5)
    waits.record(event(EventKind.SPEECH_STOPPED, "", 50, 101), 103.25)
    assert not waits.is_done
    waits.record(event(EventKind.FINAL, "Hello there.", 50, 101), 103.5)
    assert waits.is_done
    waits.record(event(EventKind.FINAL, "Goodbye.", 200, 251), 106.0)
    observed = [(name, pytest.approx(wait_ms)) for name, wait_ms in (("TimeToFirstText", 1000), ("TimeToFinal", 1500))]
    assert [call.args for call in metrics.observe.call_args_list] == observed


def test_audio_with_an_unknown_send_time_is_not_measured() -> None:
    metrics = Mock()
    waits = SocketLatencyRecorder(metrics, None, sent_at)
    waits.record(event(EventKind.FINAL, "Hello.", 1000, 1050), 103.5)
    assert metrics.observe.call_args_list == []


@pytest.mark.parametrize("end_frame", [0, 1])
def test_a_final_of_the_first_frame_is_measured_from_that_frame(end_frame: int) -> None:
    """Also with a clock that has just started, such as that of a machine after its boot."""
    metrics = Mock()
    waits = SocketLatencyRecorder(metrics, None, {0: 0.25, 1: 0.27}.get)
    waits.record(event(EventKind.FINAL, "Hi.", 0, end_frame), 1.0)
    assert [call.args for call in metrics.observe.call_args_list] == [
        ("TimeToFirstText", pytest.approx(750)), ("TimeToFinal", pytest.approx(750)),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [each for each in EventKind if each is not EventKind.FINAL])
def test_only_a_final_completes_the_measurements(kind: EventKind) -> None:
    metrics = Mock()
    waits = SocketLatencyRecorder(metrics, None, sent_at)
    waits.record(event(kind, "", 0, 51), 101.5)
    assert not waits.is_done
    assert metrics.observe.call_args_list == []


def test_a_traced_call_measures_all_of_its_finals() -> None:
    metrics, trace = Mock(), Mock(admitted_at=99.5)
    waits = SocketLatencyRecorder(metrics, trace, sent_at)
    first, second = event(EventKind.FINAL, "One.", 0, 51), event(EventKind.FINAL, "Two.", 100, 151)
    waits.record(first, 101.5)
    waits.record(event(EventKind.SPEECH_STOPPED, "", 100, 151), 103.25)
    waits.record(second, 103.5)
    assert not waits.is_done
    assert [call.args for call in trace.add_span.call_args_list] == [("first packet", 99.5, 100.0)]
    assert [call.args for call in trace.add_utterance.call_args_list] == [
        (first, 101.0, 101.5, 101.5),
        (second, 103.0, 103.25, 103.5),
    ]
