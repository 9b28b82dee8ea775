"""The phases in a host's boot, parsed from the console output of its user data script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voice_sandbox.hosts.machine import NOTE_PREFIX, ConsoleLine

_LOG_LINE_PATTERN = re.compile(rf"(?:voice-host: |{NOTE_PREFIX})(.*)")
_PHASE_BY_FIRST_WORD = {
    "huge_pages": "huge pages",
    "mtu": "MTU",
    "af_xdp": "queues and ring",
    "instance_store": "instance store",
    "gpu": "accelerator",
    "runtime": "Docker up",
    "images": "pull",
    "state_secret": "secret",
    "containers": "containers ready",
    "call": "call",
    "draining": "drain",
}
"""Phases by the first word that the script logs at their start. The boot precedes the first phase."""
_PHASE_END_PATTERN = re.compile(r"\w+: (CONTINUE|ABANDON)|FAILED|heard")
"""Messages that end a phase without starting another one, such as the completion of a lifecycle action."""
_IN_SERVICE_PHASE = "in service"


@dataclass(frozen=True)
class HostPhase:
    """A phase in the boot of a host.

    Attributes:
        start_s: Seconds since power-on.
    """

    name: str
    start_s: float
    duration_s: float


def parse_phases(lines: Iterable[ConsoleLine]) -> Iterator[HostPhase]:
    """Yield the completed phases in order. The phases of a reboot follow those of the launch."""
    name, start_s = "boot", 0.0
    for line in lines:
        match = _LOG_LINE_PATTERN.search(line.text)
        if not match:
            continue
        phase = _PHASE_BY_FIRST_WORD.get(match[1].split()[0])
        if phase or _PHASE_END_PATTERN.match(match[1]):
            yield HostPhase(name, start_s, line.elapsed_s - start_s)
            name, start_s = phase or _IN_SERVICE_PHASE, line.elapsed_s
