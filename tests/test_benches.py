"""Benches run manually or nightly; these tests detect moved paths on every change."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from bench.dataplane import goals as dataplane_goals
from bench.dataplane import streams
from bench.goals import Goal, report_goals
from bench.product import BUILD_SCRIPT, PROJECT, ROOT
from bench.record import MEASUREMENTS_PAGE, record
from bench.vad import corpus
from bench.vad.native import BENCH_DIR
from bench.voice import goals
from bench.voice.shown import measure_display
from bench.voice.step import LoadResult
from tests.ops.simulate.worlds import SETTINGS, ZONES, asr, steady, vad
from voice_ops.call.session import TranscriptEvent, Word
from voice_ops.simulate.capacity import GroupPlan
from voice_ops.simulate.fleet import GroupHosts, Host
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import Simulation


def test_sources_of_benches_exist() -> None:
    sources = [BENCH_DIR / f"{name}.cpp" for name in ("decide", "frame_cost")]
    lists = [PROJECT / "tests/packages.txt", PROJECT / "timing/packages.txt", BENCH_DIR / "packages.txt"]
    assert all(file.is_file() for file in (BUILD_SCRIPT, PROJECT / "tests/install.sh", *sources, *lists))


def test_empty_recordings_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the benchmark failed at a file without samples in Debian's Russian package."""
    monkeypatch.setattr(corpus, "ASTERISK_FOLDER", tmp_path)
    folder = tmp_path / "sounds" / corpus.SPEAKERS["Ivrvoice"]
    folder.mkdir(parents=True)
    empty, spoken = [name for name in (f"{n}.g722" for n in range(99)) if corpus.assign_split(name) == "held-out"][:2]
    (folder / empty).touch()
    (folder / spoken).write_bytes(bytes(160))
    assert corpus.find_recordings("Ivrvoice", "held-out") == [folder / spoken]


def test_a_growing_transcript_is_judged_by_its_displayed_text() -> None:
    def transcript_event(kind: str, text: str, certain: int, start_ms: int = 0, **more: bool) -> TranscriptEvent:
        said = text.split()
        words = [Word(text=word, end_ms=start_ms + 100 * place) for place, word in enumerate(said, start=1)]
        committed = " ".join(said[:certain])
        end_ms = start_ms + 100 * (certain if kind == "final" else len(said))
        return TranscriptEvent.model_validate(
            dict(kind=kind, text=text, start_ms=start_ms, end_ms=end_ms, committed=committed, words=words, **more)
        )

    events = [
        (0.5, transcript_event("partial", "We can sea", 0)),
        (1.0, transcript_event("partial", "We can see the answer", 2)),  # `sea` is retracted
        (1.5, transcript_event("final", "We can see", 3, speech_final=False)),  # the rest only moves
        (2.0, transcript_event("partial", "the answer on", 2, start_ms=300)),
        (2.5, transcript_event("final", "a answer on it", 4, start_ms=300)),  # `the` was committed
    ]
    screen = measure_display(events)
    assert (screen.withdrawn_word_count, screen.withdrawn_committed_word_count, screen.word_count) == (2, 1, 7)
    assert screen.commit_delays_s == [0.9, 0.8, 1.2, 1.6, 1.5, 1.9, 1.8]
    assert screen.withdrawn_ratio == 2 / 9


PASSING_STEP = LoadResult(
    contestant="now",
    streams=8,
    real_time_factor=0.1,
    failed=(),
    lost=0,
    sentences=24,
    first_text_s=(1.0, 2.0, 3.0),
    final_s=(0.75, 1.0, 2.0),
    cpu_s={"asr": 15.0},
    word_error_rate=0.1,
    committed_s=(1.0, 4.0, 5.0),
    withdrawn=0.2,
    broken=0,
    shed=0.0,
    callers_share=0.1,
    others_share=0.0,
)
REGRESSIONS = (
    {"cpu_s": {"asr": 15.1}},
    {"first_text_s": (1.1, 1.1, 1.1)},
    {"first_text_s": ()},
    {"committed_s": (1.0, 4.1, 5.0)},
    {"final_s": (0.76, 0.8, 0.8)},
    {"withdrawn": 0.21},
    {"broken": 1},
    {"failed": ("no complete transcript",)},
    {"lost": 1},
)


def test_the_voice_bench_reports_each_missed_goal() -> None:
    assert goals.describe_missed_goals("sentences", PASSING_STEP, alone_cpu_s=5.0, slowness=1) == []
    assert goals.describe_missed_goals("monologue", PASSING_STEP, alone_cpu_s=10.0, slowness=1) == []
    for worse in REGRESSIONS:
        step = replace(PASSING_STEP, **worse)
        [missed] = goals.describe_missed_goals("monologue", step, alone_cpu_s=10.0, slowness=1)
        assert missed.startswith("monologue: "), worse


