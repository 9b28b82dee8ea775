"""From chunks to utterances, and from utterances to the model's input."""

import random
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from engine_host import chunks_of, cut, sound
from faster_whisper.feature_extractor import FeatureExtractor
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_whisper.session_audio import (
    COMMIT_TRANSCRIPT_SILENCE_S,
    EARLY_TRANSCRIPT_SILENCE_S,
    INCOMPLETE_SENTENCE_SILENCE_FACTOR,
    MAX_CHUNK_GAP_S,
    MAX_REORDER_S,
    DropReason,
    SessionAudio,
)
from voice_whisper.utterance import SILENCE_LEVEL, Utterance
from voice_whisper.window import create_window, select_window_length_s

SSRC = 1
LOG10_ULP = 4
"""Permitted error of NumPy's float32 log10 in units in the last place (umath-validation-set-log10.csv): it depends on
the kernel that NumPy selects for the CPU."""

KINDS = pytest.mark.parametrize("kind", list(ChunkKind))


def heard(chunks: Iterable[AudioChunk], audio: SessionAudio | None = None, *, now: float = 0.0) -> list[Utterance]:
    audio = audio or SessionAudio()
    for chunk in chunks:
        audio.add(chunk, now)
    return audio.pop_finished(now)


@KINDS
@pytest.mark.parametrize("frames", [1, 4, 5, 6, 9, 10, 217, 390])
def test_assembled_features_match_the_reference_extractor(kind: ChunkKind, frames: int) -> None:
    speech = sound()[8000 : 8000 + frames * 320]
    (utterance,) = heard(chunks_of(SSRC, speech, first=7, kind=kind))
    assert (utterance.start, utterance.frame_count, utterance.lost_chunk_count) == (7, frames, 0)
    reference = FeatureExtractor()(speech.astype(np.float32) / 32768)
    window = create_window(utterance.extract_features(80, until_end=True))
    np.testing.assert_allclose(window[:, : reference.shape[1]], reference, atol=1e-3)
    assert not window[:, reference.shape[1] :].any()


@KINDS
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_chunk_order_and_repetition_do_not_matter(kind: ChunkKind, seed: int) -> None:
    speech = sound()[:32000]
    chunks = chunks_of(SSRC, speech, kind=kind)
    (in_order,) = heard(chunks)
    draw = random.Random(seed)
    shuffled = [
        chunk for _, chunk in sorted(enumerate([*chunks, *chunks[3:6]]), key=lambda at: at[0] + draw.uniform(0, 5))
    ]
    audio = SessionAudio()
    for chunk in shuffled:
        audio.add(chunk, 0.0)
        if audio.current_utterance:
            audio.current_utterance.extract_features(80, until_end=False)
    (utterance,) = audio.pop_finished(0.0)
    features = [each.extract_features(80, until_end=True) for each in (in_order, utterance)]
    np.testing.assert_allclose(features[1], features[0], atol=1e-4)


@KINDS
def test_lost_chunk_is_replaced_by_silence(kind: ChunkKind) -> None:
    chunks = chunks_of(SSRC, sound()[:32000], kind=kind)
    (whole,) = heard(chunks)
    audio = SessionAudio()
    assert heard([*chunks[:8], *chunks[9:]], audio) == [], "it may come still"
    (utterance,) = audio.pop_finished(MAX_REORDER_S)
    assert utterance.lost_chunk_count == 1
    rows, expected = utterance.extract_features(80, until_end=True), whole.extract_features(80, until_end=True)
    assert len(rows) == len(expected)
    silence = np.full((5, 80), SILENCE_LEVEL, np.float32)
    np.testing.assert_array_max_ulp(rows[82:87], silence, maxulp=LOG10_ULP)
    np.testing.assert_array_equal(np.delete(rows, slice(77, 92), axis=0), np.delete(expected, slice(77, 92), axis=0))


def test_chunk_after_the_end_of_its_utterance_is_late() -> None:
    chunks = chunks_of(SSRC, sound()[:32000])
    audio = SessionAudio()
    heard([*chunks[:8], *chunks[9:]], audio)
    assert len(audio.pop_finished(MAX_REORDER_S)) == 1
    assert audio.add(chunks[8], MAX_REORDER_S) is DropReason.LATE
    assert audio.add(chunks[-1], MAX_REORDER_S) is DropReason.LATE
    assert audio.current_utterance is None


def test_other_kind_in_an_utterance_is_dropped() -> None:
    audio = SessionAudio()
    audio.add(chunks_of(SSRC, sound()[:32000])[0], 0.0)
    assert audio.add(chunks_of(SSRC, sound()[:32000], kind=ChunkKind.PCM16)[1], 0.0) is DropReason.MIXED_KIND


