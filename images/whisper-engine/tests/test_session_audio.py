"""Boundaries between a session's utterances, to the frame and to the hundredth of a second."""

from dataclasses import replace

import numpy as np
import pytest

from voice_blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_whisper.session_audio import DropReason, SessionAudio
from voice_whisper.utterance import Utterance

START, END, COMMIT = ChunkFlag.START_OF_SPEECH, ChunkFlag.END_OF_SPEECH, ChunkFlag.COMMIT
END_OF_TURN_S = 0.5


def chunk(sequence: int, flags: int = 0, number: int = 0, frames: int = 5) -> AudioChunk:
    return AudioChunk(1, sequence, ChunkFlag(flags), np.ones(frames * 320, np.int16), number)


def mark(sequence: int, number: int = 0) -> AudioChunk:
    """Return a request for the transcript during silence."""
    return chunk(sequence, START | END | ChunkFlag.SILENCE | COMMIT, number, frames=0)


def speech(first: int, frames: int, number: int = 0) -> list[AudioChunk]:
    """Return the chunks of speech between two pauses."""
    chunks = [chunk(first + at, 0, number + at // 5, min(5, frames - at)) for at in range(0, frames, 5)]
    chunks[0] = replace(chunks[0], flags=chunks[0].flags | START)
    chunks[-1] = replace(chunks[-1], flags=chunks[-1].flags | END)
    return chunks


def add(audio: SessionAudio, *chunks: AudioChunk, now: float = 0.0) -> Utterance:
    """Add chunks, and return the utterance of the last."""
    added = [audio.add(each, now) for each in chunks]
    assert not any(isinstance(each, DropReason) for each in added)
    assert isinstance(added[-1], Utterance)
    return added[-1]


def extents(utterances: list[Utterance]) -> list[tuple[int, int]]:
    return [(each.start, each.start + each.frame_count) for each in utterances]


@pytest.mark.parametrize(("frames", "is_announced"), [(24, False), (25, True), (26, True)])
def test_utterance_whose_start_is_missing_is_announced_after_500_ms(frames: int, is_announced: bool) -> None:
    audio = SessionAudio()
    utterance = add(audio, chunk(10), chunk(10 + frames - 5))
    assert audio.find_utterance_to_announce() is (utterance if is_announced else None)


def test_utterance_is_announced_with_its_first_chunk_and_once() -> None:
    audio = SessionAudio()
    assert audio.find_utterance_to_announce() is None
    utterance = add(audio, chunk(10, START))
    assert audio.find_utterance_to_announce() is utterance
    utterance.is_announced = True
    assert audio.find_utterance_to_announce() is None


def test_earlier_audio_is_late_once_an_utterance_is_announced() -> None:
    audio = SessionAudio()
    add(audio, chunk(10, START))
    audio.find_utterance_to_announce()
    assert audio.transcribed_until == 10
    assert audio.add(chunk(9), 0.0) is DropReason.LATE
    assert audio.add(chunk(4), 0.0) is DropReason.LATE


def test_announcing_an_utterance_accepts_no_transcribed_audio_again() -> None:
    audio = SessionAudio(transcribed_until=12)
    add(audio, mark(11), chunk(12))
    assert audio.pop_finished(0.0)[0].is_mark
    assert audio.transcribed_until == 12
    assert audio.add(chunk(11), 0.0) is DropReason.LATE


def test_a_mark_during_silence_is_no_loss_and_is_complete_at_once() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    utterance = add(audio, mark(20))
    assert (utterance.gaps, utterance.lost_chunk_count) == ([], 0)
    assert audio.pop_finished(0.0) == [utterance]


def test_a_mark_is_no_speech_that_is_announced() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    assert audio.find_silent_utterance(10.0) is None
    add(audio, mark(10))
    assert audio.find_utterance_to_announce() is None
    assert audio.find_silent_utterance(10.0) is None


@pytest.mark.parametrize(("sequence", "is_late"), [(8, True), (9, False), (10, False)])
def test_a_mark_may_be_at_the_last_transcribed_frame(sequence: int, is_late: bool) -> None:
    audio = SessionAudio(transcribed_until=10)
    assert (audio.add(mark(sequence), 0.0) is DropReason.LATE) is is_late
    assert audio.add(chunk(9), 0.0) is DropReason.LATE


def test_a_repeated_mark_begins_no_utterance() -> None:
    audio = SessionAudio()
    add(audio, mark(0))
    assert audio.add(mark(0), 0.0) is DropReason.DUPLICATE
    assert len(audio.pop_finished(0.0)) == 1
    assert audio.add(mark(0), 0.0) is DropReason.DUPLICATE
    assert audio.current_utterance is None
    add(audio, mark(1))
    assert len(audio.pop_finished(0.0)) == 1


def test_a_new_session_expects_the_chunk_0_at_the_position_0() -> None:
    (first,) = (add(SessionAudio(), *speech(0, 10)),)
    audio = SessionAudio()
    assert audio.transcribed_until == 0
    second = add(audio, *speech(20, 10, number=1))
    audio.pop_finished(0.0)
    assert (first.gap_before, second.gap_before) == (None, (0, 20))


@pytest.mark.parametrize(
    ("expected", "number", "until", "gap"),
    [
        (0, 0, 0, None), (0, 1, 0, (0, 2000)), (3, 3, 0, None), (3, 4, 0, (0, 2000)), (3, 4, 1999, (1999, 2000)),
        (3, 4, 2000, None),
    ],
)  # fmt: skip
def test_a_loss_before_an_utterance_shows_in_the_number_of_its_first_chunk(
    expected: int, number: int, until: int, gap: tuple[int, int] | None
) -> None:
    for is_announced in (False, True):
        audio = SessionAudio(until, expected)
        utterance = add(audio, *speech(2000, 10, number))
        if is_announced:
            audio.find_utterance_to_announce()
        else:
            audio.pop_finished(0.0)
        assert utterance.gap_before == gap


def test_each_utterance_continues_the_numbers_of_the_one_before() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 10), *speech(50, 10, number=2), *speech(100, 10, number=5))
    assert [each.gap_before for each in audio.pop_finished(0.0)] == [None, None, (60, 100)]


