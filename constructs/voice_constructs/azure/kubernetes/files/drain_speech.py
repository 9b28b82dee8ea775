"""Wait until a vLLM-Omni engine has finished its requests, up to a time limit.

This program is the preStop hook of the engine's container. vLLM-Omni 0.30.0 aborts every request at SIGTERM, because
``OmniBase.shutdown`` ignores its time-out (``vllm_omni/entrypoints/omni_base.py``). Kubernetes sends SIGTERM once this
program has ended.

The only argument is a ``RequestDrain`` as JSON. Exit code 0 means that no request is left. Exit code 1 means that the
limit was reached: the kubelet then records what this program wrote in an event of the pod, ``FailedPreStopHook``.
"""

import http.client
import json
import sys
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

MIN_IDLE_READINGS = 2
"""Number of consecutive readings without a request that end the wait. One reading is not sufficient, since the engine
counts a request only after parsing it."""
OK = 200


class EngineStoppedError(Exception):
    """The engine accepts no connection, so there are no requests to wait for."""


@dataclass(frozen=True)
class RequestDrain:
    """Requests to wait for, and time limits.

    Attributes:
        metrics: URL of the engine's metrics.
        gauges: Names of the gauges whose sum is the number of unfinished requests.
        settle_s: Time in which requests still arrive, because the router has not seen that the pod stops.
        limit_s: Maximum wait, including ``settle_s``.
        period_s: Time between two readings.
    """

    metrics: str
    gauges: Sequence[str]
    settle_s: float
    limit_s: float
    period_s: float = 1.0

    @classmethod
    def from_json(cls, text: str) -> "RequestDrain":
        """Read the argument of the program."""
        return cls(**json.loads(text))

    def wait(self) -> str:
        """Wait for the last request. Return the reason why requests may remain, or an empty string."""
        end = time.monotonic() + self.limit_s
        time.sleep(self.settle_s)
        idle, reason = 0, "the engine's metrics were never read"
        while (remaining_s := end - time.monotonic()) > 0:
            try:
                unfinished = self._count_unfinished_requests(remaining_s)
            except EngineStoppedError:
                return ""
            except (OSError, ValueError, http.client.HTTPException) as error:
                idle, reason = 0, f"{self.metrics} returned no number of requests: {error or type(error).__name__}"
            else:
                idle, reason = (idle + 1 if unfinished == 0 else 0), f"{unfinished:g} requests are unfinished"
            if idle == MIN_IDLE_READINGS:
                return ""
            time.sleep(min(self.period_s, max(0.0, end - time.monotonic())))
        return f"{reason} after {self.limit_s:g} s; SIGTERM aborts the remaining ones"

    def _count_unfinished_requests(self, timeout_s: float) -> float:
        """Return the number of unfinished requests.

        Raises:
            EngineStoppedError: The engine accepts no connection.
            OSError, http.client.HTTPException: The engine does not respond.
            ValueError: The response contains no number for one of the gauges.
        """
        parts = urllib.parse.urlsplit(self.metrics)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=min(5.0, timeout_s))
        try:
            connection.request("GET", parts.path)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        except ConnectionRefusedError as error:
            raise EngineStoppedError from error
        finally:
            connection.close()
        if response.status != OK:
            raise ValueError(f"HTTP {response.status}")
        return sum(read_gauge(text, gauge) for gauge in self.gauges)


def read_gauge(exposition: str, name: str) -> float:
    """Parse Prometheus' text format, and return the sum of a gauge over its labels.

    Raises:
        ValueError: The gauge is missing, or one of its values is not a number.
    """
    series = (line.rpartition(" ") for line in exposition.splitlines() if not line.startswith("#"))
    values = [float(value) for labelled, _, value in series if labelled.partition("{")[0] == name]
    if not values:
        raise ValueError(f"{name} is not published")
    return sum(values)


def main(arguments: Sequence[str]) -> int:
    """Run the preStop hook, and return its exit code."""
    if reason := RequestDrain.from_json(arguments[0]).wait():
        sys.stderr.write(f"{reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
