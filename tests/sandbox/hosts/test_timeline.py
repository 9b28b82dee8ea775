"""A host's timeline is parsed from the output of its boot script."""

from voice_sandbox.hosts.machine import ConsoleLine
from voice_sandbox.hosts.timeline import HostPhase, parse_phases


def console(*printed_lines: tuple[float, str]) -> list[ConsoleLine]:
    return [ConsoleLine(elapsed_s, text) for elapsed_s, text in printed_lines]


def test_each_phase_ends_where_the_next_begins() -> None:
    lines = console(
        (1, "Linux version 6.12"),
        (90, "voice-host: need aws awscli-2"),
        (100, "[  99.1] voice-host: huge_pages"),
        (102, "voice-host: mtu"),
        (105, "voice-host: images"),
        (106, "voice-host: try 1 of 5 failed: docker pull"),
        (180, "voice-host: containers"),
        (200, "voice-host: ready: CONTINUE"),
        (300, "rehearsal: call"),
        (340, "rehearsal: heard"),
        (500, "voice-host: draining for at most 300 s"),
        (510, "voice-host: drained in 5 s"),
        (530, "voice-host: drain: CONTINUE"),
    )
    assert list(parse_phases(lines)) == [
        HostPhase("boot", 0, 100),
        HostPhase("huge pages", 100, 2),
        HostPhase("MTU", 102, 3),
        HostPhase("pull", 105, 75),
        HostPhase("containers ready", 180, 20),
        HostPhase("in service", 200, 100),
        HostPhase("call", 300, 40),
        HostPhase("in service", 340, 160),
        HostPhase("drain", 500, 30),
    ]


def test_a_host_that_aborts_ends_its_last_phase() -> None:
    lines = console((90, "voice-host: huge_pages"), (91, "voice-host: FAILED: huge_pages: asked for 1"))
    assert list(parse_phases(lines)) == [HostPhase("boot", 0, 90), HostPhase("huge pages", 90, 1)]