@pytest.mark.parametrize(
    ("end_of_turn_s", "silence_s", "is_found"),
    [(0.5, 0.23, False), (0.5, 0.24, True), (0.5, 0.3, True), (0.24, 1.0, False), (0.25, 1.0, True), (0.0, 1.0, False)],
)
def test_transcript_starts_0_24_s_into_a_silence_if_more_may_follow(
    end_of_turn_s: float, silence_s: float, is_found: bool
) -> None:
    """An utterance that ends sooner is transcribed at its end."""
    audio = SessionAudio(end_of_turn_s=end_of_turn_s)
    utterance = add(audio, *speech(0, 20))
    assert audio.find_silent_utterance(silence_s) is (utterance if is_found else None)


def test_transcript_of_a_caller_who_commits_starts_0_08_s_into_a_silence() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 10))
    add(audio, mark(9, number=2))
    audio.pop_finished(0.0)
    utterance = add(audio, *speech(200, 10, number=3))
    assert audio.find_silent_utterance(0.07) is None
    assert audio.find_silent_utterance(0.08) is utterance


def test_speech_without_an_end_is_not_silent() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, chunk(0, START))
    assert audio.find_silent_utterance(1.0) is None


@pytest.mark.parametrize(
    ("is_sentence", "ends_at_s"), [(True, END_OF_TURN_S), (False, 2 * END_OF_TURN_S), (None, 2 * END_OF_TURN_S)]
)
def test_an_incomplete_sentence_ends_after_twice_the_silence(is_sentence: bool | None, ends_at_s: float) -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 20)).is_transcript_complete = is_sentence
    assert audio.pop_finished(ends_at_s - 0.01) == []
    assert extents(audio.pop_finished(ends_at_s)) == [(0, 20)]


def test_a_sentence_counts_as_complete_if_no_transcript_precedes_its_end() -> None:
    """Transcripts start 0.24 s into a silence."""
    audio = SessionAudio(end_of_turn_s=0.24)
    add(audio, *speech(0, 20))
    assert extents(audio.pop_finished(0.24)) == [(0, 20)]


