"""The program that starts a cell's decode engine, and admits callers depending on the log of UCX."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.stacks.azure.manifests import pod, production, variables, workloads
from voice_blueprint.azure.contract import PD_ROUTER_HTTP
from voice_blueprint.engines.launch.pd_router import DISAGGREGATED_PATHS
from voice_constructs.azure.kubernetes.files.check_transport import TRANSPORT_CONFIG_VARIABLE, parse_transport_choices

# Recorded output of UCX in NIXL 1.5.1 for host memory with `UCX_TLS=tcp,self`: a complete table after the end of
# another.
RECORDED_LOG = """\
[1795364222.838053] [vm:14852:0]   | 627..inf | multi-frag copy-in | tcp/lo                                 |
[1795364222.838053] [vm:14852:0]   +----------+--------------------+----------------------------------------+
[1795364222.838801] [vm:14852:0]   +--------+--------------------+------------------------------------+
[1795364222.838801] [vm:14852:0]   | decode intra-node cfg#1                                          |
[1795364222.838801] [vm:14852:0]   | remote memory read by ucp_get*(multi) into host memory from host |
[1795364222.838801] [vm:14852:0]   +--------+--------------------+------------------------------------+
[1795364222.838801] [vm:14852:0]   | Range  |    Description     |               Config               |
[1795364222.838801] [vm:14852:0]   +--------+--------------------+------------------------------------+
[1795364222.838801] [vm:14852:0]   | 0..inf | software emulation | tcp/lo                             |
[1795364222.838801] [vm:14852:0]   +--------+--------------------+------------------------------------+
"""
# The same output for transfers between GPUs, with UCX's terms (https://github.com/ai-dynamo/nixl/issues/1754 and 1097).
EMULATED_LOG = RECORDED_LOG.replace("into host memory from host", "into cuda/GPU2 from cuda/dev[0] ")
ZERO_COPY_LOG = EMULATED_LOG.replace("software emulation", "zero-copy         ").replace(
    "tcp/lo       ", "cuda_ipc/cuda"
)
# UCX 1.16 to 1.19, in one row: https://github.com/openucx/ucx/pull/7950, https://github.com/ai-dynamo/nixl/issues/1240.
OLDER_LOG = """\
[1769083945.891317] [vm:7:0]   | cfg#1 | remote memory read by ucp_get*(multi) into cuda/GPU3 from cuda/dev[0] |
[1769083945.891318] [vm:7:0]   |                              0 | copy-out           | rc_mlx5/ibp3:1/path0          |
[1769083945.891318] [vm:7:0]   |                          1..64 | software emulation | rc_mlx5/ibp3:1/path0          |
[1769083945.891318] [vm:7:0]   |                        65..inf | zero-copy          | 50% on cuda_ipc/cuda and tcp  |
"""
# An endpoint that supports cuda_ipc, which does not prove that it is used.
CONTEXT_LOG = (
    "[1.0] [vm:1:0] ucp_worker.c:1912 UCX  INFO  ucp_context_0 intra-node cfg#2 rma_am(tcp/lo) am(cuda_ipc/cuda)\n"
)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(RECORDED_LOG, [], id="host-memory-is-no-kv-cache"),
        pytest.param(EMULATED_LOG, [("software emulation", "tcp/lo", False)], id="emulated"),
        pytest.param(ZERO_COPY_LOG, [("zero-copy", "cuda_ipc/cuda", True)], id="fast"),
        pytest.param(OLDER_LOG, [("zero-copy", "50% on cuda_ipc/cuda and tcp", True)], id="older"),
        pytest.param(CONTEXT_LOG, [], id="capable"),
    ],
)
def test_only_the_table_of_large_reads_between_gpus_is_checked(log: str, expected: list[tuple[str, str, bool]]) -> None:
    assert [
        (each.protocol, each.transport, each.is_direct) for each in parse_transport_choices(log.splitlines())
    ] == expected


def test_log_lines_of_two_workers_may_be_interleaved() -> None:
    other = RECORDED_LOG.replace("vm:14852", "vm:14853")
    turns = [line for pair in zip(EMULATED_LOG.splitlines(), other.splitlines(), strict=True) for line in pair]
    assert [each.transport for each in parse_transport_choices(turns)] == ["tcp/lo"]


@pytest.fixture
def router(tmp_path: Path) -> Iterator[str]:
    """Start a P/D router that answers once its engine runs, when UCX has already written."""

    class Router(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not (tmp_path / "started").exists():
                self.send_error(503)
                return
            (tmp_path / "asked").write_text(json.dumps(asked), encoding="utf-8")
            while not (tmp_path / "wrote").exists():
                time.sleep(0.01)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the library's name

    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/completions"
    server.shutdown()
    server.server_close()


# Writes its log on request, like UCX at the first transfer, then serves until it is stopped.
ENGINE = """
import pathlib, signal, subprocess, sys, time
folder, log = pathlib.Path(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("serving", file=sys.stderr, flush=True)
(folder / "started").touch()
while not (folder / "asked").exists():
    time.sleep(0.01)
print(log, end="", file=sys.stderr, flush=True)
(folder / "wrote").touch()
while not (folder / "end").exists():
    time.sleep(0.01)
subprocess.Popen(["sleep", "60"])  # a worker that outlives its engine, and holds its stderr
sys.exit(3)
"""


# The defaults of poll and grace are for engines that take minutes.
PROGRAM = """
import sys
from voice_constructs.azure.kubernetes.files import check_transport
check_transport.POLL_INTERVAL_S, check_transport.GRACE_S = 0.05, 0.5
sys.exit(check_transport.main())
"""


@contextmanager
def start(folder: Path, url: str, log: str, *, refuse: bool) -> Iterator[subprocess.Popen[str]]:
    """Start the program, and at the end kill what remains of it and its engine."""
    expected = {"url": url, "model": "voxtral", "ready": str(folder / "ready"), "refuse": refuse}
    with subprocess.Popen(  # noqa: S603  the program under test
        [sys.executable, "-c", PROGRAM, sys.executable, "-c", ENGINE, str(folder), log], start_new_session=True,
        env=os.environ | {TRANSPORT_CONFIG_VARIABLE: json.dumps(expected)}, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path.name
        time.sleep(0.02)


def test_the_cell_is_ready_after_a_kv_cache_transfer_between_gpus(tmp_path: Path, router: str) -> None:
    (tmp_path / "ready").touch()  # from an earlier run, no longer valid
    with start(tmp_path, router, ZERO_COPY_LOG, refuse=True) as running:
        wait_for(tmp_path / "wrote")
        wait_for(tmp_path / "ready")
        (tmp_path / "end").touch()
        said = running.communicate(timeout=40)[1]
    assert running.returncode == 3  # of the engine
    assert "serving" in said
    assert "cuda_ipc/cuda" in said
    asked = json.loads((tmp_path / "asked").read_text(encoding="utf-8"))
    assert (asked["model"], asked["max_tokens"]) == ("voxtral", 1)


@pytest.mark.parametrize(
    ("log", "reason"), [(EMULATED_LOG, "software emulation over tcp/lo"), (RECORDED_LOG, "has logged no")]
)
def test_an_engine_with_slow_kv_transfer_is_stopped(tmp_path: Path, router: str, log: str, reason: str) -> None:
    with start(tmp_path, router, log, refuse=True) as running:
        said = running.communicate(timeout=40)[1]
    assert running.returncode == 1
    last = said.splitlines()[-1]  # Kubernetes shows the end of the log
    assert last.startswith("refused: ")
    assert reason in last
    assert "without_peer_access: warn" in last
    assert not (tmp_path / "ready").exists()


def test_slow_kv_transfer_can_be_accepted_with_a_warning(tmp_path: Path, router: str) -> None:
    with start(tmp_path, router, EMULATED_LOG, refuse=False) as running:
        wait_for(tmp_path / "ready")
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=40)[1]
    assert running.returncode == 7  # the signal reached the engine, which drained
    assert "check-transport: warning: KV cache is not transferred between GPUs" in said


@pytest.mark.parametrize("choice", ["refuse", "warn"])
def test_a_cell_starts_its_decode_engine_through_the_check(choice: str) -> None:
    cell = pod(workloads(production({"azure.services.0.without_peer_access": choice})), "voxtral-cells")
    decode = cell.container("decode")
    expected = json.loads(variables(decode)[TRANSPORT_CONFIG_VARIABLE])
    assert expected["refuse"] is (choice == "refuse")
    assert expected["url"].endswith(f":{PD_ROUTER_HTTP.number}/v1/completions")
    assert "/v1/completions" in DISAGGREGATED_PATHS  # the front would route it past prefill
    served = decode["command"][decode["command"].index("--served-model-name") + 1]
    assert expected["model"] == served
    program = decode["command"][1]
    assert decode["command"][0] == "python3"
    assert program in {mount["mountPath"] for mount in decode["volumeMounts"]}
    assert decode["readinessProbe"]["exec"]["command"][-1] == expected["ready"]
    assert expected["ready"].startswith(tuple(f"{mount['mountPath']}/" for mount in decode["volumeMounts"]))
    assert variables(decode)["UCX_PROTO_INFO"] == "y"
    assert variables(decode)["UCX_LOG_FILE"] == "stderr"  # the only stream that UCX's C library does not buffer