def test_unended_utterance_ends_with_the_next_one_or_a_timeout() -> None:
    first, second = chunks_of(SSRC, sound()[:16000]), chunks_of(SSRC, sound()[:16000], first=60)
    audio = SessionAudio()
    heard([*first[:-2], second[0]], audio)
    (before,) = audio.pop_finished(MAX_REORDER_S)
    assert (before.start, before.frame_count) == (0, 45)
    assert audio.pop_finished(1.99) == []
    (after,) = audio.pop_finished(2.0)
    assert (after.start, after.frame_count) == (60, 5)


def test_utterance_without_a_start_begins_with_the_next_chunk() -> None:
    chunks = chunks_of(SSRC, sound()[:32000], first=100)
    (utterance,) = heard(chunks[1:])
    assert (utterance.start, utterance.frame_count) == (105, 95)
    audio = SessionAudio()
    (utterance,) = heard([chunks[1], chunks[0], *chunks[2:]], audio)
    assert (utterance.start, utterance.frame_count) == (100, 100)


END_OF_TURN_S = 0.5


def in_two(kind: ChunkKind, pause: int = 20) -> list[AudioChunk]:
    """Return a sentence, with sequence numbers, that the VAD tier cuts at a pause of this many frames."""
    first, second = sound()[: 60 * 320], sound()[60 * 320 : 130 * 320]
    chunks = [*chunks_of(SSRC, first, kind=kind), *chunks_of(SSRC, second, first=60 + pause, kind=kind)]
    return [replace(chunk, number=number) for number, chunk in enumerate(chunks)]


@KINDS
def test_short_pause_is_kept_as_silence(kind: ChunkKind) -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    chunks = in_two(kind)
    for chunk in chunks:
        audio.add(chunk, 0.0)
        if audio.current_utterance:  # transcribed during the pause as if it were complete
            audio.current_utterance.extract_features(80, until_end=audio.current_utterance.end is not None)
    assert audio.pop_finished(0.0) == [], "nothing has said that the sentence is over"
    (utterance,) = audio.pop_finished(INCOMPLETE_SENTENCE_SILENCE_FACTOR * END_OF_TURN_S)
    assert (utterance.start, utterance.frame_count, utterance.lost_chunk_count, utterance.next_chunk_number) == (
        0,
        150,
        0,
        len(chunks),
    )
    parts = [all_of(in_two(kind, 400), place) for place in range(2)]
    rows = utterance.extract_features(80, until_end=True)
    np.testing.assert_allclose(rows[:118], parts[0].extract_features(80, until_end=True)[:118], atol=1e-3)
    np.testing.assert_allclose(rows[162:298], parts[1].extract_features(80, until_end=True)[2:138], atol=1e-3)
    assert (rows[124:156] <= SILENCE_LEVEL + 1e-3).all()


def all_of(chunks: list[AudioChunk], place: int) -> Utterance:
    return heard(chunks)[place]


def test_silence_ends_complete_sentences_sooner() -> None:
    for says_all, ends_at in ((True, END_OF_TURN_S), (False, INCOMPLETE_SENTENCE_SILENCE_FACTOR * END_OF_TURN_S)):
        audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
        for chunk in chunks_of(SSRC, sound()[:32000]):
            audio.add(chunk, 0.0)
        assert audio.find_silent_utterance(EARLY_TRANSCRIPT_SILENCE_S - 0.01) is None
        silent = audio.find_silent_utterance(EARLY_TRANSCRIPT_SILENCE_S)
        assert silent
        silent.is_transcript_complete = says_all
        assert audio.pop_finished(ends_at - 0.01) == []
        assert audio.pop_finished(ends_at) == [silent]


def test_commits_shorten_the_next_silence() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    asked, next_ = in_two(ChunkKind.LOG_MEL)[:10], chunks_of(SSRC, sound()[:32000], first=400)
    asked[-1] = replace(asked[-1], flags=asked[-1].flags | ChunkFlag.COMMIT | ChunkFlag.END_OF_SPEECH)
    for chunk in asked:
        audio.add(chunk, 0.0)
    assert len(audio.pop_finished(0.0)) == 1
    for chunk in next_:
        audio.add(chunk, 0.0)
    assert audio.find_silent_utterance(COMMIT_TRANSCRIPT_SILENCE_S - 0.01) is None
    assert audio.find_silent_utterance(COMMIT_TRANSCRIPT_SILENCE_S) is audio.current_utterance