def test_a_session_without_pauses_ends_an_utterance_at_once() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 20))
    assert extents(audio.pop_finished(0.0)) == [(0, 20)]


def test_a_missing_chunk_is_lost_after_0_1_s() -> None:
    audio = SessionAudio()
    first, _, *rest = speech(0, 20)
    add(audio, first, *rest)
    assert audio.pop_finished(0.09) == []
    assert extents(audio.pop_finished(0.1)) == [(0, 20)]


@pytest.mark.parametrize("silence_s", [2.0, 2.5])
def test_an_utterance_whose_end_is_missing_ends_after_2_s_without_audio(silence_s: float) -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 20)[:-1])
    assert audio.pop_finished(1.99) == []
    assert extents(audio.pop_finished(silence_s)) == [(0, 15)]


def test_a_mark_ends_an_utterance_during_its_silence() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 20))
    add(audio, mark(30, number=4))
    assert extents(audio.pop_finished(0.0)) == [(0, 20)]


@pytest.mark.parametrize(("pause", "is_continued"), [(1, True), (49, True), (50, True), (51, False)])
def test_speech_after_twice_the_end_of_turn_is_another_utterance(pause: int, is_continued: bool) -> None:
    """0.5 s of silence end a complete sentence, and 1 s, or 50 frames, ends any."""
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    first = add(audio, *speech(0, 20))
    second = add(audio, *speech(20 + pause, 10, number=4))
    assert (second is first) is is_continued
    assert second.start == (0 if is_continued else 20 + pause)


def test_the_maximum_silence_within_a_turn_is_rounded_to_frames() -> None:
    """1.03 s are 51.5 frames."""
    for pause, is_continued in ((52, True), (53, False)):
        audio = SessionAudio(end_of_turn_s=0.515)
        first = add(audio, *speech(0, 20))
        assert (add(audio, *speech(20 + pause, 10, number=4)) is first) is is_continued


def test_audio_after_the_end_is_another_utterance_without_a_start() -> None:
    audio = SessionAudio()
    first = add(audio, *speech(0, 20))
    second = add(audio, chunk(25, number=5))
    assert second is not first
    assert not second.has_start


def test_only_the_current_utterance_is_continued_after_a_pause() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    first, last = add(audio, *speech(0, 20)), add(audio, *speech(200, 10, number=7))
    between = add(audio, *speech(30, 10, number=4))
    assert between not in (first, last)
    assert extents(audio._utterances) == [(0, 20), (30, 40), (200, 210)]


def test_speech_is_another_utterance_after_each_pause_if_no_silence_belongs_to_a_turn() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 20), *speech(20, 10, number=4))
    assert extents(audio.pop_finished(0.0)) == [(0, 20), (20, 30)]


def test_a_mark_is_an_utterance_of_its_own_if_no_silence_belongs_to_a_turn() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 20))
    add(audio, mark(25, number=4))
    assert [each.is_mark for each in audio.pop_finished(0.0)] == [False, True]


def test_a_mark_does_not_end_speech_whose_end_is_missing() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    first = add(audio, chunk(0, START))
    assert add(audio, mark(30, number=2)) is not first


def test_speech_after_a_mark_is_another_utterance() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    first = add(audio, *speech(0, 20))
    add(audio, mark(25, number=4))
    assert add(audio, *speech(30, 10, number=5)) is not first
    assert extents(audio.pop_finished(END_OF_TURN_S * 2)) == [(0, 20), (30, 40)]


@pytest.mark.parametrize(("missing", "is_continued"), [(100, True), (101, False)])
def test_a_gap_above_2_s_starts_another_utterance(missing: int, is_continued: bool) -> None:
    audio = SessionAudio()
    first = add(audio, chunk(0, START), chunk(5))
    assert (add(audio, chunk(5 + missing)) is first) is is_continued


