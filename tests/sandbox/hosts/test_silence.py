"""A machine whose kernel hangs before its first line is reset; a fake QEMU simulates the hang."""

import sys
import time
from pathlib import Path

import pytest

from voice_sandbox.hosts import machine
from voice_sandbox.hosts.acceleration import EMULATION
from voice_sandbox.hosts.certificates import CertificateAuthority
from voice_sandbox.hosts.disk import Disk

HANGS_UNTIL_IT_IS_RESET = f"""#!{sys.executable}
import json, socket, sys
monitor = socket.socket(socket.AF_UNIX)
monitor.bind(next(each for each in sys.argv if each.startswith("unix:"))[5:].partition(",")[0])
monitor.listen()
while True:
    connection, _ = monitor.accept()
    for line in connection.makefile():
        connection.sendall(b'{{"return": ""}}\\n')
        if "system_reset" in line:
            print("booted", flush=True)
"""


def test_a_machine_that_writes_nothing_is_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = tmp_path / "qemu-system-x86_64"
    qemu.write_text(HANGS_UNTIL_IT_IS_RESET, encoding="utf-8")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "detect_accelerator", lambda _: EMULATION)
    monkeypatch.setattr(machine, "_FIRST_LINE_TIMEOUT_S", 1)
    disk = Disk(tmp_path / "root", tmp_path / "vmlinuz", tmp_path / "initrd", CertificateAuthority(tmp_path))
    silent = machine.Machine("silent", disk, machine.DEFAULT_HARDWARE, link=None, folder=tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not silent.find_line("booted"):
            assert time.monotonic() < deadline, silent.read_last_lines()
            time.sleep(0.1)
    finally:
        silent.stop()
    notes = [each.text for each in silent.console_lines if each.text.startswith(machine.NOTE_PREFIX)]
    assert notes
    assert all("nothing on the console for 1 s, so the machine is reset" in each for each in notes)
