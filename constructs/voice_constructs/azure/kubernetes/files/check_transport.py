"""Start a cell's decode engine, and accept requests once UCX has reported a direct GPU-to-GPU transport.

This program runs as the engine's parent process and only uses the standard library. The arguments are the engine's
command; signals and the exit code are passed on. ``TRANSPORT_EXPECTED`` contains the configuration as JSON. As soon as
both engines are ready, one request is prefilled in one and decoded in the other. The file ``ready`` is created after
the KV cache of this request has been transferred directly. If another transport was used, the engine is stopped, and
the exit code is 1 with one reason on stderr, which Kubernetes shows as the container's termination message.

Access to each other's memory (``check_topology.py``) does not guarantee that UCX uses it: memory of another allocator
has no IPC handle (https://github.com/ai-dynamo/nixl/issues/1754), nor has a GPU that a process does not see
(https://github.com/vllm-project/vllm/pull/55906). UCX then emulates the read over TCP, a hundred times slower, with the
same results. Only one log shows this: the table that UCX writes at the first transfer of each kind with
``UCX_PROTO_INFO=y``. The listed capabilities of an endpoint are not sufficient.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TRANSPORT_CONFIG_VARIABLE = "TRANSPORT_EXPECTED"
POLL_INTERVAL_S = 5
"""Time between two requests while engines start."""
REQUEST_TIMEOUT_S = 120
LOG_ARRIVAL_TIMEOUT_S = 10
"""Maximum time until UCX's table, which is written before the response, arrives through the pipe."""
DIRECT_TRANSPORT = "cuda_ipc"

_GPU_TRANSFER_PATTERN = re.compile(
    r"remote memory (?:read|write) by ucp_(?:get|put)\S* (?:into|from) cuda\S* (?:from|to) cuda"
)
_TABLE_COLUMNS = ("Range", "Description", "Config")


@dataclass(frozen=True)
class TransportCheckConfig:
    """Endpoints of the check, and the action on failure.

    Attributes:
        url: Completions URL of the P/D router.
        model: Served name of the model.
        ready: File whose existence makes the container ready.
        refuse: Whether the engine is stopped if the transfer is slow; otherwise, the log contains a warning.
    """

    url: str
    model: str
    ready: str
    refuse: bool


@dataclass(frozen=True)
class TransportChoice:
    """The transport that UCX selected for large transfers between two GPUs."""

    operation: str
    protocol: str
    transport: str

    @property
    def is_direct(self) -> bool:
        return DIRECT_TRANSPORT in self.transport

    def __str__(self) -> str:
        return f"{self.operation}: {self.protocol} over {self.transport}"


def parse_transport_choices(log: Iterable[str]) -> Iterator[TransportChoice]:
    """Parse UCX's tables, and yield the transport of each kind of transfer between GPUs.

    A table lists transports by size; the transport of the largest transfers is yielded.

    A table has a title of one or two rows, depending on UCX's version, and rows of range, description and
    configuration. Lines of several processes may be interleaved; each starts with time, host and process.
    """
    operations: dict[str, str] = {}
    for line in log:
        start, _, row = line.partition("|")
        process = start.rpartition("[")[2]
        cells = [cell.strip() for cell in row.rstrip().rstrip("|").split("|")]
        if titles := [cell for cell in cells if " by ucp_" in cell]:
            operations[process] = titles[0]
        elif len(cells) == len(_TABLE_COLUMNS) and cells[0].endswith("inf"):
            operation = operations.get(process, "")
            if _GPU_TRANSFER_PATTERN.search(operation):
                yield TransportChoice(operation, *cells[1:])


class TransportMonitor:
    """Monitor of a cell's KV cache transport, which marks the engine as ready or stops it.

    Attributes:
        refusal: Reason why the engine was stopped, or empty.
    """

    def __init__(self, expected: TransportCheckConfig, engine: subprocess.Popen[str]) -> None:
        self.refusal = ""
        self._expected = expected
        self._engine = engine
        self._reported: set[str] = set()
        self._chosen = threading.Event()

    def evaluate_log(self, log: Iterable[str]) -> None:
        """Evaluate UCX's choices until the engine exits."""
        for choice in parse_transport_choices(log):
            self._chosen.set()
            self._evaluate(
                "" if choice.is_direct else f"KV cache is not transferred between GPUs over {DIRECT_TRANSPORT}", choice
            )

    def run_transfer_test(self) -> None:
        """Request a completion that prefill computes and decode continues, as soon as both are ready.

        The prompt starts with the time, so that no cache contains it.
        """
        prompt = f"{time.time_ns()} " + "one two three four five six seven eight nine ten " * 20
        body = json.dumps({"model": self._expected.model, "prompt": prompt, "max_tokens": 1}).encode()
        request = urllib.request.Request(  # noqa: S310  of the pod
            self._expected.url, body, {"Content-Type": "application/json"}
        )
        while True:
            try:
                urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S).close()  # noqa: S310
            except OSError as error:  # includes urllib's errors; the engines' own probes limit their start-up time
                self._log_once(f"no answer yet: {error}")
                time.sleep(POLL_INTERVAL_S)
            else:
                break
        if not self._chosen.wait(LOG_ARRIVAL_TIMEOUT_S):
            self._evaluate("a request was completed, but UCX has logged no transfer between GPUs", None)

    def _evaluate(self, problem: str, choice: TransportChoice | None) -> None:
        if problem and self._expected.refuse:
            self.refusal = f"{problem} ({choice}). Use aggregated engines, another driver, or without_peer_access: warn"
            self._engine.terminate()
            return
        self._log_once(f"warning: {problem} ({choice})" if problem else str(choice))
        Path(self._expected.ready).touch()

    def _log_once(self, text: str) -> None:
        if text not in self._reported:
            sys.stderr.write(f"check-transport: {text}\n")
            self._reported.add(text)


def copy_to_stderr(log: Iterable[str]) -> Iterator[str]:
    """Yield lines, and copy them to this process's own stderr."""
    for line in log:
        sys.stderr.write(line)
        yield line


def main() -> int:
    expected = TransportCheckConfig(**json.loads(os.environ[TRANSPORT_CONFIG_VARIABLE]))
    Path(expected.ready).unlink(missing_ok=True)  # from an earlier run of this container
    engine = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True, errors="replace")  # noqa: S603
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: engine.send_signal(received))
    watch = TransportMonitor(expected, engine)
    reader = threading.Thread(target=watch.evaluate_log, args=(copy_to_stderr(engine.stderr or ()),), daemon=True)
    reader.start()
    threading.Thread(target=watch.run_transfer_test, daemon=True).start()
    engine.wait()
    reader.join(LOG_ARRIVAL_TIMEOUT_S)  # workers that outlive their engine keep the pipe open
    if watch.refusal:
        Path(expected.ready).unlink(missing_ok=True)
        sys.stderr.write(f"refused: {watch.refusal}\n")
        return 1
    return engine.returncode if engine.returncode >= 0 else 128 - engine.returncode


if __name__ == "__main__":
    sys.exit(main())
