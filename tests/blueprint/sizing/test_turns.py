"""Tokens and KV cache of a spoken turn, in the order of an agent's requests."""

import pytest

from voice_blueprint import catalog
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_blueprint.engines.sizing.turns import ANSWER_TOKENS, INSTRUCTION_TOKENS, conversation_turns, kv_megabytes

VOXTRAL = catalog.models()["voxtral-small-24b"]
WORDS, HEARD = 20, 62 + INSTRUCTION_TOKENS
"""Prompt tokens for 5 s of speech: 4 tokens/s as text; 12.5 tokens/s plus the instruction as audio."""


def test_text_is_prefilled_once() -> None:
    found = list(conversation_turns(VOXTRAL, audio=False))
    assert [turn.prompt for turn in found[:3]] == [WORDS, 2 * WORDS + ANSWER_TOKENS, 3 * WORDS + 2 * ANSWER_TOKENS]
    assert {turn.fresh for turn in found} == {WORDS}


def test_earlier_audio_questions_are_cache_hits() -> None:
    found = list(conversation_turns(VOXTRAL, audio=True))
    assert found[0].prompt == found[0].fresh == HEARD
    for number in range(1, MAX_AUDIO_INPUTS):
        assert found[number].prompt == (number + 1) * HEARD + number * ANSWER_TOKENS
        assert found[number].fresh == HEARD + ANSWER_TOKENS


def test_replacing_old_audio_with_text_recomputes_later_turns() -> None:
    sixth = list(conversation_turns(VOXTRAL, audio=True))[MAX_AUDIO_INPUTS]
    assert sixth.prompt == 3 * WORDS + 3 * HEARD + 5 * ANSWER_TOKENS
    assert sixth.fresh == sixth.prompt
    assert list(conversation_turns(VOXTRAL, audio=True))[MAX_AUDIO_INPUTS + 1].fresh == HEARD + ANSWER_TOKENS


def test_kv_cache_of_a_turn() -> None:
    assert kv_megabytes(VOXTRAL, 1000) == pytest.approx(163.84)