def test_a_slow_cpu_may_process_for_longer_but_not_wait_for_longer() -> None:
    slowness = goals.calculate_slowness(3 * goals.REFERENCE_CPU_S)
    step = replace(PASSING_STEP, first_text_s=(1.6, 2.0, 3.0), final_s=(1.25, 1.3, 1.4), committed_s=(1.0, 8.0, 9.0))
    assert goals.describe_missed_goals("monologue", step, alone_cpu_s=10.0, slowness=slowness) == []
    late = replace(step, first_text_s=(1.61, 2.0, 3.0), final_s=(1.26, 1.3, 1.4), committed_s=(1.0, 8.1, 9.0))
    assert len(goals.describe_missed_goals("monologue", late, alone_cpu_s=10.0, slowness=slowness)) == 3
    assert goals.calculate_slowness(goals.REFERENCE_CPU_S / 2) == 1


def live_rounds(lost_by_streams: dict[int, float], late: float = 0.0) -> list[streams.LiveRoundsSummary]:
    return [
        streams.LiveRoundsSummary(
            count, lost=(share,), late=late, cycles_per_packet={}, ring_percent=50, speech=0.5, drops={}
        )
        for count, share in lost_by_streams.items()
    ]


def test_loss_with_the_first_streams_does_not_hide_how_many_pass_without_loss() -> None:
    """A run printed "not measured" and passed, since the first 1,000 streams had lost 0.4 % in each of its rounds."""
    rounds = live_rounds({1000: 0.004, 2000: 0.0, 3000: 0.0, 4000: 0.11})
    assert streams.find_max_loss_free_streams(rounds) == 3000
    (goal,) = dataplane_goals.create_af_xdp_goals(rounds, rounds)
    assert goal.value == 1


def test_af_xdp_misses_its_goal_if_each_number_of_streams_has_loss() -> None:
    lossy, late = live_rounds({1000: 0.004, 2000: 0.1}), live_rounds({1000: 0.0}, late=0.1)
    for measured in (lossy, late):
        (goal,) = dataplane_goals.create_af_xdp_goals(lossy, measured)
        assert not goal.is_met
    assert dataplane_goals.create_af_xdp_goals([], []) == []


def test_a_result_is_recorded_with_commit_machine_and_date(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n\n<!-- bench: echo: echo '4.2  ms' -->\nold\n<!-- end -->\n\nb\n", encoding="utf-8")
    record("echo", page)
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert "```\n4.2  ms\n```" in text
    assert re.search(
        r"^\*`echo '4\.2  ms'` · commit `[0-9a-f]{8}( with changes)?` · \d{4}-\d\d-\d\d · \d+ x .+\*$", text, re.M
    )
    assert text.startswith("a\n\n<!-- bench")
    assert text.endswith("<!-- end -->\n\nb\n")


@pytest.mark.parametrize(("name", "command"), [("other", "true"), ("fails", "false")])
def test_a_nonexistent_or_failed_bench_records_nothing(tmp_path: Path, name: str, command: str) -> None:
    page = tmp_path / "page.md"
    text = f"<!-- bench: fails: {command} -->\nold\n<!-- end -->\n"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(typer.Exit):
        record(name, page)
    assert page.read_text(encoding="utf-8") == text


def test_every_section_of_measurements_is_computed_or_dated() -> None:
    """Without commit and date an outdated figure cannot be recognized."""
    sections = re.split(r"^## ", MEASUREMENTS_PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    assert sections
    for section in sections:
        title, _, body = section.partition("\n")
        assert "<!-- table: " in body or re.search(r"^\*.+ · commit `[0-9a-f]{8}` · \d{4}-\d\d-\d\d", body, re.M), title


def test_a_bench_that_misses_a_goal_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    report_goals([Goal("seconds", 29.9, 30), Goal("streams", 4000, 4000, is_minimum=True)])
    assert "MISSED" not in capsys.readouterr().out
    for missed in (Goal("seconds", 30.1, 30), Goal("streams", 3999, 4000, is_minimum=True), Goal("none", math.nan, 1)):
        with pytest.raises(SystemExit) as ended:
            report_goals([Goal("seconds", 1, 30), missed])
        assert ended.value.code == 1
        assert f"MISSED  {missed.name}: " in capsys.readouterr().out
    with pytest.raises(ValueError, match="requires at least one goal"):
        report_goals([])


def test_every_bench_checks_its_goals_and_runs_nightly() -> None:
    makefile, nightly = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/nightly"))
    benches = re.findall(r"^(bench-\w+):.*\n(?:\t.*\n)*?\t\S*python -m (\S+)", makefile, re.MULTILINE)
    assert len(benches) == 6
    for target, module in benches:
        assert f" {target}" in nightly
        file = ROOT / module.replace(".", "/")
        source = (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
        ends = r"^    ((goals\.)?report_goals|exit_with_result)\(|raise create_exit\(\"missed"
        assert re.search(ends, source, re.MULTILINE), module


def test_resizing_a_group_does_not_iterate_over_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    each = GroupHosts.__iter__

    def counted_hosts(members: GroupHosts) -> Iterator[Host]:
        nonlocal looked
        for host in each(members):
            looked += 1
            yield host

    monkeypatch.setattr(GroupHosts, "__iter__", counted_hosts)
    plan = replace(vad(), groups=(GroupPlan("one", ZONES, 0, 4_000),))
    simulation = Simulation((plan, asr()), create_configured_policy((plan, asr())), steady(1), SETTINGS)
    group = simulation.fleets[0].groups[0]
    group.resize(4_000)
    simulation.env.run(until=300)
    group.resize(0)
    assert (len(group.hosts), looked) == (0, 0)
