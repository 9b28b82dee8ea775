"""Check an inference engine, and print the reason on one line. Exit with 0 if the engine works, and with 1 otherwise.

This program is an exec probe of Kubernetes and only uses the standard library. The only argument is a ``Check`` as
JSON. vLLM's ``/health`` is not sufficient: it returns 200 while the engine core hangs, and while a shutdown rejects
every new request.

An engine works if its token counters have changed since the last probe: a busy engine is not judged by its queue, and
gets no request. Otherwise, it has to respond to a request for one token. A request that waits in a queue, or is
rejected because the queue is full (429 and 503), counts as a response if the counters change in the meantime. The state
between two probes is stored in a file.

The counters are not sufficient while requests fail: an engine that shuts down completes its current requests, and
responds with HTTP 500 to all new ones. A status of 4xx concerns the probe's request, so it is not a failure of the
engine.
"""

import http.client
import io
import json
import os
import sys
import time
import urllib.parse
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAX_STATE_AGE_S = 60
"""Maximum age of a state file. An older file may belong to another container."""
METRICS_TIMEOUT_FRACTION = 0.2
"""Share of the time limit for one reading of the counters."""
OK = 200
BAD_REQUEST = 400
SERVER_ERROR = 500
BUSY_STATUSES = (429, 503)
"""Statuses of a full queue: vLLM's ``QueueOverflowError`` is 503 (``vllm/v1/engine/async_llm.py``)."""
RESPONSE_COUNTER = "http_requests_total"
"""Counter of vLLM's HTTP server by status (prometheus-fastapi-instrumentator, which groups it as ``5xx``)."""
FAILED_LABEL = 'status="5xx"'
SAMPLE_RATE = 16000
MULTIPART_BOUNDARY = "voice-serve-probe"
MAX_REASON_CHARS = 160

CounterSample = Mapping[str, float]


@dataclass(frozen=True)
class CheckConfig:
    """Endpoints and requests of the check.

    Attributes:
        state: File with the counters of the previous probe; each probe has its own.
        metrics: URLs of the metrics; a cell has two engines, and both have to work.
        counters: Names of metrics that change whenever the engine works. Gauges may also decrease.
        url: URL of the request.
        body: The request as JSON, or as the fields of a form if ``silence_s`` is set.
        silence_s: Duration of the silent WAV file that is sent with the form.
        limit_s: Time limit of the check.
    """

    state: str
    metrics: Sequence[str]
    counters: Sequence[str]
    url: str
    body: Mapping[str, object] = field(default_factory=dict)
    silence_s: float = 0
    limit_s: float = 4.5

    @classmethod
    def from_json(cls, text: str) -> "CheckConfig":
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Response:
    """An HTTP response. Its status is 0 if the server did not respond."""

    status: int
    text: str

    @property
    def is_success(self) -> bool:
        return self.status == OK

    @property
    def is_request_error(self) -> bool:
        """Whether the status concerns the request and not the engine."""
        return BAD_REQUEST <= self.status < SERVER_ERROR and self.status not in BUSY_STATUSES

    def __str__(self) -> str:
        words = " ".join(self.text.split())[:MAX_REASON_CHARS]
        return f"HTTP {self.status} {words}".strip() if self.status else words


