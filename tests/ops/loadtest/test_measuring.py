"""What the harness reports against what the reference server did, by the server's own record."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from ops.loadtest.drivers import Chat, Driver, Speech, Transcription
from ops.loadtest.endpoint import Endpoint
from ops.loadtest.inputs import read_recording
from ops.loadtest.load import ClosedLoop, Generator, Load, OpenLoop, Run
from ops.loadtest.options import url_of
from ops.loadtest.realtime import Realtime
from ops.loadtest.summary import Summary, summarize
from tests.ops.loadtest.conftest import Server, write_wav

ERROR = 0.02
"""What the harness may be off by, of the known value."""
TIMING = {"first_s": 1.5, "gap_s": 0.5, "pieces": 3, "audio_s": 0.8}
ARRIVALS = OpenLoop(8)
"""Spread out: requests in step with each other would queue for the CPU of this machine, which is not under test."""


def endpoint(server: Server, **body: Any) -> Endpoint:  # noqa: ANN401  fields of a request
    return Endpoint("reference", url_of(server.url, "URL"), "reference", TIMING | body)


def put(driver: Driver, load: Load, requests: int, timeout_s: float = 30) -> Run:
    async def run() -> Run:
        async with driver.endpoint:
            return await Generator(timeout_s, seed=1).run(driver, load, requests)

    return asyncio.run(run())


def figures(run: Run, **slo: float) -> Summary:
    return summarize(run, slo=slo, gpus=2, usd_per_hour=7.2)


@dataclass(frozen=True)
class Known:
    """One request as the server wrote it down, on the clock that it shares with the client."""

    intended_s: float
    received_s: float
    sent_s: list[float]
    record: dict[str, Any]

    @property
    def first_ms(self) -> float:
        return 1000 * (self.sent_s[0] - self.intended_s)

    @property
    def gaps_ms(self) -> list[float]:
        return [1000 * float(gap) for gap in np.diff(self.sent_s)]

    @property
    def total_ms(self) -> float:
        return 1000 * (self.sent_s[-1] - self.intended_s)


def known_of(written: dict[str, Any], run: Run) -> list[Known]:
    records = {record["id"]: record for record in written["records"]}
    matched = [(trace, records[trace.request_id]) for trace in run.traces]
    return [Known(trace.intended_s, found["received_s"], found["sent_s"], found) for trace, found in matched]


def p50(values: Iterable[float]) -> float:
    return float(np.percentile(list(values), 50))


def span_s(known: list[Known]) -> float:
    return max(one.sent_s[-1] for one in known) - min(one.intended_s for one in known)


def close(known: float, run: Run) -> Any:  # noqa: ANN401  pytest's own
    """Equal to a known time in ms, but for the error and for what the client says that both of its stamps were late."""
    return pytest.approx(known, abs=ERROR * known + 2 * 1000 * max(run.loop_lags_s))


def close_rate(known: float, run: Run) -> Any:  # noqa: ANN401  pytest's own
    """The same for a rate over the whole run."""
    return pytest.approx(known, rel=ERROR + 2 * max(run.loop_lags_s) / run.elapsed_s)


def test_chat_times_tokens(server: Server) -> None:
    run = put(Chat(endpoint(server)), ARRIVALS, 24)
    found = figures(run)
    known = known_of(server.take(), run)
    assert found.failures == {}
    assert found.metrics["first"].p50 == close(p50(one.first_ms for one in known), run)
    assert found.metrics["gap"].p50 == close(p50(gap for one in known for gap in one.gaps_ms), run)
    assert found.metrics["gap"].mean == close(float(np.mean([one.gaps_ms for one in known])), run)
    assert found.metrics["total"].p50 == close(p50(one.total_ms for one in known), run)
    # Two tokens in each of three events, as the server counts them: five gaps between six tokens.
    assert found.metrics["token"].p50 == close(p50((one.total_ms - one.first_ms) / 5 for one in known), run)
    assert found.tokens_per_s == close_rate(24 * 6 / span_s(known), run)
    assert found.requests_per_s == close_rate(24 / span_s(known), run)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_speech_times_audio_and_starved_playback(server: Server, stream_format: str) -> None:
    planted = endpoint(server, starve_every=3, starve_s=1.6, stream_format=stream_format)
    run = put(Speech(planted), ARRIVALS, 24)
    found = figures(run, first=5000, starved=0)
    known = known_of(server.take(), run)
    assert found.failures == {}
    assert found.wait_rate == pytest.approx(8 / 24)
    assert found.goodput_share == pytest.approx(16 / 24)
    assert found.metrics["first"].p50 == close(p50(one.first_ms for one in known), run)
    assert 2400 * found.metrics["rtf"].p50 == close(p50(one.total_ms for one in known), run)
    # Two pieces of 0.8 s have been played 1.6 s after the first; the third comes when it was sent.
    third_late_ms = [1000 * (one.sent_s[2] - one.sent_s[0] - 1.6) for one in known]
    assert found.metrics["starved"].max == close(max(third_late_ms), run)
    assert found.metrics["starved"].p50 == 0
    assert found.chars_per_s_per_gpu == close_rate(24 * 500 / span_s(known) / 2, run)
    assert found.audio_s_per_s == close_rate(24 * 2.4 / span_s(known), run)
    assert found.usd_per_audio_hour == close_rate(7.2 * span_s(known) / (24 * 2.4), run)


@pytest.mark.parametrize("whole", [False, True])
def test_transcription_is_streamed_where_the_endpoint_offers_it(server: Server, wav: Path, whole: bool) -> None:
    driver = Transcription(endpoint(server, whole=whole), (read_recording(wav),))
    run = put(driver, ARRIVALS, 16)
    found = figures(run)
    known = known_of(server.take(), run)
    assert found.failures == {}
    assert found.metrics["first"].p50 == close(p50(one.first_ms for one in known), run)
    assert 2000 * found.metrics["rtf"].p50 == close(p50(one.total_ms for one in known), run)
    assert ("gap" in found.metrics) is not whole
    assert found.audio_s_per_s == close_rate(16 * 2.0 / span_s(known), run)
    assert found.wait_rate is None


def test_realtime_feeds_at_the_pace_of_speech_and_times_partials_and_final(server: Server, wav: Path) -> None:
    driver = Realtime(endpoint(server, final_s=1.5), (read_recording(wav),))
    run = put(driver, ARRIVALS, 16)
    found = figures(run)
    known = known_of(server.take(), run)
    assert found.failures == {}
    assert all(one.record["bytes"] == 2.0 * 16_000 * 2 for one in known)
    paces = [np.diff(one.record["frames_s"]) for one in known]
    assert 1000 * float(np.mean(paces)) == close(80, run)
    assert found.metrics["first"].p50 == close(p50(one.first_ms for one in known), run)
    assert found.metrics["gap"].p50 == close(p50(gap for one in known for gap in one.gaps_ms), run)
    finals = [1000 * (one.record["done_s"] - one.record["final_commit_s"]) for one in known]
    assert found.metrics["final"].p50 == close(np.percentile(finals, 50), run)
    assert "rtf" not in found.metrics
    assert found.harness.pacing_lag_ms


def test_any_recording_is_heard_at_16_khz(server: Server, tmp_path: Path) -> None:
    """Half a second of stereo at 24 kHz: the endpoint gets its channels' mean, at the rate that it takes."""
    write_wav(tmp_path / "fast.wav", 0.5, rate=24_000, channels=2)
    put(Realtime(endpoint(server), (read_recording(tmp_path / "fast.wav"),)), ClosedLoop(1), 1)
    (record,) = server.take()["records"]
    assert record["bytes"] == 0.5 * 16_000 * 2


