"""Words on which two hypotheses agree are stable and do not change."""

import string
import zlib

import numpy as np
import pytest
from engine_host import chunks_of, sound
from hypothesis import given
from hypothesis import strategies as st

from voice_blueprint.contract.chunk import ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_whisper.agreement import LocalAgreement, ends_sentence, join_words, shift_words
from voice_whisper.backends.base import Word
from voice_whisper.session_audio import SessionAudio
from voice_whisper.utterance import MIN_STEADY_FRAMES, Utterance

WORD_S = 0.4


def words(text: str, start: float = 0.0) -> list[Word]:
    """Return words of equal length, one after the other."""
    return [
        Word(f" {each}", start + place * WORD_S, start + (place + 1) * WORD_S, 0.9)
        for place, each in enumerate(text.split())
    ]


def test_repeated_words_are_stable_except_the_last() -> None:
    said = LocalAgreement()
    said.add_hypothesis(words("please fold the"))
    assert (join_words(said.committed), join_words(said.tentative)) == ("", "please fold the")
    said.add_hypothesis(words("Please hold the line while"))
    assert (join_words(said.committed), join_words(said.tentative)) == ("Please", "hold the line while")
    said.add_hypothesis(words("please hold the line, while we"))
    assert join_words(said.committed) == "Please hold the line, while"
    said.add_hypothesis(words("please hold the line, while"))
    assert join_words(said.words) == "Please hold the line, while", "the last word may have been cut"
    said.finish(words("lease fold the line while we connect"))
    assert join_words(said.words) == "Please hold the line, while we connect"


@pytest.mark.parametrize(("at_s", "told"), [(0.79, "please"), (0.8, "please hold"), (0.81, "please hold")])
def test_a_tentative_last_word_that_ends_later_is_omitted(at_s: float, told: str) -> None:
    said = LocalAgreement()
    assert said.list_words_before(at_s) == []
    said.add_hypothesis(words("please hold"))
    assert join_words(said.list_words_before(at_s)) == told
    said.finish(words("please hold"))
    assert join_words(said.list_words_before(at_s)) == "please hold", "it is not tentative"


def test_hypothesis_of_too_little_audio_does_not_vote() -> None:
    said = LocalAgreement()
    said.add_hypothesis(words("thank you"), counts=False)
    assert join_words(said.tentative) == "thank you"
    said.add_hypothesis(words("thank you for"))
    assert not said.committed


def test_text_after_a_split_has_no_repetition() -> None:
    said = LocalAgreement()
    said.add_hypothesis(words("please hold the line while"))
    said.add_hypothesis(words("please hold the line while"))
    rest = said.create_remainder()
    # Recognized again from the third word on, slightly late.
    rest.finish(words("the line while we connect", start=2.2 * WORD_S))
    assert join_words(said.committed + rest.committed) == "please hold the line while we connect"


def test_trailing_loops_are_removed_but_inner_repetitions_are_not() -> None:
    said = LocalAgreement()
    said.finish(words("no no no no that is it is it is it is it"))
    assert join_words(said.words) == "no no no no that is it"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("go go", "go go"),
        ("go now go", "go now go"),
        ("", ""),
        ("go go go", "go"),
        ("we go go go", "we go"),
        ("one may say so now " * 3, "one may say so now"),
        ("one may say so now too " * 3, "one may say so now too " * 3),
        ("1111 1111 1111", "1111 1111 1111"),
    ],
)
def test_a_loop_repeats_up_to_five_words_three_times(said: str, told: str) -> None:
    """Digits occur so in numbers of cards and telephones."""
    agreement = LocalAgreement()
    agreement.finish(words(said))
    assert join_words(agreement.words) == told.strip()


@pytest.mark.parametrize(
    ("start", "told"),
    [(2.0, "d e f"), (2.1, "c d e f")],
    ids=["within a second", "later"],
)
def test_words_that_are_recognized_again_after_a_cut_are_said_once(start: float, told: str) -> None:
    """Times are uncertain by up to a second; after it, the speaker repeats the word."""
    rest = LocalAgreement(words("a b c"))
    rest.finish(words("c d e f", start=start + 0.2 - 1e-9))
    assert join_words(rest.words) == told