@KINDS
def test_loss_around_a_pause_is_reported_as_a_gap(kind: ChunkKind) -> None:
    chunks = in_two(kind)
    second = next(place for place, chunk in enumerate(chunks) if chunk.sequence >= 80)
    for missing, gap in ((slice(second - 1, second + 1), None), (slice(3, 5), (15, 25))):
        audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
        for chunk in [chunk for chunk in chunks if chunk not in chunks[missing]]:
            audio.add(chunk, 0.0)
        (utterance,) = audio.pop_finished(INCOMPLETE_SENTENCE_SILENCE_FACTOR * END_OF_TURN_S)
        assert utterance.lost_chunk_count
        assert len(utterance.gaps) == 1
        assert gap in {None, utterance.gaps[0]}


def test_mark_in_a_pause_ends_the_utterance_at_once() -> None:
    nothing = ChunkFlag.START_OF_SPEECH | ChunkFlag.END_OF_SPEECH | ChunkFlag.SILENCE
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    chunks = in_two(ChunkKind.LOG_MEL)
    mark = AudioChunk(SSRC, 159, nothing | ChunkFlag.COMMIT, np.empty((0, 80), np.float32), len(chunks))
    (utterance,) = heard([*chunks, mark], audio)
    assert (utterance.frame_count, utterance.last, utterance.next_chunk_number) == (150, 159, len(chunks) + 1)
    assert utterance.marks == ChunkFlag.COMMIT
    assert audio.add(mark, 0.0) is DropReason.DUPLICATE


def test_speech_after_a_long_pause_starts_a_new_utterance() -> None:
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    over = heard(in_two(ChunkKind.LOG_MEL, pause=51), audio)
    assert [each.frame_count for each in over] == [60]


@KINDS
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_does_not_matter_around_a_pause(kind: ChunkKind, seed: int) -> None:
    draw = random.Random(seed)
    chunks = in_two(kind)
    shuffled = [chunk for _, chunk in sorted(enumerate(chunks), key=lambda at: at[0] + draw.uniform(0, 4))]
    audio = SessionAudio(end_of_turn_s=END_OF_TURN_S)
    for chunk in shuffled:
        audio.add(chunk, 0.0)
    (utterance,) = audio.pop_finished(INCOMPLETE_SENTENCE_SILENCE_FACTOR * END_OF_TURN_S)
    assert (utterance.start, utterance.frame_count, utterance.lost_chunk_count) == (0, 150, 0)


def test_a_session_that_begins_with_a_silence_has_no_gap() -> None:
    """Its first chunk has the number 0, wherever its speech begins; without it, there is a loss."""
    chunks = chunks_of(SSRC, sound()[:32000], first=50)
    (whole,) = heard(chunks)
    assert whole.gap_before is None
    (later,) = heard([replace(chunk, number=chunk.number + 1) for chunk in chunks])
    assert later.gap_before == (0, 50)


def test_split_position_is_the_same_on_every_host() -> None:
    speech = np.tile(sound(), 9)[: 60 * 16000]
    chunks = chunks_of(SSRC, speech, first=10)
    cut = [(each.start, each.frame_count) for each in heard(chunks)]
    assert cut == [(10, 1400), (1410, 1400), (2810, 200)]
    audio = SessionAudio(transcribed_until=1410)
    for chunk in chunks:
        audio.add(chunk, 0.0)
    assert [(each.start, each.frame_count) for each in audio.pop_finished(0.0)] == cut[1:]


@KINDS
def test_utterance_that_just_fits_is_not_cut(kind: ChunkKind) -> None:
    speech = np.tile(sound(), 4)[: 28 * 16000]
    (utterance,) = heard(chunks_of(SSRC, speech, kind=kind))
    assert utterance.frame_count == 1400


def test_window_has_silence_after_the_words() -> None:
    assert [select_window_length_s(rows) for rows in (1, 800, 801, 1300, 1301, 1800, 1801, 2801)] == [
        10, 10, 15, 15, 20, 20, 30, 30,
    ]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4000), st.integers(0, 15), st.sampled_from(ChunkKind), st.integers(0, 10)), max_size=60
    )
)
def test_arbitrary_chunks_do_not_break_a_session(chunks: list[tuple[int, int, ChunkKind, int]]) -> None:
    audio, now = SessionAudio(), 0.0
    starts: list[int] = []
    for sequence, flags, kind, count in chunks:
        values = np.zeros((count, 80), np.float32) if kind is ChunkKind.LOG_MEL else np.zeros(count * 160, np.int16)
        audio.add(AudioChunk(SSRC, sequence, ChunkFlag(flags), values), now)
        now += 0.05
        starts += [each.start for each in audio.pop_finished(now)]
    over = audio.pop_finished(now + MAX_CHUNK_GAP_S)
    assert audio.current_utterance is None
    for utterance in over:
        assert create_window(utterance.extract_features(80, until_end=True)).shape[1] in {500, 1000, 1500, 2000, 3000}
    starts += [each.start for each in over]
    assert starts == sorted(set(starts)), "Valkey refuses what is not in order"


