"""Speech while ASR hosts join and leave. The result does not depend on the data path."""

from collections.abc import Iterator

import pytest
from audio import silence, speech
from running import END_OF_SPEECH, START_OF_SPEECH, AsrHost, Caller, DataPlane, Store, frames, wait_for

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
SECOND = "127.0.0.2"


@pytest.fixture
def second(store: Store, plane: DataPlane, host: AsrHost) -> Iterator[AsrHost]:  # noqa: ARG001
    """Start a second host, which receives nothing while the first, with Neuron cores, has free slots."""
    asr = AsrHost(store, plane.port("VOICE_CHUNK_PORT"), name="asr-2", kind="gpu", address=SECOND)
    plane.knows_host(2)
    yield asr
    asr.die()


def say_half(caller: Caller, host: AsrHost) -> bytes:
    """Say the first half of a sentence and return the second half with the following silence."""
    sentence = b"".join(frames(speech("how can I help you today")))
    half = len(sentence) // 2
    caller.say(sentence[:half])
    wait_for("the first half is heard", lambda: len(host.of(caller.ssrc)) >= 3)
    return sentence[half:] + silence(3)


def numbers(host: AsrHost, caller: Caller) -> list[int]:
    return [chunk.sequence for chunk in host.of(caller.ssrc)]


def test_a_host_that_is_killed_loses_no_speech(
    plane: DataPlane, caller: Caller, host: AsrHost, second: AsrHost
) -> None:
    rest = say_half(caller, host)
    caller.is_taken()
    host.die()
    caller.say(rest)
    wait_for("the end of the utterance", lambda: second.has_ended(caller.ssrc))
    caller.has_stopped()
    found = plane.session(caller.ssrc)
    assert found
    wait_for("all of it", lambda: len(set(numbers(second, caller))) == found["chunks"])
    assert set(numbers(host, caller)) < set(numbers(second, caller)), "what the dead one had is here, and the rest"
    assert numbers(second, caller) == sorted(numbers(second, caller)), "in its order"
    assert plane.ask("counters")["events"]["ship"]["resent"] >= len(numbers(host, caller))


def test_a_host_without_heartbeats_loses_no_speech(
    plane: DataPlane, caller: Caller, host: AsrHost, second: AsrHost
) -> None:
    rest = say_half(caller, host)
    host.fall_silent()
    plane.knows_host(1)
    caller.say(rest)
    wait_for("the end of the utterance", lambda: second.has_ended(caller.ssrc))
    caller.has_stopped()
    found = plane.session(caller.ssrc)
    assert found
    wait_for("all of it", lambda: len(set(numbers(second, caller))) == found["chunks"])


def test_a_draining_host_finishes_the_utterance_and_receives_no_more(
    store: Store, plane: DataPlane, caller: Caller, host: AsrHost, second: AsrHost
) -> None:
    rest = say_half(caller, host)
    before = len(numbers(host, caller))
    host.draining = True
    wait_for("it says so", lambda: store.do("HGET", "host:asr:asr-1", "draining") == b"$1\r\n1\r\n")
    refreshes = plane.ask("counters")["events"]["registry"]["refreshes"]
    wait_for("it is read", lambda: plane.ask("counters")["events"]["registry"]["refreshes"] >= refreshes + 2)
    caller.say(rest)
    wait_for("its host hears the end", lambda: host.has_ended(caller.ssrc))
    assert len(numbers(host, caller)) > before
    caller.say(speech() + silence(3))
    wait_for("the next utterance is the other's", lambda: second.has_ended(caller.ssrc))
    caller.is_taken()
    assert host.of(caller.ssrc)[-1].flags & END_OF_SPEECH
    assert second.of(caller.ssrc)[0].flags & START_OF_SPEECH
    assert plane.ask("counters")["events"]["ship"]["resent"] == 0


def test_speech_stays_in_its_zone_while_a_local_host_has_capacity(store: Store, plane: DataPlane) -> None:
    plane.environment["VOICE_ZONE"] = "us-east-1b"
    port = plane.port("VOICE_CHUNK_PORT")
    far = AsrHost(store, port, name="asr-1", zone="us-east-1a")
    near = AsrHost(store, port, name="asr-2", address=SECOND, zone="us-east-1b")
    try:
        plane.start()
        plane.knows_host(2)
        for ssrc in range(1, 5):
            who = Caller(plane, ssrc)
            store.open_session(ssrc)
            who.enter()
            who.say(speech("how can I help you today") + silence(1))
            wait_for("it is heard there", lambda ssrc=ssrc: near.has_ended(ssrc))  # type: ignore[misc]
        assert not far.chunks
        near.fall_silent()
        plane.knows_host(1)
        store.open_session(5)
        who = Caller(plane, 5)
        who.enter()
        who.say(speech("how can I help you today") + silence(1))
        wait_for("another zone is better than none", lambda: far.has_ended(5))
    finally:
        far.die()
        near.die()