@pytest.mark.parametrize(("end", "told"), [(1.05, ""), (1.1, ""), (1.15, "d")])
def test_a_word_that_ends_within_a_tenth_of_a_second_after_the_last_one_is_that_one(end: float, told: str) -> None:
    rest = LocalAgreement([Word(" c", 0.5, 1.0, 0.9)])
    rest.finish([Word(" d", 0.75, end, 0.9)])
    assert join_words(rest.words) == told


@pytest.mark.parametrize(
    ("text", "start", "told"),
    [("one", 1.9375, ""), ("one", 2.0, "one"), ("11", 0.9375, ""), ("11", 1.0, "11"), ("11", 1.5, "11")],
)
def test_a_word_is_repeated_if_it_starts_within_a_second_and_digits_if_they_overlap(
    text: str, start: float, told: str
) -> None:
    rest = LocalAgreement([Word(f" {text}", 0.5, 1.0, 0.9)])
    rest.finish([Word(f" {text}", start, 2.5, 0.9)])
    assert join_words(rest.words) == told


SHORT_S = 0.125


def short_words(text: str, start: float) -> list[Word]:
    return [
        Word(f" {each}", start + place * SHORT_S, start + (place + 1) * SHORT_S, 0.9)
        for place, each in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("repeated", "is_known"),
    [("g", True), ("f g", True), ("d e f g", True), ("c d e f g", True), ("b c d e f g", False)],
)
def test_up_to_five_words_after_a_cut_may_repeat_the_last_ones(repeated: str, *, is_known: bool) -> None:
    said = LocalAgreement()
    said.finish(short_words("a b c d e f g", 0.0))
    rest = said.create_remainder()
    rest.finish(short_words(f"{repeated} h i j k l", 7 * SHORT_S))
    assert join_words(rest.words) == ("" if is_known else f"{repeated} ") + "h i j k l"


def test_an_utterance_that_includes_the_end_of_another_one_only_has_its_own_words() -> None:
    before, after = LocalAgreement(words("first")), LocalAgreement()
    before.finish(words("first please hold"))
    after.continue_from(before)
    after.finish(words("please hold the line", start=WORD_S))
    assert join_words(before.words) == "please hold"
    assert join_words(after.words) == "the line"


@pytest.mark.parametrize("other", ["please fold the line", "please told the line"])
def test_words_after_the_first_difference_are_not_stable(other: str) -> None:
    """Whichever of the two words is earlier in the alphabet."""
    said = LocalAgreement()
    said.add_hypothesis(words("please hold the line"))
    said.add_hypothesis(words(other))
    assert join_words(said.committed) == "please"


def test_words_are_shifted_by_seconds() -> None:
    shifted = shift_words([Word(" one", 0.5, 1.25, 0.9), Word(" two", 1.25, 8.5, 0.8)], 4.0)
    assert shifted == [Word(" one", 4.5, 5.25, 0.9), Word(" two", 5.25, 12.5, 0.8)]


@pytest.mark.parametrize(
    ("text", "is_over"),
    [
        ("Yes.", True),
        ("Yes?", True),
        ("\u306f\u3044\u3002", True),
        ("I would like...", False),
        ("and", False),
        ("", False),
    ],
)
def test_a_sentence_is_over_at_its_punctuation(text: str, *, is_over: bool) -> None:
    assert ends_sentence(text) is is_over


def test_looping_hypothesis_is_discarded() -> None:
    said = LocalAgreement()
    said.add_hypothesis(words("please call"))
    for _ in range(2):
        said.add_hypothesis(words("please count " * 12 + "please " * 20))
    assert (join_words(said.committed), join_words(said.tentative)) == ("", "please call")