def test_chunks_of_three_utterances_are_assigned_in_any_order() -> None:
    audio = SessionAudio()
    parts = [speech(first, 15, number) for first, number in ((0, 0), (50, 3), (100, 6))]
    owners = [add(audio, part[0], part[-1]) for part in parts]
    assert extents(owners) == [(0, 15), (50, 65), (100, 115)]
    for owner, part in zip(owners, parts, strict=True):
        assert audio.add(part[0], 0.0) is DropReason.DUPLICATE
        assert audio.add(part[1], 0.0) is owner
        assert audio.add(part[1], 0.0) is DropReason.DUPLICATE
    assert extents(audio.pop_finished(0.0)) == [(0, 15), (50, 65), (100, 115)]


def test_an_earlier_utterance_is_inserted_before_later_ones() -> None:
    audio = SessionAudio()
    add(audio, *speech(200, 15, number=6))
    add(audio, *speech(0, 15))
    add(audio, *speech(100, 15, number=3))
    assert audio.current_utterance
    assert audio.current_utterance.start == 200
    assert extents(audio.pop_finished(0.0)) == [(0, 15), (100, 115), (200, 215)]


def test_an_utterance_before_another_ends_without_its_last_chunk() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 15)[:-1], *speech(200, 15, number=3))
    assert audio.pop_finished(0.09) == []
    assert extents(audio.pop_finished(0.1)) == [(0, 10)]


@pytest.mark.parametrize(("pause", "begin"), [(0, 5), (15, 5), (16, None)])
def test_speech_within_300_ms_of_a_transcribed_utterance_repeats_its_end(pause: int, begin: int | None) -> None:
    for is_popped in (False, True):
        audio = SessionAudio(overlap_frames=15)
        first = add(audio, *speech(0, 20))
        if is_popped:
            audio.pop_finished(0.0)
        second = add(audio, *speech(20 + pause, 10, number=4))
        assert (second.start, second.begin) == (20 + pause, 20 + pause if begin is None else begin)
        assert second.split_from is (None if begin is None else first)


def test_speech_does_not_repeat_audio_of_2_s_ago() -> None:
    for since_s, begin in ((2.0, 5), (2.01, 20)):
        audio = SessionAudio(overlap_frames=15)
        add(audio, *speech(0, 20))
        audio.pop_finished(0.0)
        audio.pop_finished(since_s)
        assert add(audio, *speech(20, 10, number=4)).begin == begin


def test_neither_side_of_a_mark_repeats_audio() -> None:
    audio = SessionAudio(overlap_frames=15)
    add(audio, *speech(0, 20))
    audio.pop_finished(0.0)
    silence = add(audio, mark(20, number=4))
    assert (silence.begin, silence.split_from) == (20, None)
    audio.pop_finished(0.0)
    assert add(audio, *speech(25, 10, number=5)).begin == 25


def test_audio_of_another_kind_does_not_belong_to_an_utterance() -> None:
    rows = AudioChunk(1, 5, ChunkFlag(0), np.zeros((10, 80), np.float32))
    for first, other in ((chunk(0, START), rows), (replace(rows, sequence=0, flags=START), chunk(5))):
        audio = SessionAudio()
        add(audio, first)
        assert audio.add(other, 0.0) is DropReason.MIXED_KIND


def test_audio_of_another_kind_is_not_repeated() -> None:
    rows = AudioChunk(1, 0, START | END, np.zeros((11, 80), np.float32))
    for first, number in ((speech(0, 5), 1), ([rows], 1)):
        audio = SessionAudio(overlap_frames=15)
        add(audio, *first)
        audio.pop_finished(0.0)
        is_speech = first[0] is rows
        following = speech(5, 5, number) if is_speech else [replace(rows, sequence=5, number=number)]
        assert add(audio, *following).begin == 5


def test_speech_repeats_the_end_of_the_utterance_right_before_it() -> None:
    audio = SessionAudio(overlap_frames=15)
    add(audio, *speech(0, 20), *speech(100, 20, number=4))
    assert add(audio, *speech(120, 10, number=8)).begin == 105


def test_an_utterance_without_an_overlap_repeats_no_audio() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 20))
    audio.pop_finished(0.0)
    assert add(audio, *speech(20, 10, number=4)).begin == 20


