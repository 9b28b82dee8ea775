"""Statistics of the load test, computed from given traces."""

import numpy as np
import pytest

from voice_ops.loadtest.compare import Round, compare_rounds
from voice_ops.loadtest.inputs import PASSAGE, rotate_words
from voice_ops.loadtest.load import ClosedLoopLoad, LoadGenerator, LoadRun, OpenLoopLoad, merge_runs
from voice_ops.loadtest.price import PriceError, find_hourly_price
from voice_ops.loadtest.report import EndpointResult
from voice_ops.loadtest.scenarios import SCENARIOS, TEXT_LENGTH_CHARS
from voice_ops.loadtest.summary import summarize_run
from voice_ops.loadtest.trace import RequestTrace


def spoken(*pieces: tuple[float, float], intended_s: float = 0.0, error: str | None = None) -> RequestTrace:
    """Return a speech stream of chunks, each with its arrival time and seconds of audio."""
    arrivals, audio = [at for at, _ in pieces], [seconds for _, seconds in pieces]
    return RequestTrace("x", intended_s, intended_s, arrivals[-1], arrivals, audio, input_chars=100, error=error)


@pytest.mark.parametrize(
    ("chunks", "playback_stall_s"),
    [
        ([(1.0, 0.5), (1.4, 0.5), (1.9, 0.5)], 0.0),
        ([(1.0, 0.5), (1.5, 0.5)], 0.0),
        ([(1.0, 0.5), (1.75, 0.5)], 0.25),
        # Two underruns: 0.25 s, and 0.75 s (playback resumes at 1.75 s and the buffer is empty at 2.25 s).
        ([(1.0, 0.5), (1.75, 0.5), (3.0, 0.5)], 1.0),
        # Buffered audio covers a gap.
        ([(1.0, 2.0), (2.9, 0.5)], 0.0),
        ([(9.0, 0.1)], 0.0),
    ],
)
def test_playback_underruns_when_its_buffer_is_empty(
    chunks: list[tuple[float, float]], playback_stall_s: float
) -> None:
    assert spoken(*chunks).playback_stall_s == pytest.approx(playback_stall_s)


def test_figures_of_a_reference_run() -> None:
    traces = [
        spoken((1.0, 4.0), (2.0, 4.0)),
        spoken((1.5, 1.0), (4.0, 3.0), intended_s=1.0),
        spoken((9.0, 50.0), error="HTTP 503: busy"),
    ]
    run = LoadRun(ClosedLoopLoad(2), traces, elapsed_s=4.0, cpu_s=1.0)
    found = summarize_run(run, slo={"first": 800, "starved": 2000}, gpus=4, usd_per_hour=12.0)
    assert found.requests == 3
    assert found.failures == {"HTTP 503: busy": 1}
    assert (found.metrics["first"].p50, found.metrics["first"].max) == (750, 1000)
    assert found.metrics["rtf"].max == 0.75
    assert found.metrics["starved"].max == 1500
    assert found.wait_rate == 0.5
    assert found.chars_per_s_per_gpu == pytest.approx(200 / 4 / 4)
    assert found.audio_s_per_s == 3.0
    # 12 USD buy an hour, in which 3 hours of audio are generated.
    assert found.usd_per_audio_hour == 4.0
    # One request is late and one failed, so a third is good.
    assert found.goodput_share == pytest.approx(1 / 3)
    assert found.goodput_per_s == 0.25
    assert found.harness.cpu_share == 0.25


def test_percentiles_are_computed_from_the_sample() -> None:
    traces = [RequestTrace("x", 0.0, 0.0, float(at), [float(at)]) for at in range(1, 101)]
    first = summarize_run(LoadRun(ClosedLoopLoad(1), traces, 1.0), slo={}, gpus=1, usd_per_hour=None).metrics["first"]
    assert (first.p50, first.p95, first.p99) == pytest.approx((50_500, 95_050, 99_010))


def test_a_missing_metric_fails_its_limit() -> None:
    silent = RequestTrace("x", 0.0, 0.0, 1.0)
    assert (
        summarize_run(
            LoadRun(ClosedLoopLoad(1), [silent], 1.0), slo={"first": 500}, gpus=1, usd_per_hour=None
        ).goodput_share
        == 0
    )


@pytest.mark.parametrize(
    ("lag_s", "cpu_s", "pacing_s", "doubt"),
    [
        (0.001, 0.5, 0.01, None),
        (0.2, 0.5, 0.01, "the client's own lag (p99 200.0 ms) is more than 10% of the median first piece"),
        (0.001, 0.97, 0.01, "the client used 97% of a core"),
        (0.001, 0.5, 0.09, "live streams lagged real time by up to 90 ms"),
    ],
)
def test_a_client_that_distorts_its_figures_reports_it(
    lag_s: float, cpu_s: float, pacing_s: float, doubt: str | None
) -> None:
    trace = RequestTrace("x", 0.0, 0.0, 1.0, [1.0], input_ended_s=0.5, pacing_lag_s=pacing_s)
    run = LoadRun(ClosedLoopLoad(1), [trace], 1.0, [lag_s], cpu_s)
    doubts = EndpointResult("ours", run, summarize_run(run, slo={}, gpus=1, usd_per_hour=None), {}).warnings
    assert [doubt in found for found in doubts if doubt] == ([True] if doubt else [])
    assert len(doubts) == (1 if doubt else 0)


