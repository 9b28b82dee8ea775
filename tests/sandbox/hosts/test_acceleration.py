"""KVM is used if it boots a kernel; a fake QEMU simulates broken hosts."""

from pathlib import Path

import pytest

from voice_sandbox.hosts.acceleration import EMULATION, KVM, detect_accelerator

BOOT_OUTPUT = "echo 'Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)'"
QEMUS = {
    "boots": (BOOT_OUTPUT, KVM),
    "has no /dev/kvm": ("echo 'Could not access KVM kernel module' >&2; exit 1", EMULATION),
    "never boots": ("exec sleep 60", EMULATION),
    "stops before its devices": ("echo 'Linux version 6.12'; exit 0", EMULATION),
}


@pytest.mark.parametrize(("script", "expected"), QEMUS.values(), ids=QEMUS.keys())
def test_kvm_must_boot_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str) -> None:
    qemu = tmp_path / "qemu-system-x86_64"
    qemu.write_text(f'#!/bin/sh\ncase "$*" in *"-accel kvm"*) ;; *) exit 2 ;; esac\n{script}\n', encoding="utf-8")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    within_s = 1 if "sleep" in script else 30
    assert detect_accelerator(tmp_path / "vmlinuz", within_s) == expected