def test_transcribed_audio_is_late() -> None:
    audio = SessionAudio()
    add(audio, *speech(0, 18))
    audio.pop_finished(0.0)
    assert audio.transcribed_until == 18
    assert audio.add(chunk(17), 0.0) is DropReason.LATE
    assert isinstance(audio.add(chunk(18, START), 0.0), Utterance)


def test_a_mark_after_speech_is_transcribed_audio() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    add(audio, *speech(0, 20))
    add(audio, mark(29, number=4))
    audio.pop_finished(0.0)
    assert audio.transcribed_until == 30


def test_audio_before_a_split_is_late() -> None:
    audio = SessionAudio()
    part = add(audio, chunk(0, START), *(chunk(at) for at in range(5, 500, 5)))
    rest = audio.split(part, 452)
    assert audio.transcribed_until == part.last + 1 == 446
    assert (part.end, rest.start) == (450, 450)
    assert audio.current_utterance is rest
    assert audio.find_utterance_to_announce() is None


LIMIT = 100


def continuous(until: int, first: int = 0) -> list[AudioChunk]:
    return [chunk(at, START if at == first else 0, (at - first) // 5) for at in range(first, until, 5)]


@pytest.mark.parametrize(
    ("until", "pieces"),
    [
        (100, [(10, 105)]),
        (110, [(10, 110)]),
        (115, [(10, 110), (110, 115)]),
        (215, [(10, 110), (110, 210), (210, 215)]),
    ],
)
def test_speech_is_cut_at_multiples_of_the_maximum_length(until: int, pieces: list[tuple[int, int]]) -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(until, first=10))
    if until == 100:
        add(audio, chunk(100, 0, 18))
    assert extents(audio._utterances) == pieces


def test_pieces_of_long_speech_are_continuations_that_end_in_order() -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(205))
    first, second, third = audio._utterances
    assert [(each.has_start, each.has_ended, each.is_continuation) for each in (first, second, third)] == [
        (True, True, False), (False, True, True), (False, False, True),
    ]  # fmt: skip
    assert audio.pop_finished(0.0) == [first, second]


def test_speech_after_a_loss_across_a_cut_starts_at_the_cut() -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(80), chunk(130, 0, 26))
    assert extents(audio._utterances) == [(0, 100), (100, 135)]
    add(audio, chunk(100, 0, 20))
    assert audio._utterances[1].lost_chunk_count == 5


def test_a_loss_longer_than_a_piece_leaves_no_piece_without_audio() -> None:
    audio = SessionAudio(max_utterance_frames=50)
    add(audio, *continuous(30), chunk(110, 0, 22))
    assert extents(audio._utterances) == [(0, 50), (100, 115)]


@pytest.mark.parametrize(("late", "is_repeated"), [(96, True), (99, True), (95, False)])
def test_a_late_chunk_across_a_cut_is_in_both_pieces(late: int, is_repeated: bool) -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(90), chunk(late + 5, 0, 19))
    add(audio, chunk(late, 0, 18))
    first, second = audio._utterances
    assert (first.start, first.end, second.start) == (0, 100, 100)
    assert late in first
    assert (late in second) is is_repeated
    assert second.begin == (late if is_repeated else 100)


def test_a_late_chunk_across_the_second_cut_is_in_the_second_and_third_piece() -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(190), chunk(203, 0, 39))
    add(audio, chunk(198, 0, 38))
    _, second, third = audio._utterances
    assert (second.begin, third.start, third.begin) == (100, 200, 198)
    assert 198 in second
    assert 198 in third


def test_a_repeated_chunk_does_not_move_the_next_cut() -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT)
    add(audio, *continuous(95), *(chunk(at, 0, at // 5) for at in range(96, 210, 5)))
    assert [(each.start, each.begin) for each in audio._utterances] == [(0, 0), (100, 96), (200, 196)]


def test_an_overlap_counts_toward_the_maximum_length() -> None:
    audio = SessionAudio(max_utterance_frames=LIMIT, overlap_frames=15)
    add(audio, *speech(0, 20))
    audio.pop_finished(0.0)
    add(audio, *(chunk(at, START if at == 20 else 0, at // 5) for at in range(20, 115, 5)))
    assert [(each.start, each.begin) for each in audio._utterances] == [(20, 5), (105, 105)]
