"""Tokens and KV cache of a spoken turn, in the order of an agent's requests."""

import pytest

from voice_blueprint import catalog
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_blueprint.engines.sizing.turns import (
    INSTRUCTION_TOKEN_COUNT,
    TOKENS_PER_ANSWER,
    calculate_kv_cache_mb,
    iter_conversation_turns,
)

VOXTRAL = catalog.models()["voxtral-small-24b"]
WORDS, HEARD = 20, 62 + INSTRUCTION_TOKEN_COUNT
"""Prompt tokens for 5 s of speech: 4 tokens/s as text; 12.5 tokens/s plus the instruction as audio."""


def test_text_is_prefilled_once() -> None:
    found = list(iter_conversation_turns(VOXTRAL, audio=False))
    assert [turn.prompt_tokens for turn in found[:3]] == [
        WORDS,
        2 * WORDS + TOKENS_PER_ANSWER,
        3 * WORDS + 2 * TOKENS_PER_ANSWER,
    ]
    assert {turn.uncached_tokens for turn in found} == {WORDS}


def test_earlier_audio_questions_are_cache_hits() -> None:
    found = list(iter_conversation_turns(VOXTRAL, audio=True))
    assert found[0].prompt_tokens == found[0].uncached_tokens == HEARD
    for number in range(1, MAX_AUDIO_INPUTS):
        assert found[number].prompt_tokens == (number + 1) * HEARD + number * TOKENS_PER_ANSWER
        assert found[number].uncached_tokens == HEARD + TOKENS_PER_ANSWER


def test_replacing_old_audio_with_text_recomputes_later_turns() -> None:
    sixth = list(iter_conversation_turns(VOXTRAL, audio=True))[MAX_AUDIO_INPUTS]
    assert sixth.prompt_tokens == 3 * WORDS + 3 * HEARD + 5 * TOKENS_PER_ANSWER
    assert sixth.uncached_tokens == sixth.prompt_tokens
    assert (
        list(iter_conversation_turns(VOXTRAL, audio=True))[MAX_AUDIO_INPUTS + 1].uncached_tokens
        == HEARD + TOKENS_PER_ANSWER
    )


def test_kv_cache_of_a_turn() -> None:
    assert calculate_kv_cache_mb(VOXTRAL, 1000) == pytest.approx(163.84)
