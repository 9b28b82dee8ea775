"""Progress of a session: in shared memory, and a second later in the state store."""

import time
from pathlib import Path

import pytest
from audio import silence, speech
from network import QUEUES
from running import AsrHost, Caller, DataPlane, Store, wait_for

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")


def test_progress_reaches_the_state_store(store: Store, plane: DataPlane, caller: Caller, host: AsrHost) -> None:
    caller.say(speech() + silence(2))
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    caller.has_stopped()
    found = plane.session(caller.ssrc)
    assert found
    assert found["chunks"] == len(host.of(caller.ssrc))
    wait_for("chunks", lambda: store.field(caller.ssrc, "chunks") == found["chunks"])
    assert store.field(caller.ssrc, "last_sequence") == host.of(caller.ssrc)[-1].sequence
    assert abs(store.field(caller.ssrc, "seen_at") - time.time()) < 60
    assert store.do("HGET", f"session:{caller.ssrc}", "state") == b"$4\r\nopen\r\n"


def test_a_deleted_hash_is_not_recreated(store: Store, plane: DataPlane, caller: Caller) -> None:
    store.do("DEL", f"session:{caller.ssrc}")
    caller.say(speech() + silence(1))
    wait_for("it is noticed", lambda: plane.ask("counters")["events"]["state"]["gone"] > 0)
    assert store.do("EXISTS", f"session:{caller.ssrc}") == b":0\r\n"
    assert not store.do("TTL", f"shipped:{caller.ssrc}").startswith(b":-1"), "it would never expire"


def test_sequence_numbers_continue_after_a_kill_and_the_file_is_removed_on_exit(
    store: Store, plane: DataPlane, caller: Caller, host: AsrHost
) -> None:
    files = [Path(f"{plane.environment['VOICE_STATE_FILE']}.{queue}") for queue in range(QUEUES)]
    caller.say(speech() + silence(2))
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    caller.has_stopped()
    before = host.of(caller.ssrc)
    wait_for("it is written", lambda: store.field(caller.ssrc, "chunks") == len(before))
    plane.kill()
    assert all(file.exists() for file in files)
    host.chunks.clear()
    plane.start()
    again = Caller(plane, caller.ssrc)
    again.enter()
    plane.knows_host()
    again.say(speech() + silence(2))
    wait_for("it is heard", lambda: host.has_ended(caller.ssrc))
    assert host.of(caller.ssrc)[0].sequence > before[-1].sequence
    again.has_stopped()
    found = plane.session(caller.ssrc)
    assert found
    assert found["chunks"] == len(before) + len(host.of(caller.ssrc))
    plane.stop()
    assert not any(file.exists() for file in files)