def test_arrivals_are_poisson_and_the_same_for_the_same_seed() -> None:
    load = OpenLoopLoad(5.0)
    arrivals = LoadGenerator(1.0, seed=7)._draw_arrivals(load, 20_000, 0)
    gaps = np.diff(arrivals)
    assert np.mean(gaps) == pytest.approx(0.2, rel=0.03)
    assert np.std(gaps) == pytest.approx(0.2, rel=0.03)
    assert np.mean(gaps > 0.4) == pytest.approx(np.exp(-2), rel=0.05)
    assert LoadGenerator(1.0, seed=7)._draw_arrivals(load, 20_000, 0) == arrivals
    assert LoadGenerator(1.0, seed=8)._draw_arrivals(load, 20_000, 0) != arrivals


def rounds(shift_s: float, seed: int, *, drift_s: float = 0.0) -> list[Round]:
    """Return six rounds of 20 requests to each side.

    The measured side is slower by ``shift_s``, and each round is slower by ``drift_s``.
    """
    random = np.random.default_rng(seed)

    def run(at_s: float) -> LoadRun:
        firsts = at_s + random.exponential(0.1, 20)
        traces = [RequestTrace("x", 0.0, 0.0, float(first) + 1, [float(first)]) for first in firsts]
        return LoadRun(ClosedLoopLoad(1), traces, elapsed_s=float(sum(firsts)))

    return [(run(0.5 + shift_s + drift_s * number), run(0.5 + drift_s * number)) for number in range(6)]


def test_a_difference_is_detected_with_its_interval_despite_drift() -> None:
    found = {(d.metric, d.statistic): d for d in compare_rounds(rounds(-0.2, seed=3, drift_s=0.1), seed=0)}
    first = found["first", "p50"]
    assert first.is_significant
    assert first.low < -200 < first.high
    assert first.low < first.difference < first.high < 0
    assert found["requests/s", "mean"].difference > 0


def test_equal_endpoints_rarely_show_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_ops.loadtest.compare.RESAMPLE_COUNT", 100)
    shown = [compare_rounds(rounds(0.0, seed), seed)[0].is_significant for seed in range(40)]
    # The expected number is 5 % of 40; with six rounds bootstrap intervals are slightly too narrow.
    assert sum(shown) <= 6


def test_pooled_runs_contain_every_request() -> None:
    one, two = (
        LoadRun(ClosedLoopLoad(1), [spoken((1.0, 1.0))], 1.0, [0.1], 0.5),
        LoadRun(ClosedLoopLoad(1), [spoken((2.0, 1.0))], 2.0),
    )
    both = merge_runs([one, two])
    assert (len(both.traces), both.elapsed_s, both.loop_lags_s, both.cpu_s) == (2, 3.0, [0.1], 0.5)


def test_prompts_have_the_published_length_and_distinct_beginnings() -> None:
    texts = [rotate_words(PASSAGE, index) for index in range(40)]
    assert {len(text) for text in texts} == {TEXT_LENGTH_CHARS}
    assert len({text[:30] for text in texts}) == 40


def test_published_figures_are_consistent() -> None:
    """Table 7's CUDA-graph row is table 8's first, and each row's char/s follows from concurrency, RTF and speech."""
    table_7, table_8 = SCENARIOS["table-7"].published_figures, SCENARIOS["table-8"].published_figures["cuda-graph"]
    assert table_7["cuda-graph"][1] == {key: table_8[1][key] for key in ("first", "rtf")}
    for concurrency, row in table_8.items():
        seconds_of_speech = concurrency * TEXT_LENGTH_CHARS / row["chars"] / row["rtf"]
        assert 36 < seconds_of_speech < 42


def test_an_endpoint_costs_its_share_of_an_instance() -> None:
    whole, _ = find_hourly_price("p5.48xlarge", "us-east-1", 8)
    part, how = find_hourly_price("p5.48xlarge", None, 2)
    assert part == whole / 4
    assert "2 of its 8 accelerators" in how
    assert find_hourly_price("c8g.xlarge", "us-east-1", 1)[0] == 0.15952
    assert find_hourly_price("Standard_NC24ads_A100_v4", "eastus", 1)[0] == 3.673


@pytest.mark.parametrize(
    ("instance_type", "region", "gpus", "problem"),
    [
        ("p9.huge", None, 1, "the catalogue has no instance type p9.huge"),
        ("p5.48xlarge", "eu-central-1", 1, "in eu-central-1, only in .*us-east-1"),
        ("p5.4xlarge", "us-east-1", 2, "--gpus 2 exceeds the 1 accelerators"),
    ],
)
def test_an_unknown_price_is_reported(instance_type: str, region: str | None, gpus: int, problem: str) -> None:
    with pytest.raises(PriceError, match=problem):
        find_hourly_price(instance_type, region, gpus)