def test_a_hypothesis_is_discarded_above_whispers_compression_ratio() -> None:
    """OpenAI's ``transcribe`` repeats the decoding above a ``compression_ratio_threshold`` of 2.4."""
    signs = set()
    for text in ((string.ascii_letters[:size] * 5)[:length] for size in range(12, 52) for length in range(12, 240, 12)):
        size, limit = len(text), 2.4 * len(zlib.compress(text.encode()))
        signs.add((size > limit) - (size < limit))
        said = LocalAgreement()
        said.add_hypothesis([Word(text, 0.0, 1.0, 0.9)])
        assert join_words(said.words) == ("" if size > limit else text)
    assert signs == {-1, 0, 1}


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=9), max_size=9))
def test_certain_words_never_change(hypotheses: list[list[str]]) -> None:
    said, before = LocalAgreement(), list[Word]()
    for hypothesis in hypotheses:
        said.add_hypothesis(words(" ".join(hypothesis)))
        assert said.committed[: len(before)] == before
        before = list(said.committed)


def heard(samples: np.ndarray, kind: ChunkKind) -> Utterance:
    audio = SessionAudio()
    for chunk in chunks_of(1, samples.astype(np.int16), kind=kind):
        audio.add(chunk, 0.0)
    assert audio.current_utterance
    return audio.current_utterance


def test_noise_and_tones_are_classified_as_steady_but_speech_is_not() -> None:
    draw = np.random.default_rng(7)
    seconds = np.arange(5 * 16000) / 16000
    for kind in ChunkKind:
        for steady in (
            draw.normal(0, 2000, 5 * 16000),
            3000 * np.sin(2 * np.pi * 440 * seconds) + draw.normal(0, 20, len(seconds)),
        ):
            assert heard(steady, kind).is_stationary_noise(MIN_STEADY_FRAMES)
        speech = sound()[: 5 * 16000]
        assert not heard(speech, kind).is_stationary_noise(MIN_STEADY_FRAMES)
        noisy = np.clip(speech + draw.normal(0, 300, len(speech)), -32768, 32767)
        assert not heard(noisy, kind).is_stationary_noise(MIN_STEADY_FRAMES)


def test_split_assigns_each_chunk_once_with_two_seconds_of_overlap() -> None:
    for kind in ChunkKind:
        audio = SessionAudio()
        chunks = chunks_of(1, sound(), first=100, kind=kind)
        for number, chunk in enumerate(chunks[:60]):
            added = audio.add(chunk, 0.0)
            assert isinstance(added, Utterance)
            added.add_journal_entry(str(number), chunk.sequence)
        whole = audio.current_utterance
        assert whole
        audio.split(whole, 303)
        rest = audio.current_utterance
        assert rest
        assert (whole.start, whole.frame_count, whole.last) == (100, 200, 295)
        assert (rest.start, rest.begin, rest.frame_count) == (300, 200, 100)
        assert [*whole.entries, *rest.entries] == [str(number) for number in range(60)]
        assert max(whole.entries.values()) == 295
        whole.add_journal_entry("late", 290)
        whole.add_journal_entry("later", 300)
        whole.add_journal_entry("latest", 305)
        assert "late" in whole.entries
        assert {"later", "latest"} <= rest.entries.keys()
        for chunk in chunks[60:]:
            audio.add(chunk, 0.0)
        assert audio.pop_finished(0.0) == [rest]
        (of_all,) = all_of(chunks)
        rows, expected = (each.extract_features(80, until_end=True) for each in (rest, of_all))
        np.testing.assert_allclose(rows[20:-20], expected[len(expected) - len(rows) + 20 : -20], atol=1e-3)
        assert rest.lost_chunk_count == 0


def all_of(chunks: list[AudioChunk]) -> list[Utterance]:
    audio = SessionAudio()
    for chunk in chunks:
        audio.add(chunk, 0.0)
    return audio.pop_finished(0.0)


def test_repeated_groups_of_a_number_are_kept() -> None:
    said = LocalAgreement()
    number = words("my card is 4111 1111 1111 1111")
    for count in (4, 5, 6, 7):
        said.add_hypothesis(number[:count])
    said.finish(words("my card is 4111 1111 1111 1111 thanks"))
    assert join_words(said.words) == "my card is 4111 1111 1111 1111 thanks"
