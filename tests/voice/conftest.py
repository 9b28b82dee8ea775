"""The voice path as processes of this machine: store, gateway, VAD stage, two ASR hosts, a real model."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.demo.command import weights
from ops.demo.services import VoicePath

HOSTS = {"asr-1": "127.0.0.1", "asr-2": "127.0.0.2"}
"""Address of each ASR host: they share the port of chunks."""

NICER = 5


@pytest.fixture
def path(tmp_path: Path) -> Iterator[VoicePath]:
    """The path without a gateway; every test starts those that it needs."""
    with VoicePath(tmp_path, weights(None)) as path:
        path.start_store().wait_ready()
        path.start_vad()
        for name, address in HOSTS.items():
            engine = path.start_engine(name, address, VOICE_DRAIN_TIMEOUT_S="120").process
            assert engine
            # Elsewhere they are machines of their own, and take no time away from those who pass packets on.
            os.setpriority(os.PRIO_PROCESS, engine.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
        yield path
