"""Why calls were refused, as the simulation tells it."""

import pytest

from ops.simulate.shortfall import shortfall
from tests.ops.simulate.worlds import asr, headroom, simulate, steps_to, vad

LOAD = steps_to(60, 300)
PRICE = asr().usd_per_hour


def test_the_first_new_host_comes_after_alarm_and_boot() -> None:
    result = simulate((vad(), asr(low=2, rules=(headroom(change=4),))), LOAD)
    found = shortfall(result)
    assert found
    assert result.ledger.refused
    assert (found.places, found.peak, found.wanted) == (100, 300, 300)
    assert found.at_s == pytest.approx(301, abs=1)
    assert found.help_s
    assert 100 <= found.help_s <= 100 + 3 * 10 + 10  # a boot, and an alarm of three periods
    assert PRICE
    assert found.hold_usd_per_hour == pytest.approx(200 * PRICE / 50)
    assert "outgrew 100 places after 301 s" in str(found)
    assert "takes places for 300 calls before the load comes: at least" in str(found)


def test_without_scaling_no_host_comes() -> None:
    found = shortfall(simulate((vad(), asr(low=2)), LOAD))
    assert found
    assert found.help_s is None
    assert "no new host came" in str(found)


def test_places_for_the_peak_beforehand_refuse_none() -> None:
    result = simulate((vad(), asr(low=8, high=8)), LOAD)
    assert result.ledger.refused == 0
    assert shortfall(result) is None
