"""A prefill/decode cell: the deployed pod with tiny models answers like one engine and transfers KV cache.

The test files of the cell run in alphabetical order on one pod, which ``test_cell_stops.py`` stops.
"""

import math

import pytest

from tests.engines.callers import (
    EXTERNAL_HITS,
    HITS,
    PROMPT_TOKENS,
    QUERIES,
    TRANSFERRED_BYTES,
    Caller,
    Growth,
    tone,
    user_message,
)
from tests.engines.cell import MODEL
from voice_blueprint.azure.contract import DECODE_HTTP, ENGINE_HTTP, PD_ROUTER_HTTP
from voice_sandbox.engines.pod import Pod

BLOCK_TOKENS = 128
"""Block size of vLLM's KV cache on a CPU."""
TOKEN_BYTES = 2 * 2 * 2 * 32 * 2
"""KV cache of one token of the tiny model in bytes: keys and values x 2 layers x 2 heads x 32 numbers x 2 bytes."""
PROMPT = "the cell answers as one engine does " * 60
FAILED_TRANSFERS = "vllm:nixl_num_failed_transfers_total"


@pytest.fixture
def front(cell: Pod) -> Caller:
    """Return a client of the cluster's router."""
    return Caller(cell.get_url(ENGINE_HTTP.number), MODEL)


@pytest.fixture
def decode_only(cell: Pod) -> Caller:
    """Return a client of the decode engine, which has the same weights as the cell."""
    return Caller(cell.get_url(DECODE_HTTP.number), MODEL, salt="alone")


def whole_blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK_TOKENS) * BLOCK_TOKENS * TOKEN_BYTES


def test_an_answer_equals_that_of_one_engine_and_its_kv_cache_was_transferred(
    cell: Pod, front: Caller, decode_only: Caller
) -> None:
    prefill, decode = Growth(cell.containers["prefill"]), Growth(cell.containers["decode"])
    answer = front.complete(PROMPT, 16).raise_for_status().json()
    tokens = answer["usage"]["prompt_tokens"]
    computed, received = prefill.take(), decode.take()
    print(
        f"NIXL moved {received[TRANSFERRED_BYTES]} bytes for {tokens} tokens; decode had {received[EXTERNAL_HITS]} "
        "of them"
    )
    assert computed[PROMPT_TOKENS] == received[PROMPT_TOKENS] == received[EXTERNAL_HITS] == tokens
    assert received[TRANSFERRED_BYTES] == whole_blocks(tokens)
    assert received[FAILED_TRANSFERS] == 0

    expected = decode_only.complete(PROMPT, 16).raise_for_status().json()
    assert prefill.take()[PROMPT_TOKENS] == 0
    assert decode.take()[TRANSFERRED_BYTES] == 0
    assert answer["choices"][0]["text"] == expected["choices"][0]["text"]


def test_speech_inside_json_is_prefilled_and_its_kv_cache_is_transferred(
    cell: Pod, front: Caller, decode_only: Caller
) -> None:
    prefill, decode = Growth(cell.containers["prefill"]), Growth(cell.containers["decode"])
    question = [user_message("what was said", tone(440))]
    answer = front.chat(question).raise_for_status().json()
    tokens = answer["usage"]["prompt_tokens"]
    received = decode.take()
    print(f"6 s of audio and a question are {tokens} tokens; {received[EXTERNAL_HITS]} came by NIXL")
    assert tokens > 375  # audio is padded to 30 s, which are 375 tokens
    assert prefill.take()[PROMPT_TOKENS] == received[EXTERNAL_HITS] == tokens
    assert received[TRANSFERRED_BYTES] == whole_blocks(tokens)
    expected = decode_only.chat(question).raise_for_status().json()
    assert answer["choices"][0]["message"]["content"] == expected["choices"][0]["message"]["content"]


def test_cached_speech_is_reused_and_never_confused_with_another_recording(cell: Pod, front: Caller) -> None:
    """Recordings of the same length have the same placeholder tokens, so caches must distinguish them by content."""
    prefill = Growth(cell.containers["prefill"])
    front.chat([user_message("and now", tone(330))]).raise_for_status()
    prefill.take()
    front.chat([user_message("and now", tone(330))]).raise_for_status()
    again = prefill.take()
    front.chat([user_message("and now", tone(331))]).raise_for_status()
    other = prefill.take()
    print(f"the same recording: {again[HITS]} of {again[QUERIES]} tokens; another one: {other[HITS]}")
    assert again[HITS] == (again[QUERIES] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert other[HITS] == other[EXTERNAL_HITS] == 0


def test_an_upload_is_transcribed_by_the_decode_engine_alone(cell: Pod, front: Caller) -> None:
    prefill, decode = Growth(cell.containers["prefill"]), Growth(cell.containers["decode"])
    assert "text" in front.transcribe(tone(220)).raise_for_status().json()
    computed = decode.take()
    assert computed[PROMPT_TOKENS] > 0
    assert computed[EXTERNAL_HITS] == computed[TRANSFERRED_BYTES] == prefill.take()[PROMPT_TOKENS] == 0


def test_the_router_rejects_uploads(cell: Pod) -> None:
    """The front therefore sends uploads directly to the decode engine; a router that accepts them needs no front."""
    answer = Caller(cell.get_url(PD_ROUTER_HTTP.number), MODEL).transcribe(tone(220))
    assert (answer.status_code, answer.text.partition(":")[0]) == (400, "Invalid JSON body")
