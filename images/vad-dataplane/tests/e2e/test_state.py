"""How far a session has come: in shared memory, and a second later in the state store."""

import time
from pathlib import Path

import pytest
from audio import silence, speech
from network import QUEUES
from running import AsrHost, Caller, DataPlane, Store, wait_for

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")


def field(store: Store, ssrc: int, name: str) -> int:
    """Return a number of the session's hash; -1 where it lacks the field."""
    answer = store.do("HGET", f"session:{ssrc}", name)
    return int(answer.split(b"\r\n")[1]) if not answer.startswith(b"$-1") else -1


def test_progress_reaches_the_state_store(store: Store, plane: DataPlane, caller: Caller, host: AsrHost) -> None:
    caller.say(speech() + silence(2))
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    caller.has_stopped()
    found = plane.session(caller.ssrc)
    assert found
    assert found["chunks"] == len(host.of(caller.ssrc))
    wait_for("chunks", lambda: field(store, caller.ssrc, "chunks") == found["chunks"])
    assert field(store, caller.ssrc, "last_sequence") == host.of(caller.ssrc)[-1].sequence
    assert abs(field(store, caller.ssrc, "seen_at") - time.time()) < 60
    assert store.do("HGET", f"session:{caller.ssrc}", "state") == b"$4\r\nopen\r\n"


def test_a_hash_that_is_gone_is_not_made_again(store: Store, plane: DataPlane, caller: Caller) -> None:
    store.do("DEL", f"session:{caller.ssrc}")
    caller.say(speech() + silence(1))
    wait_for("it is noticed", lambda: plane.ask("counters")["events"]["state"]["gone"] > 0)
    assert store.do("EXISTS", f"session:{caller.ssrc}") == b":0\r\n"


def test_numbers_go_on_after_a_kill_and_the_file_goes_with_the_program(
    store: Store, plane: DataPlane, caller: Caller, host: AsrHost
) -> None:
    files = [Path(f"{plane.environment['VOICE_STATE_FILE']}.{queue}") for queue in range(QUEUES)]
    caller.say(speech() + silence(2))
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    caller.has_stopped()
    before = host.of(caller.ssrc)
    wait_for("it is written", lambda: field(store, caller.ssrc, "chunks") == len(before))
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
