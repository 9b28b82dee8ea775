"""The table of limits in ``docs/security.md`` refers to existing tests, and contains the numbers of the programs."""

import re
from pathlib import Path

import pytest

from voice_agent import server, siblings
from voice_gateway import callers, gateway, pacer
from voice_runtime import http, state, store, websocket
from voice_whisper import admission, journal_batch

ROOT = Path(__file__).parents[2]
FOLDERS = {"gateway": "gateway", "agent": "agent", "engine": "whisper-engine", "data plane": "vad-dataplane"}
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/security.md").read_text(encoding="utf-8").splitlines()
]
ROWS = [cells for cells in CELLS if cells[0] in FOLDERS and len(cells) == 4]
MIB = 1 << 20
NUMBERS = {
    "test_idle_connections_are_bounded_and_the_busiest_address_loses_its_oldest": (http.MAX_IDLE_CONNECTIONS,),
    "test_incomplete_head_times_out": (http.REQUEST_HEAD_TIMEOUT_S, http.MAX_REQUEST_HEAD_BYTES // 1024),
    "test_unread_responses_are_limited_in_number_and_time": (
        http.MAX_IDLE_CONNECTIONS,
        websocket.CLIENT_READ_TIMEOUT_S,
    ),
    "test_unauthenticated_uploads_are_limited_per_address": (
        gateway.MAX_UNAUTHENTICATED_UPLOADS,
        gateway.UPLOAD_DISCARD_TIMEOUT_S,
    ),
    "test_unknown_keys_do_not_delay_callers": (callers.MAX_WAITING_CALLERS, 2 * callers.ISSUER_TIMEOUT_S),
    "test_incomplete_heads_time_out_and_idle_connections_are_limited": (http.MAX_IDLE_CONNECTIONS,),
    "test_unauthenticated_sockets_beyond_the_limit_close_the_oldest": (
        server.MAX_UNAUTHENTICATED_SOCKETS,
        server.AUTHENTICATION_TIMEOUT_S,
    ),
    "test_silent_sockets_at_a_full_agent_use_no_sibling_slots": (
        siblings.MAX_UNAUTHENTICATED_CONNECTIONS,
        siblings.DISCOVERY_TIMEOUT_S + 2 * siblings.AUTHENTICATION_TIMEOUT_S,
    ),
    "test_unknown_sessions_at_most_double_a_callers_latency": (
        admission.MAX_LOOKUPS,
        admission.MAX_LOOKUPS_PER_S,
    ),
    "test_a_caller_with_too_many_uploads_loses_its_oldest": (gateway.MAX_UPLOADS, gateway.UPLOAD_TIMEOUT_S),
    "test_slow_uploads_use_no_slot": (gateway.MAX_CONCURRENT_FILES,),
    "test_file_queue_is_limited": (state.MAX_FILE_PIECES,),
    "test_decoders_of_containers_are_bounded": (gateway.MAX_CONTAINER_AUDIO_SOCKETS,),
    "test_the_total_backlog_of_all_callers_is_limited": (pacer.MAX_BACKLOG_BYTES // MIB,),
    "test_incomplete_large_messages_are_limited_in_total": (websocket.MAX_TOTAL_LARGE_MESSAGE_BYTES // MIB,),
    "test_readers_of_a_session_are_limited": (gateway.MAX_READERS_PER_SESSION,),
    "test_readers_share_a_connection_to_the_store": (store.MAX_CONNECTIONS,),
    "test_concurrent_hand_overs_are_limited": (siblings.MAX_FORWARDED_CONNECTIONS_PER_SLOT,),
    "test_chunks_that_wait_for_the_store_are_limited": (journal_batch.MAX_WAITING_CHUNKS,),
}
"""Numbers of each row, by test."""


@pytest.mark.parametrize(("program", "bound", "test"), [(row[0], row[2], row[3].strip("`")) for row in ROWS])
def test_each_documented_limit_matches_the_program_and_has_a_test(program: str, bound: str, test: str) -> None:
    files = [
        *ROOT.glob(f"images/{FOLDERS[program]}/tests/**/*.py"),
        *ROOT.glob(f"images/{FOLDERS[program]}/tests/**/*.cpp"),
        *ROOT.glob("images/runtime/tests/*.py"),
    ]
    assert any(re.search(rf"\b{test}\b", each.read_text(encoding="utf-8")) for each in files), test
    missing = [number for number in NUMBERS.get(test, ()) if not re.search(rf"\b{number:g}\b", bound)]
    assert not missing, f"{bound}: {missing}"
    assert bool(re.search(r"\b\d{2,}\b", bound)) <= (test in NUMBERS or program == "data plane"), "a number to compare"
