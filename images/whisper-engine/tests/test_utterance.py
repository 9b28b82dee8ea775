"""One utterance of chunks made by hand: its position, its gaps, its parts, and the rows of its features."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import FeatureRows, LogMelExtractor
from voice_whisper import utterance as utterance_module
from voice_whisper.backends.base import Word
from voice_whisper.utterance import (
    ROWS_PER_FRAME,
    SPLIT_THRESHOLD_FRAMES,
    Utterance,
    calculate_end_position,
    count_frames,
    is_mark,
)
from voice_whisper.window import FRAME_MS, create_window, select_window_length_s

START, END = ChunkFlag.START_OF_SPEECH, ChunkFlag.END_OF_SPEECH
COMMIT, LAST = ChunkFlag.COMMIT, ChunkFlag.LAST
NO_FLAGS = ChunkFlag(0)
FRAME_SAMPLES = 320


def pcm(
    sequence: int, flags: ChunkFlag = NO_FLAGS, *, level: int = 1000, samples: int = 1600, number: int = 0
) -> AudioChunk:
    return AudioChunk(1, sequence, flags, np.full(samples, level, np.int16), number)


def mel(sequence: int, rows: Iterable[int], flags: ChunkFlag = NO_FLAGS, number: int = 0) -> AudioChunk:
    """Return a chunk with these numbers as the values of its rows."""
    values = np.repeat(np.fromiter(rows, np.float32)[:, None], 80, axis=1)
    return AudioChunk(1, sequence, flags, values, number)


def mark(sequence: int, flags: ChunkFlag = COMMIT, kind: ChunkKind = ChunkKind.LOG_MEL) -> AudioChunk:
    flags |= START | END
    return mel(sequence, [], flags) if kind is ChunkKind.LOG_MEL else pcm(sequence, flags, samples=0)


def pcm_segment(frames: int, first: int = 0, number: int = 0, level: int = 1000) -> list[AudioChunk]:
    """Return the chunks of speech between two pauses, as the VAD tier cuts it."""
    chunks = [
        pcm(first + at, level=level, samples=min(5, frames - at) * FRAME_SAMPLES, number=number + at // 5)
        for at in range(0, frames, 5)
    ]
    return _with_boundaries(chunks)


def mel_segment(frames: int, first: int = 0, number: int = 0, base: int = 0) -> list[AudioChunk]:
    """Return the same as features, whose rows are numbered from a base.

    A row is complete 200 samples after its centre, so the first chunk has one row fewer than its length, and the last
    chunk has two more. Without space for them, they are in a chunk of their own.
    """
    chunks: list[AudioChunk] = []
    row, total = base, base + 2 * frames + 1
    for at in range(0, frames, 5):
        end = min(row + (10 if at else 9), total)
        if frames - at < 5:
            end = total
        chunks.append(mel(first + at, range(row, end), number=number + len(chunks)))
        row = end
    if row < total:
        chunks.append(mel(first + frames - 1, range(row, total), number=number + len(chunks)))
    return _with_boundaries(chunks)


def _with_boundaries(chunks: list[AudioChunk]) -> list[AudioChunk]:
    chunks[0] = replace(chunks[0], flags=chunks[0].flags | START)
    chunks[-1] = replace(chunks[-1], flags=chunks[-1].flags | END)
    return chunks


def utterance_of(chunks: Sequence[AudioChunk], *, opened: bool | None = None) -> Utterance:
    first = chunks[0]
    found = Utterance(first.sequence, first.kind, opened=bool(first.flags & START) if opened is None else opened)
    for chunk in chunks:
        found.add(chunk, 0.0)
    return found


def without(chunks: Sequence[AudioChunk], *sequences: int) -> list[AudioChunk]:
    return [chunk for chunk in chunks if chunk.sequence not in sequences]


def rows_of(utterance: Utterance) -> list[int]:
    """Return the numbers of the rows of features, which are -10 for silence."""
    rows = utterance.extract_features(80, until_end=True)
    assert (rows == rows[:, :1]).all()
    return [int(value) for value in rows[:, 0]]


SILENCE = -10


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("frames", [1, 4, 5, 6, 13, 20])
def test_rows_of_all_chunks_are_adjacent(frames: int, first: int) -> None:
    whole = utterance_of(mel_segment(frames, first))
    assert (whole.start, whole.frame_count) == (first, frames)
    assert rows_of(whole) == list(range(2 * frames + 1))


def test_rows_after_a_pause_have_the_position_of_their_speech() -> None:
    whole = utterance_of([*mel_segment(13), *mel_segment(12, 23, number=3, base=100)])
    assert rows_of(whole) == [*range(27), *[SILENCE] * 19, *range(100, 125)]


def test_rows_of_a_lost_chunk_are_silence() -> None:
    whole = utterance_of(without(mel_segment(18), 5))
    assert rows_of(whole) == [*range(9), *[SILENCE] * 10, *range(19, 37)]


def test_rows_without_the_start_of_speech_begin_with_the_first_chunk() -> None:
    """Speech after the next pause does not shift them."""
    chunks = mel_segment(13)[1:]
    part = utterance_of(chunks)
    assert rows_of(part) == list(range(9, 27))
    for chunk in mel_segment(12, 23, number=3, base=100):
        part.add(chunk, 0.0)
    assert rows_of(part) == [*range(9, 27), *[SILENCE] * 18, *range(100, 125)]


def test_an_utterance_without_audio_has_no_rows_and_no_length() -> None:
    for kind in ChunkKind:
        empty = Utterance(5, kind, opened=False)
        assert (empty.frame_count, empty.transcribed_frame_count, empty.is_mark, empty.gaps) == (0, 0, False, [])
        assert empty.extract_features(80, until_end=True).shape == (0, 80)
        assert not empty.is_complete


def test_samples_of_a_lost_chunk_are_zero() -> None:
    whole = utterance_of([pcm(7, START, level=1), pcm(17, level=2), pcm(22, END, level=3, samples=700)])
    expected = np.repeat([1, 0, 2, 3, 0], [1600, 1600, 1600, 700, 260])
    np.testing.assert_array_equal(whole.decode_samples(), expected)
    assert whole.frame_count == 18


def test_positions_count_frames_of_20_ms() -> None:
    whole = utterance_of(pcm_segment(23))
    assert whole.frame_count * FRAME_MS == 460 == len(whole.decode_samples()) / 16


@pytest.mark.parametrize(
    ("chunk", "frames"),
    [
        (pcm(10, samples=0), 0),
        (pcm(10, samples=1), 1),
        (pcm(10, samples=320), 1),
        (pcm(10, samples=321), 2),
        (pcm(10, samples=1600), 5),
        *((mel(10, range(rows)), frames) for rows, frames in ((0, 0), (1, 0), (2, 0), (3, 1), (8, 3), (9, 4), (10, 4))),
    ],
)
def test_a_last_chunk_ends_after_its_frames_or_with_its_position(chunk: AudioChunk, frames: int) -> None:
    assert count_frames(chunk) == frames
    assert calculate_end_position(chunk) == 10 + (frames or 1)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (mark(5, COMMIT), True),
        (mark(5, LAST), True),
        (mark(5, COMMIT, ChunkKind.PCM16), True),
        (mark(5, NO_FLAGS), False),
        (mel(5, [], COMMIT), False),
        (mel(5, [], COMMIT | START), False),
        (mel(5, [], COMMIT | END), False),
        (mel(5, range(3), COMMIT | START | END), False),
        (pcm(5, COMMIT | START | END), False),
    ],
)
def test_a_mark_starts_and_ends_without_audio(chunk: AudioChunk, *, expected: bool) -> None:
    assert is_mark(chunk) is expected
    assert utterance_of([chunk]).is_mark is expected


def test_speech_after_a_mark_is_no_mark() -> None:
    assert not utterance_of([mark(5), *mel_segment(13, 6)]).is_mark


@pytest.mark.parametrize(
    ("chunks", "gaps", "lost"),
    [
        (pcm_segment(23), [], 0),
        (without(pcm_segment(23), 5), [(5, 10)], 1),
        (without(pcm_segment(23), 5, 10), [(5, 15)], 2),
        (without(pcm_segment(23), 5, 15), [(5, 10), (15, 20)], 2),
        (without(pcm_segment(23), 20), [], 0),
        (without(mel_segment(20), 15), [(15, 20)], 1),
        (without(mel_segment(20), 10), [(10, 15)], 1),
        ([*pcm_segment(13), *pcm_segment(12, 23, number=3)], [], 0),
        ([*pcm_segment(13), *pcm_segment(12, 23, number=4)], [(13, 23)], 2),
        ([*without(pcm_segment(13), 10), *pcm_segment(12, 23, number=3)], [(10, 23)], 3),
        ([*pcm_segment(13), *without(pcm_segment(12, 23, number=2), 23)], [(13, 28)], 3),
        ([*pcm_segment(13), *pcm_segment(12, 14, number=4)], [(13, 14)], 1),
        ([*pcm_segment(13), *pcm_segment(12, 23, number=0)], [], 0),
    ],
)
def test_gaps_are_losses_but_not_pauses(chunks: list[AudioChunk], gaps: list[tuple[int, int]], lost: int) -> None:
    """A pause is between the end and the start of speech, whose chunks have consecutive numbers."""
    heard = utterance_of(chunks)
    assert (heard.gaps, heard.lost_chunk_count) == (gaps, lost)
    assert heard.is_complete == (heard.end is not None and not lost)


def test_a_loss_before_a_known_end_is_a_gap() -> None:
    heard = utterance_of(pcm_segment(23)[:3])
    assert (heard.gaps, heard.is_complete) == ([], False)
    heard.end = 22
    assert (heard.gaps, heard.lost_chunk_count, heard.is_complete) == ([(15, 22)], 2, False)
    heard.end = 15
    assert (heard.gaps, heard.is_complete) == ([], True)


@pytest.mark.parametrize("sequence", [10, 20])
def test_speech_after_the_end_continues_the_utterance(sequence: int) -> None:
    heard = utterance_of(pcm_segment(10))
    assert (heard.end, heard.has_ended, heard.next_chunk_number) == (10, True, 2)
    heard.is_transcript_complete = True
    heard.add(pcm(sequence, START, number=2), 1.0)
    assert [heard.end, heard.has_ended, heard.is_transcript_complete] == [None, False, None]
    assert (heard.frame_count, heard.next_chunk_number, heard.last_audio_at) == (sequence + 5, -1, 1.0)


def test_a_late_chunk_does_not_end_an_utterance_that_continues() -> None:
    first, second = pcm_segment(13), pcm_segment(12, 23, number=3)
    heard = utterance_of([*first[:2], second[0], first[2]])
    assert (heard.end, heard.last, heard.chunk_numbers) == (None, 23, (0, 4))
    assert heard.frame_count == 28


def test_the_numbers_of_an_utterance_do_not_depend_on_the_order() -> None:
    heard = utterance_of([pcm(25, number=5), pcm(15, number=3), pcm(20, number=4)], opened=False)
    assert heard.chunk_numbers == (3, 6)
    assert (heard.start, heard.begin, heard.last) == (15, 15, 25)


def test_marks_of_an_utterance_are_those_of_its_chunks() -> None:
    heard = utterance_of([pcm(0, START), pcm(5, END)])
    assert (heard.marks, heard.is_announced) == (NO_FLAGS, False)
    heard.add(pcm(10, START | COMMIT), 0.0)
    heard.add(pcm(15, END | LAST), 0.0)
    assert heard.marks == COMMIT | LAST


def test_an_earlier_chunk_does_not_move_the_start_of_a_continuation() -> None:
    rest = Utterance(20, ChunkKind.PCM16, opened=False, continues=True)
    rest.add(pcm(20), 0.0)
    rest.add(pcm(15), 0.0)
    assert (rest.start, rest.begin) == (20, 20)


@pytest.mark.parametrize(("sequence", "may"), [(1, False), (50, False), (51, True), (150, True)])
def test_an_earlier_chunk_within_two_seconds_may_be_the_start(sequence: int, *, may: bool) -> None:
    heard = Utterance(151, ChunkKind.PCM16, opened=False)
    assert heard.may_include(pcm(sequence)) is may
    assert heard.may_include(pcm(sequence, START)) is may
    assert not heard.may_include(pcm(sequence, END))
    heard.add(pcm(156, START), 0.0)
    assert not heard.may_include(pcm(sequence)), "the start has arrived"
    assert not Utterance(151, ChunkKind.PCM16, opened=True).may_include(pcm(sequence))
    assert not Utterance(151, ChunkKind.PCM16, opened=False, continues=True).may_include(pcm(sequence))


@pytest.mark.parametrize(("sequence", "may"), [(51, False), (52, True)])
def test_an_earlier_chunk_is_no_start_of_an_utterance_that_would_exceed_28_s(sequence: int, *, may: bool) -> None:
    heard = utterance_of([pcm(100), pcm(51 + 1400)], opened=False)
    assert heard.may_include(pcm(sequence)) is may


@pytest.mark.parametrize(
    ("chunks", "is_cut"),
    [
        ([pcm(5, START | END | COMMIT)], True),
        ([pcm(5, START), pcm(10, END | COMMIT)], True),
        ([pcm(5, START), pcm(10, END | LAST)], False),
        ([mark(5)], False),
        ([*mel_segment(13), mark(13)], False),
    ],
)
def test_a_commit_cuts_speech_but_not_silence(chunks: list[AudioChunk], *, is_cut: bool) -> None:
    assert utterance_of(chunks).is_cut_by_commit is is_cut


@pytest.mark.parametrize(("overlap", "begin"), [(0, None), (4, None), (5, 45), (9, 45), (10, 40), (14, 40), (20, 30)])
def test_an_overlap_consists_of_whole_chunks(overlap: int, begin: int | None) -> None:
    before = utterance_of(pcm_segment(20, first=30, level=1))
    after = Utterance(50, ChunkKind.PCM16, opened=True)
    after.prepend_overlap(before, overlap)
    after.add(pcm(50, START | COMMIT, level=2), 0.0)
    assert (after.begin, after.split_from) == ((50, None) if begin is None else (begin, before))
    assert (after.start, after.frame_count, after.transcribed_frame_count) == (50, 5, 55 - after.begin)
    expected = np.repeat([1, 2], [FRAME_SAMPLES * (50 - after.begin), 1600])
    np.testing.assert_array_equal(after.decode_samples(), expected)
    assert (after.gaps, after.is_cut_by_commit) == ([], True)


def test_a_commit_before_the_overlap_does_not_cut_the_utterance_after_it() -> None:
    before = utterance_of([*pcm_segment(20)[:-1], pcm(15, END | COMMIT)])
    after = Utterance(20, ChunkKind.PCM16, opened=True)
    after.prepend_overlap(before, 10)
    after.add(pcm(20, START), 0.0)
    assert (before.is_cut_by_commit, after.is_cut_by_commit) == (True, False)


def test_rows_of_an_overlap_have_their_positions() -> None:
    """The first row of the overlap would be before its begin, so its first chunk is a row late."""
    before, after = utterance_of(mel_segment(20)), Utterance(20, ChunkKind.LOG_MEL, opened=True)
    after.prepend_overlap(before, 10)
    for chunk in mel_segment(12, 20, base=100):
        after.add(chunk, 0.0)
    assert rows_of(after) == [*range(19, 28), *range(29, 40), *range(100, 125)]


def test_rows_of_an_overlap_whose_start_is_lost_are_adjacent() -> None:
    before = utterance_of([*mel_segment(13)[1:], *mel_segment(7, 23, number=3, base=100)])
    after = Utterance(30, ChunkKind.LOG_MEL, opened=True)
    after.prepend_overlap(before, 25)
    for chunk in mel_segment(12, 30, base=200):
        after.add(chunk, 0.0)
    assert after.begin == 5
    assert rows_of(after) == [*range(9, 27), *[SILENCE] * 18, *range(100, 114), *range(200, 225)]


@pytest.mark.parametrize("at", [130, 134])
def test_a_split_is_between_chunks_and_repeats_two_seconds(at: int) -> None:
    whole = utterance_of(mel_segment(200)[:30])
    whole.agreement.finish([Word(" one", 0.0, 1.0, 0.9)])
    rest = whole.split(at)
    assert (whole.start, whole.end, whole.frame_count, whole.last) == (0, 130, 130, 125)
    assert (whole.has_ended, whole.next_chunk_number, whole.is_complete) == (True, 30, True)
    assert (rest.start, rest.begin, rest.frame_count, rest.last) == (130, 30, 20, 145)
    assert (rest.is_announced, rest.has_ended, rest.is_continuation, rest.chunk_numbers) == (True, False, True, (0, 30))
    assert not rest.may_include(mel(125, range(10)))
    assert [chunk in whole for chunk in (125, 130)] == [True, False]
    assert [chunk in rest for chunk in (25, 30, 130)] == [False, True, True]
    assert rows_of(whole) == list(range(259))
    assert rows_of(rest) == [*range(59, 68), *range(69, 299)]
    rest.agreement.finish([Word(" one", 0.0, 1.0, 0.9), Word(" two", 1.0, 2.0, 0.9)])
    assert [word.text for word in rest.agreement.words] == [" two"]


def test_each_part_of_a_split_has_the_journal_entries_of_its_chunks() -> None:
    whole = utterance_of(pcm_segment(200)[:30])
    for sequence in (0, 125, 130, 135):
        whole.add_journal_entry(f"{sequence}-0", sequence)
    rest = whole.split(130)
    assert whole.entries == {"0-0": 0, "125-0": 125}
    assert rest.entries == {"130-0": 130, "135-0": 135}
    for sequence in (120, 130, 140):
        whole.add_journal_entry(f"{sequence}-1", sequence)
    assert whole.entries == {"0-0": 0, "125-0": 125, "120-1": 120}
    assert rest.entries == {"130-0": 130, "135-0": 135, "130-1": 130, "140-1": 140}


def test_a_split_of_an_utterance_whose_start_is_lost_keeps_the_rows() -> None:
    rest = utterance_of(mel_segment(200)[1:30]).split(130)
    assert rows_of(rest) == list(range(59, 299))


def test_a_split_repeats_at_least_two_seconds_of_chunks_at_any_position() -> None:
    whole = utterance_of([*pcm_segment(209, 1), *pcm_segment(100, 220, number=42)])
    rest = whole.split(300)
    assert (rest.start, rest.begin) == (300, 196)


def test_a_loss_in_the_repeated_audio_is_a_gap_of_the_first_part() -> None:
    whole = utterance_of(without(pcm_segment(150), 40))
    rest = whole.split(130)
    assert (whole.gaps, rest.gaps) == ([(40, 45)], [])


def test_an_utterance_is_split_when_it_exceeds_the_shortest_window() -> None:
    """A longer window costs more."""
    rows = ROWS_PER_FRAME * SPLIT_THRESHOLD_FRAMES
    assert [select_window_length_s(count) for count in (rows, rows + ROWS_PER_FRAME)] == [10, 15]


@pytest.mark.parametrize(("frames", "is_noise"), [(149, False), (150, True)])
def test_noise_takes_three_seconds(frames: int, *, is_noise: bool) -> None:
    assert utterance_of(pcm_segment(frames)).is_stationary_noise(5) is is_noise


@pytest.mark.parametrize(
    ("other", "frames", "is_noise"), [(100, 150, True), (100, 154, True), (100, 155, False), (105, 150, False)]
)
def test_only_the_last_frames_are_compared(other: int, frames: int, *, is_noise: bool) -> None:
    chunks = [
        replace(chunk, values=chunk.values // (10 if chunk.sequence == other else 1)) for chunk in pcm_segment(155, 100)
    ]
    assert utterance_of(chunks).is_stationary_noise(frames) is is_noise


def test_less_than_a_chunk_is_not_compared() -> None:
    assert not utterance_of(pcm_segment(155)).is_stationary_noise(4)


def _deviating(deviation: float) -> Utterance:
    """Return three seconds of features, half of whose rows are above their mean by the deviation, and half below."""
    levels = np.tile([-deviation, deviation], 5).astype(np.float32)
    rows: FeatureRows = np.repeat(levels[:, None], 80, axis=1)
    return utterance_of([AudioChunk(1, at, START if at == 0 else NO_FLAGS, rows) for at in range(0, 150, 5)])


@pytest.mark.parametrize(("deviation", "is_noise"), [(0.0, True), (0.1, True), (0.14, False), (0.5, False)])
def test_the_level_of_noise_deviates_by_less_than_an_eighth(deviation: float, *, is_noise: bool) -> None:
    assert _deviating(deviation).is_stationary_noise(150) is is_noise


def test_a_deviation_at_the_limit_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utterance_module, "MAX_STEADY_DEVIATION", 0.125)
    assert not _deviating(0.125).is_stationary_noise(150)


def test_digital_silence_is_steady_and_a_faint_sound_is_not() -> None:
    silent = utterance_of(pcm_segment(150, level=0))
    assert silent.is_stationary_noise(150)
    faint = utterance_of(
        [replace(chunk, values=chunk.values * (chunk.number % 2)) for chunk in pcm_segment(150, level=1)]
    )
    assert not faint.is_stationary_noise(150)


def test_the_level_of_samples_is_the_energy_of_each_frame() -> None:
    """Whatever their mean, and even if all chunks have the same samples."""
    values = np.repeat([1000, 10, 1000, 10, 1000], FRAME_SAMPLES) * np.tile([1, -1], 800)
    chunks = [replace(chunk, values=values.astype(np.int16)) for chunk in pcm_segment(150)]
    assert not utterance_of(chunks).is_stationary_noise(150)


def test_the_level_of_samples_is_that_of_whole_frames() -> None:
    chunks = [*pcm_segment(150)[:-1], pcm(145, END, samples=1500)]
    chunks[-1].values[1280:] = 0
    assert utterance_of(chunks).is_stationary_noise(150)


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of samples of each extraction of features."""
    found: list[int] = []

    class Counting(LogMelExtractor):
        def push(self, samples: NDArray[np.int16]) -> FeatureRows:
            found.append(len(samples))
            return super().push(samples)

    monkeypatch.setattr(utterance_module, "LogMelExtractor", Counting)
    return found


