"""The environment of a `voice` command: a proxy, an old locale, Ctrl-C at any moment, a temporary folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from voice_ops.exits import INTERRUPTED
from voice_stacks.node import disable_unsafe_package_cache

ROOT = Path(__file__).parents[2]
PROGRAM = "from voice_ops.main import main; main()"
SMALL = "deployments/small.yaml"
CLOSED_PORT_URL = "http://127.0.0.1:9"
"""URL of a closed port (9, discard), used as an unresponsive proxy."""


def voice(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip


def test_the_local_engine_is_reached_despite_a_proxy(tmp_path: Path) -> None:
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"), CLOSED_PORT_URL)
    proxies |= {"NO_PROXY": "", "no_proxy": ""}
    done = voice("preview", "azure", "deployments/production-azure.yaml", "--state", str(tmp_path), **proxies)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("arguments", [("plan", "deployments/seed.yaml"), ("--help",), ("plan", "no such ✗ file")])
def test_output_is_written_in_every_encoding(encoding: str, arguments: tuple[str, ...]) -> None:
    done = voice(*arguments, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    printed = done.stdout + done.stderr
    assert b"Traceback" not in printed
    assert b"UnicodeEncodeError" not in printed
    assert done.returncode == (0 if arguments == ("--help",) else 2)
    if "seed" in arguments[-1]:
        assert ("✗ error" if encoding == "utf-8" else "x error") in printed.decode(encoding)


@pytest.mark.parametrize("moment_s", [0.05, 0.1, 0.2, 0.3, 0.5, 0.8])
def test_ctrl_c_is_handled_at_any_time(moment_s: float) -> None:
    """Wait until the program runs: before, Python's default handler would handle SIGINT."""
    announced = f"from voice_ops import main; main.signal.signal(2, main._exit); print(flush=True); {PROGRAM}"
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", announced, "cost", SMALL], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(moment_s)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert b"Traceback" not in errors, errors.decode()
    assert running.returncode == INTERRUPTED


def test_no_temporary_file_remains(tmp_path: Path) -> None:
    done = voice("diagram", SMALL, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr.decode()
    assert list(tmp_path.iterdir()) == []


def test_no_process_or_file_remains_after_ctrl_c_in_a_terminal(tmp_path: Path) -> None:
    """Ctrl-C signals the whole process group: Node.js exits without removing its files."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", PROGRAM, "diagram", "deployments/production-us-east-1.yaml"],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        limit = time.monotonic() + 60
        while not list(tmp_path.rglob("jsii-kernel-*")):
            assert time.monotonic() < limit
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == INTERRUPTED, errors.decode()
    assert list(tmp_path.iterdir()) == [], errors.decode()


def test_group_writable_caches_in_the_home_directory_are_supported(tmp_path: Path) -> None:
    """Caches are group-writable with the umask 0002 of ordinary Debian users, and jsii refuses such a cache."""
    cache = tmp_path / ".cache"
    cache.mkdir()
    cache.chmod(0o775)
    environment = {"JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(cache / "packages")}
    disable_unsafe_package_cache(environment)
    assert environment["JSII_RUNTIME_PACKAGE_CACHE"] == "disabled"
    program = "from voice_stacks.node import start_jsii; start_jsii()"
    shared = {name: value for name, value in os.environ.items() if name != "JSII_RUNTIME_PACKAGE_CACHE"}
    environment.pop("JSII_RUNTIME_PACKAGE_CACHE")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=ROOT, env=shared | environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