def test_percentiles_find_the_slow_requests(server: Server) -> None:
    planted = endpoint(server, pieces=1, slow_every=10, slow_s=4.0)
    run = put(Chat(planted), ARRIVALS, 40)
    found = figures(run, first=3000)
    known = [one.first_ms for one in known_of(server.take(), run)]
    assert found.metrics["first"].p50 == close(float(np.percentile(known, 50)), run)
    assert found.metrics["first"].p95 == close(float(np.percentile(known, 95)), run)
    assert found.metrics["first"].p95 > 4000
    assert found.goodput_share == pytest.approx(36 / 40)


def test_closed_loop_keeps_its_concurrency(server: Server) -> None:
    run = put(Chat(endpoint(server, first_s=0.5, gap_s=0.1)), ClosedLoop(5), 15)
    known = known_of(server.take(), run)
    in_flight = [sum(other.received_s <= one.received_s < other.sent_s[-1] for other in known) for one in known]
    assert max(in_flight) == 5


STALL_S = 2.0


def stalled(server: Server, load: Load, requests: int) -> tuple[Run, list[Known], float]:
    """Put load on a server that answers nobody for a while, once; return the end of that while too."""
    driver = Chat(endpoint(server, first_s=0.02, pieces=1))

    async def both() -> Run:
        async with driver.endpoint:
            await asyncio.to_thread(server.stall, 0.5, STALL_S)
            return await Generator(30, seed=1).run(driver, load, requests)

    run = asyncio.run(both())
    found = server.take()
    return run, known_of(found, run), found["stall"]["end_s"]