def send_request(url: str, timeout_s: float, data: bytes | None = None, content_type: str = "") -> Response:
    """Send a request and return the response.

    The timeout applies to each read, which is sufficient since responses are not streamed.
    """
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=max(timeout_s, 0.05))
    try:
        connection.request("POST" if data else "GET", parts.path, data, {"Content-Type": content_type} if data else {})
        response = connection.getresponse()
        return Response(response.status, response.read().decode("utf-8", "replace"))
    except TimeoutError:
        return Response(0, f"no response within {timeout_s:.1f} s")
    except (OSError, http.client.HTTPException) as error:
        return Response(0, f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def read_counters(exposition: str, counters: Sequence[str]) -> dict[str, float]:
    """Parse Prometheus' text format. Return the sum of each counter over its labels, and the failed requests."""
    sums: dict[str, float] = {}
    for line in exposition.splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        if name in counters or (name == RESPONSE_COUNTER and FAILED_LABEL in series):
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def has_progress(before: CounterSample, now: CounterSample) -> bool:
    """Return True if an engine has made progress between two samples of its counters."""
    names = (before.keys() & now.keys()) - {RESPONSE_COUNTER}
    has_restarted = any(now[name] < before[name] for name in names if name.endswith("_total"))
    return not has_restarted and any(now[name] != before[name] for name in names)


def has_failures(before: CounterSample, now: CounterSample) -> bool:
    """Return True if requests failed with 5xx between two samples."""
    return now.get(RESPONSE_COUNTER, 0.0) > before.get(RESPONSE_COUNTER, 0.0)


class EngineCheck:
    """A single run of the check."""

    def __init__(self, check: CheckConfig) -> None:
        self._check = check
        self._deadline = time.monotonic() + check.limit_s

    def evaluate(self) -> tuple[bool, str]:
        """Check the engine. Return True if it works, and the reason for the result."""
        before, now = self._load_samples(), self._read_samples()
        self._save_samples(now)
        has_changed = self._has_changed(before, now)
        failed = any(has_failures(before[url], now[url]) for url in before.keys() & now.keys())
        if has_changed and not failed:
            return True, "the engine generates tokens"
        answer = self._send_probe_request()
        if answer.is_success:
            return True, "answered one request"
        if answer.is_request_error:
            return True, f"the engine responds, but rejects the probe's request: {answer}"
        if answer.status in (0, *BUSY_STATUSES) and (
            has_changed or self._has_progress_since(now, wait=bool(answer.status))
        ):
            return True, f"the engine generates tokens, and its queue is full: {answer}"
        return False, f"no tokens, and no response to a request for one: {answer}" if not answer.status else str(answer)

    def _has_changed(self, before: Mapping[str, CounterSample], now: Mapping[str, CounterSample]) -> bool:
        return all(url in before and url in now and has_progress(before[url], now[url]) for url in self._check.metrics)

    def _has_progress_since(self, now: Mapping[str, CounterSample], *, wait: bool) -> bool:
        """Return True if the counters have changed since a sample.

        With ``wait``, the counters are read again after half of the remaining time.
        """
        pause_s = self._remaining_s() / 2
        if wait and pause_s > 0:
            time.sleep(pause_s)
        return self._has_changed(now, self._read_samples())

    def _read_samples(self) -> dict[str, CounterSample]:
        samples: dict[str, CounterSample] = {}
        for url in self._check.metrics:
            answer = send_request(url, min(self._check.limit_s * METRICS_TIMEOUT_FRACTION, self._remaining_s()))
            if answer.is_success:
                samples[url] = read_counters(answer.text, self._check.counters)
        return samples

    def _send_probe_request(self) -> Response:
        check = self._check
        # The remaining time is reserved for a second reading of the counters.
        timeout_s = self._remaining_s() - check.limit_s * METRICS_TIMEOUT_FRACTION
        if check.silence_s:
            return send_request(
                check.url, timeout_s, encode_form(check), f"multipart/form-data; boundary={MULTIPART_BOUNDARY}"
            )
        return send_request(check.url, timeout_s, json.dumps(check.body).encode(), "application/json")

    def _remaining_s(self) -> float:
        return self._deadline - time.monotonic()

    def _load_samples(self) -> dict[str, CounterSample]:
        try:
            state = json.loads(Path(self._check.state).read_text(encoding="utf-8"))
            # The monotonic clock is the node's, and equal in all containers.
            samples: dict[str, CounterSample] = (
                state["samples"] if 0 <= time.monotonic() - state["at"] < MAX_STATE_AGE_S else {}
            )
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return samples

    def _save_samples(self, samples: Mapping[str, CounterSample]) -> None:
        state, file = {"at": time.monotonic(), "samples": samples}, Path(self._check.state)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(state), encoding="utf-8")
        new.replace(file)


def encode_form(check: CheckConfig) -> bytes:
    """Return the request as multipart form data, with a WAV file of silence."""
    wav = io.BytesIO()
    with wave.open(wav, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(bytes(2 * int(SAMPLE_RATE * check.silence_s)))
    head = 'Content-Disposition: form-data; name="{}"'
    parts = [f"{head.format(name)}\r\n\r\n{value}".encode() for name, value in check.body.items()]
    parts.append(
        f'{head.format("file")}; filename="silence.wav"\r\nContent-Type: audio/wav\r\n\r\n'.encode() + wav.getvalue()
    )
    return (
        b"".join(b"--%s\r\n%s\r\n" % (MULTIPART_BOUNDARY.encode(), part) for part in parts)
        + f"--{MULTIPART_BOUNDARY}--\r\n".encode()
    )


def main() -> int:
    works, reason = EngineCheck(CheckConfig.from_json(sys.argv[1])).evaluate()
    sys.stdout.write(f"{reason}\n")
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main())
