"""The server process prints its port and nothing else, and exits with its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from voice_sandbox.aws.process import LocalAws

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "voice_sandbox.aws.server"]


def start_server() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, text=True)  # noqa: S603


@pytest.mark.parametrize("end", ["terminate", "close"])
def test_the_server_ends_on_a_signal_and_with_its_parent(end: str) -> None:
    server = start_server()
    assert server.stdout
    assert server.stdin
    endpoint = json.loads(server.stdout.readline())["endpoint"]
    assert endpoint.startswith("http://localhost:")
    with urllib.request.urlopen(f"{endpoint}/moto-api/") as answer:  # noqa: S310
        assert answer.status == 200
    server.terminate() if end == "terminate" else server.stdin.close()
    assert server.wait(timeout=20) == 0
    assert server.stdout.read() == ""
    assert server.stderr
    assert server.stderr.read() == ""
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(endpoint, timeout=2)  # noqa: S310


def test_the_stores_of_a_killed_server_end_with_it(tmp_path: Path) -> None:
    aws = LocalAws(tmp_path / "aws.log", stores=tmp_path)
    try:
        aws.client("elasticache").create_replication_group(
            ReplicationGroupId="g", ReplicationGroupDescription="x", Engine="valkey", CacheNodeType="cache.r7g.large"
        )
        stores = psutil.Process(aws.pid).children(recursive=True)
        assert [each.name() for each in stores] == ["redis-server"]
        os.kill(aws.pid, signal.SIGKILL)
    finally:
        aws.stop()
    assert psutil.wait_procs(stores, timeout=20)[1] == []
