"""Local programs are reached directly if the operator's network has an unresponsive proxy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import voice_blueprint
from voice_blueprint.shipped import ROOT
from voice_sandbox.aws.process import LocalAws
from voice_sandbox.loopback import bypass_proxy_for_loopback
from voice_sandbox.rehearsals.cdk import Cdk

DEAD_PROXY = "http://127.0.0.1:9"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "grpc_proxy"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "localhost,127.0.0.1,::1"),
        ("example.org, 10.0.0.0/8", "example.org,10.0.0.0/8,localhost,127.0.0.1,::1"),
        ("corp.example, localhost", "corp.example,localhost,127.0.0.1,::1"),
        ("*", "*"),
    ],
)
def test_local_names_are_added_to_no_proxy(name: str, before: str, after: str) -> None:
    environment = {name: DEAD_PROXY, "no_proxy": before}
    bypass_proxy_for_loopback(environment)
    assert environment["NO_PROXY"] == environment["no_proxy"] == after


def test_an_environment_without_proxies_is_not_changed() -> None:
    environment = {"NO_PROXY": "corp.example"}
    bypass_proxy_for_loopback(environment)
    assert environment == {"NO_PROXY": "corp.example"}


def test_child_processes_of_every_command_inherit_no_proxy() -> None:
    """Runs the program's entry point, since child processes inherit the environment."""
    environment = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    program = (
        "import atexit, os; atexit.register(lambda: print(os.environ['NO_PROXY']));"
        "from voice_ops.main import main; main()"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, "--version"], cwd=ROOT, env=environment | {"HTTP_PROXY": DEAD_PROXY},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "localhost" in done.stdout.splitlines()[-1].split(",")


def test_tests_reach_every_host_of_theirs_despite_a_proxy() -> None:
    """Hosts and replicas of engines have addresses of their own, which `localhost` does not include."""
    program = (
        "import http.server, sys, threading; import httpx2, tests.conftest\n"
        "for address in sys.argv[1:]:\n"
        "    server = http.server.HTTPServer((address, 0), http.server.SimpleHTTPRequestHandler)\n"
        "    threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "    print(httpx2.head(f'http://{address}:{server.server_port}/').status_code)"
    )
    environment = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, "127.0.0.1", "127.0.0.2", "127.0.0.9", "127.0.1.0", "127.0.1.2"],
        cwd=ROOT, env=environment | {"HTTP_PROXY": DEAD_PROXY, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["200"] * 5


def test_tests_reach_local_servers_despite_a_proxy() -> None:
    """Runs an image test, whose client is httpx, because `make test` must work behind a proxy."""
    test = "images/telemetry/tests/test_publishing.py::test_prometheus_exports_the_newest_values_until_they_expire"
    environment = dict.fromkeys(("HTTP_PROXY", "http_proxy"), DEAD_PROXY) | {"NO_PROXY": "", "no_proxy": ""}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.nightly
@pytest.mark.sandbox
def test_the_real_cdk_bypasses_a_proxy_for_the_local_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, DEAD_PROXY)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.delenv("no_proxy", raising=False)
    with LocalAws(tmp_path / "aws.log") as local:
        cdk = Cdk(local, voice_blueprint.load(ROOT / "tests/deployments/small.yaml"), tmp_path / "home")
        cdk.bootstrap()