def test_open_loop_shows_a_stall_to_everyone_who_should_have_come(server: Server) -> None:
    run, known, end_s = stalled(server, OpenLoop(20), 70)
    caught = [trace for trace in run.traces if end_s - STALL_S < trace.intended_s < end_s]
    assert len(caught) == pytest.approx(20 * STALL_S, rel=0.4)
    assert all(trace.first_s and trace.first_s > end_s - trace.intended_s for trace in caught)
    first = figures(run).metrics["first"]
    assert first.mean == close(float(np.mean([one.first_ms for one in known])), run)
    # 2 s of 3.5 s stand still, and who comes then waits half of that on average.
    assert first.mean > 400
    assert first.p95 > 1500


def test_closed_loop_hides_the_same_stall(server: Server) -> None:
    run, _, _ = stalled(server, ClosedLoop(1), 60)
    assert len([trace for trace in run.traces if trace.first_s and trace.first_s > STALL_S / 2]) == 1
    assert figures(run).metrics["first"].p95 < 1000


def test_a_busy_client_is_no_excuse() -> None:
    """A driver that holds up the event loop makes others start late; their wait counts, and the lag is reported."""

    class Rude:
        endpoint = Endpoint("none", url_of("http://localhost", "URL"), "none")

        async def send(self, index: int, trace: Any) -> None:  # noqa: ANN401  a stand-in
            if index == 10:
                end = asyncio.get_running_loop().time() + 1.0
                while asyncio.get_running_loop().time() < end:
                    pass
            trace.text_arrived()

    begin = process_time()
    run = put(Rude(), OpenLoop(50), 60)
    spent_s = process_time() - begin
    late = [trace for trace in run.traces if trace.first_s and trace.first_s > 0.1]
    assert len(late) == pytest.approx(50 * 0.9, rel=0.35)
    found = figures(run).harness
    assert found.start_lag_ms.max > 800
    assert found.loop_lag_ms
    assert found.loop_lag_ms.max > 800
    assert spent_s / 2 < run.cpu_s <= spent_s
    assert found.cpu_share == pytest.approx(run.cpu_s / run.elapsed_s)


@pytest.mark.parametrize(
    ("planted", "reason", "count"),
    [
        ({"fail_every": 3}, "HTTP 503: overloaded", 4),
        ({"break_every": 4}, "connection closed before the answer was complete", 3),
        ({"garbage": True}, "malformed event", 12),
        ({"first_s": 9}, "timeout: no complete answer within 2 s", 12),
    ],
    ids=["status", "broken", "garbage", "timeout"],
)
def test_failures_are_counted_and_kept_out_of_the_figures(
    server: Server, planted: dict[str, Any], reason: str, count: int
) -> None:
    fast = {"first_s": 0.1, "gap_s": 0.05}
    limit_s = 2 if "first_s" in planted else 30
    found = figures(put(Chat(endpoint(server, **fast | planted)), ClosedLoop(4), 12, limit_s), first=5000)
    assert [text[: len(reason)] for text in found.failures] == [reason]
    assert sum(found.failures.values()) == count
    assert found.goodput_share == pytest.approx((12 - count) / 12)
    assert "first" not in found.metrics if count == 12 else found.metrics["first"].count == 12 - count


def test_broken_realtime_streams_are_counted(server: Server, wav: Path) -> None:
    driver = Realtime(endpoint(server, first_s=0.1, gap_s=0.1, break_every=2), (read_recording(wav),))
    found = figures(put(driver, ClosedLoop(2), 4))
    assert found.failures == {"connection closed before the answer was complete": 2}


@pytest.mark.parametrize("api", ["chat", "speech", "transcription", "realtime"])
def test_nobody_listens(api: str, wav: Path) -> None:
    nowhere = Endpoint("nowhere", url_of("http://127.0.0.1:9", "URL"), "none")
    recordings = (read_recording(wav),)
    drivers: dict[str, Driver] = {
        "chat": Chat(nowhere),
        "speech": Speech(nowhere),
        "transcription": Transcription(nowhere, recordings),
        "realtime": Realtime(nowhere, recordings),
    }
    assert figures(put(drivers[api], ClosedLoop(1), 2)).failures == {"cannot connect: Connection refused": 2}