def test_features_of_growing_speech_are_extracted_once(extracted: list[int]) -> None:
    chunks = pcm_segment(25)
    heard = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in chunks[:4]:
        heard.add(chunk, 0.0)
        heard.extract_features(80, until_end=False)
    assert extracted == [1600] * 4
    heard.add(chunks[4], 0.0)
    rows = heard.extract_features(80, until_end=True)
    assert extracted == [1600] * 5
    np.testing.assert_allclose(rows, utterance_of(chunks).extract_features(80, until_end=True), atol=1e-4)


def test_features_before_a_gap_are_not_extracted_again(extracted: list[int]) -> None:
    chunks = pcm_segment(25)
    heard = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in (chunks[0], chunks[2]):
        heard.add(chunk, 0.0)
        heard.extract_features(80, until_end=False)
    assert extracted == [1600, 3200]


def test_features_are_extracted_again_after_a_late_chunk(extracted: list[int]) -> None:
    chunks = pcm_segment(25)
    heard = utterance_of([chunks[0], chunks[2]])
    heard.extract_features(80, until_end=False)
    heard.add(chunks[1], 0.0)
    heard.extract_features(80, until_end=False)
    assert extracted == [4800, 4800]


def test_a_window_is_clamped_scaled_and_padded_like_whispers() -> None:
    """As ``log_mel_spectrogram`` of openai-whisper: at most 8 below the maximum, and scaled by 4 around -4."""
    window = create_window(np.array([[-10.0, 0.0], [-6.0, -8.0]], np.float32))
    assert window.shape == (2, 1000)
    np.testing.assert_array_equal(window[:, :2], [[-1.0, -0.5], [1.0, -1.0]])
    assert not window[:, 2:].any()
    assert not create_window(np.empty((0, 2), np.float32)).any()


def test_a_window_holds_at_most_30_s() -> None:
    rows = np.repeat(np.linspace(0, 3, 3001, dtype=np.float32)[:, None], 80, axis=1)
    window = create_window(rows)
    assert window.shape == (80, 3000)
    np.testing.assert_allclose(window[:, -1], (2.999 + 4) / 4)
