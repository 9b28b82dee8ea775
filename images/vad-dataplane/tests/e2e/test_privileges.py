"""Privileges that the program has dropped before packets arrive."""

import re
from pathlib import Path

import pytest
from running import DataPlane

OF_PACKETS = {"poller", "shipper", "registry", "admission", "presence", "write-behind"}
"""Threads that read input from other hosts."""


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("path", ["socket", "af_packet", "af_xdp"], indirect=True, scope="session")
def test_threads_that_read_packets_have_no_capability(plane: DataPlane) -> None:
    assert plane.process
    seen = set()
    for thread in Path(f"/proc/{plane.process.pid}/task").iterdir():
        status = dict(re.findall(r"^(\w+):\t(.*)$", (thread / "status").read_text(), re.MULTILINE))
        assert status["Seccomp"] == "2", f"{status['Name']} is not confined"
        if status["Name"] in OF_PACKETS:
            seen.add(status["Name"])
            assert {int(status[each], 16) for each in ("CapEff", "CapPrm", "CapInh")} == {0}, status["Name"]
    assert seen == OF_PACKETS
