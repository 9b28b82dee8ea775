"""Traces: properties of the built-in traces, and errors of invalid CSV files."""

from pathlib import Path

import pytest

from voice_ops.simulate.traces import BUILT_IN_TRACES, TraceError, read_trace


@pytest.mark.parametrize("name", BUILT_IN_TRACES)
def test_built_in_traces_start_at_zero_and_have_their_name(name: str) -> None:
    trace = BUILT_IN_TRACES[name](5_000)
    assert trace.name == name
    assert trace.seconds[0] == 0
    assert list(trace.seconds) == sorted(set(trace.seconds))
    assert min(trace.calls) > 0
    assert trace.peak <= 5_000


def test_a_spike_is_ten_times_the_calls_within_a_minute() -> None:
    trace = BUILT_IN_TRACES["spike"](1_000)
    assert [trace.interpolate_calls(second) for second in (0, 600, 630, 660)] == pytest.approx([100, 100, 550, 1_000])


def test_a_day_has_its_peak_in_the_afternoon() -> None:
    trace = BUILT_IN_TRACES["diurnal"](1_000)
    assert trace.duration_s == 86_400
    assert trace.interpolate_calls(15 * 3600) == pytest.approx(1_000)
    assert trace.interpolate_calls(3 * 3600) == pytest.approx(200)


def test_a_flash_crowd_decreases() -> None:
    trace = BUILT_IN_TRACES["flash-crowd"](1_000)
    assert trace.interpolate_calls(900) / trace.interpolate_calls(0) == pytest.approx(5)
    assert trace.interpolate_calls(900 + 1_200) == pytest.approx(600)


def test_values_between_rows_of_a_file_are_interpolated(tmp_path: Path) -> None:
    file = tmp_path / "monday.csv"
    file.write_text("second,calls\n0,10\n100,30\n")
    trace = read_trace(file)
    assert trace.name == "monday"
    assert [trace.interpolate_calls(second) for second in (-50, 0, 50, 100)] == [10, 10, 20, 30]


def test_a_byte_order_mark_is_not_part_of_the_header(tmp_path: Path) -> None:
    file = tmp_path / "monday.csv"
    file.write_bytes(b"\xef\xbb\xbfsecond,calls\r\n0,10\r\n100,30\r\n")
    assert read_trace(file).calls == (10, 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("second,calls\n0,1\n60,1e19\n", "at most 1e+19 calls; the simulator carries up to 100,000,000"),
        ("second,calls\n0,1\n10000000,4\n", "lasts 1e+07 s; the simulator plays up to 2,678,400 s, 31 days"),
        ("", ":1: the header is ''"),
        ("time,calls\n0,1\n", ":1: the header is 'time,calls'; write 'second,calls'"),
        ("second,calls\n0,1\n", "two rows or more"),
        ("second,calls\n0,1\n60,many\n", ":3: '60,many' is not two numbers"),
        ("second,calls\n0,1\n60\n", ":3: '60' is not two numbers"),
        ("second,calls\n0,1\n60,1,2\n", ":3: '60,1,2' is not two numbers"),
        ("second,calls\n0,1\n60,-4\n", ":3: calls and seconds are finite and not negative"),
        ("second,calls\n0,1\n60,nan\n", ":3: calls and seconds are finite"),
        ("second,calls\n0,1\ninf,4\n", ":3: calls and seconds are finite"),
        ("second,calls\n5,1\n60,4\n", ":2: the first second is 0, not 5"),
        ("second,calls\n0,1\n60,4\n60,5\n", ":4: second 60 does not come after 60"),
        ("second,calls\n0,0\n60,0\n", "every row has 0 calls"),
    ],
)
def test_invalid_rows_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(TraceError) as refusal:
        read_trace(file)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(str(file))


def test_non_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"trace\.csv"):
        read_trace(file)
    with pytest.raises(TraceError, match=r"No such file"):
        read_trace(tmp_path / "none.csv")
