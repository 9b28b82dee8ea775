"""Load of a host: processing time over audio time of the last minute."""

from voice_whisper.counters import Counters


def test_the_real_time_factor_is_that_of_the_last_minute() -> None:
    counters = Counters()
    assert counters.calculate_real_time_factor(0.0) is None
    counters.record_work(0.0, 3.0, 4.0)
    counters.record_work(10.0, 1.0)  # a partial
    assert counters.calculate_real_time_factor(10.0) == 1.0
    counters.record_work(30.0, 1.0, 8.0)
    assert counters.calculate_real_time_factor(60.0) == 5 / 12
    assert counters.calculate_real_time_factor(60.5) == 2 / 8
    assert counters.calculate_real_time_factor(90.5) is None