KEPT = 100
"""Frames: two seconds."""


@KINDS
def test_cuts_in_speech_get_surrounding_audio(kind: ChunkKind) -> None:
    speech, at = sound()[: 300 * 320], 151
    audio = SessionAudio(overlap_frames=KEPT)
    first, second = heard(cut(SSRC, speech, at, first=10, kind=kind), audio)
    assert (first.start, first.frame_count, first.is_cut_by_commit) == (10, at, True)
    assert (second.start, second.frame_count, second.is_cut_by_commit, second.lost_chunk_count) == (
        10 + at,
        300 - at,
        False,
        0,
    )
    assert second.split_from is first
    assert at + 10 - KEPT <= second.begin <= at + 10 - KEPT + 5
    (whole,) = heard(chunks_of(SSRC, speech, first=10, kind=kind))
    rows, expected = (each.extract_features(80, until_end=True) for each in (second, whole))
    expected = expected[-len(rows) :]
    seam = 2 * (second.start - second.begin)
    around = np.r_[20 : seam - 4, seam + 4 : len(rows) - 4]
    np.testing.assert_allclose(rows[around], expected[around], atol=1e-3)
    assert np.abs(rows - expected)[20:-4].mean() < 0.05, "the seam itself is nearly whole"


@KINDS
def test_speech_after_a_pause_is_a_separate_utterance(kind: ChunkKind) -> None:
    audio = SessionAudio(overlap_frames=KEPT)
    first, second = (
        chunks_of(SSRC, sound()[:32000], kind=kind),
        chunks_of(SSRC, sound()[32000:64000], first=130, kind=kind),
    )
    _, after = heard([*first, *[replace(chunk, number=20 + place) for place, chunk in enumerate(second)]], audio)
    assert (after.start, after.begin, after.split_from) == (130, 130, None)


@KINDS
def test_late_chunk_is_not_added_to_the_next_utterance(kind: ChunkKind) -> None:
    chunks = cut(SSRC, sound()[: 200 * 320], 100, kind=kind)
    audio = SessionAudio(overlap_frames=KEPT)
    late = chunks.pop(17)
    first, second = heard([*chunks[:-1], late, chunks[-1]], audio)
    assert (first.lost_chunk_count, second.lost_chunk_count) == (0, 0)
    assert (second.start, second.frame_count) == (100, 100)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_chunk_across_a_cut_of_a_long_utterance_is_in_both_pieces(is_late: bool) -> None:
    """After a short pause, chunks do not begin at multiples of their length, so the cut at 28 s is inside one."""
    audio, until = SessionAudio(end_of_turn_s=END_OF_TURN_S), 1807
    chunks = chunks_of(SSRC, np.ones(7 * 320, np.int16), kind=ChunkKind.PCM16)
    chunks += chunks_of(SSRC, np.ones((until - 22) * 320, np.int16), first=22, kind=ChunkKind.PCM16)
    chunks = [replace(chunk, number=number) for number, chunk in enumerate(chunks)]
    if is_late:
        across = next(place for place, chunk in enumerate(chunks) if chunk.sequence == 1397)
        chunks.insert(across + 1, chunks.pop(across))
    for chunk in chunks:
        audio.add(chunk, 0.0)
    pieces = audio.pop_finished(INCOMPLETE_SENTENCE_SILENCE_FACTOR * END_OF_TURN_S)
    assert [(piece.start, piece.start + piece.frame_count) for piece in pieces] == [(0, 1400), (1400, until)]
    assert [(piece.gaps, piece.lost_chunk_count) for piece in pieces] == [([], 0)] * 2
    heard_frames = {
        piece.begin + int(frame) for piece in pieces for frame in np.flatnonzero(piece.decode_samples()[::320])
    }
    assert heard_frames == set(range(7)) | set(range(22, until))


@KINDS
def test_loss_around_a_split_is_a_gap_of_one_part(kind: ChunkKind) -> None:
    audio = SessionAudio()
    chunks = [replace(chunk, number=n) for n, chunk in enumerate(chunks_of(SSRC, np.tile(sound(), 2), kind=kind))]
    for chunk in [*chunks[:20], *chunks[21:95], *chunks[96:100]]:
        audio.add(chunk, 0.0)
    part = audio.current_utterance
    assert part
    audio.split(part, 452)
    rest = audio.current_utterance
    assert rest
    assert (part.start, part.end, part.gaps, part.lost_chunk_count) == (0, 450, [(100, 105)], 1)
    assert (rest.start, rest.gaps, rest.lost_chunk_count) == (450, [(475, 480)], 1)
