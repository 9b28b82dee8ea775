"""Alarm evaluation: every row of AWS's documentation, and general properties.

The tables are from https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html,
transcribed from the guide's source, awsdocs/amazon-cloudwatch-user-guide, doc_source/AlarmThatSendsEmail.md at
b35549706cab03cdcd0a8df9956a2381c0315642. ``0`` is a datapoint within the threshold, ``X`` a breaching one and ``-`` a
missing one, the newest on the right.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_blueprint.aws.alarms import AlarmRule, AlarmState, count_evaluated_periods, evaluate_alarm
from voice_blueprint.file.model.scaling import Comparison, MissingData

OK, ALARM, INSUFFICIENT = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA
RETAIN = None
COLUMNS = (MissingData.MISSING, MissingData.IGNORE, MissingData.BREACHING, MissingData.NOT_BREACHING)

THREE_OF_THREE = {
    "0 - X - X": (OK, OK, OK, OK),
    "0 - - - -": (OK, OK, OK, OK),
    "- - - - -": (INSUFFICIENT, RETAIN, ALARM, OK),
    "0 X X - X": (ALARM, ALARM, ALARM, ALARM),
    "- - X - -": (ALARM, RETAIN, ALARM, OK),
}
TWO_OF_THREE = {
    "0 - X - X": (ALARM, ALARM, ALARM, ALARM),
    "0 0 X 0 X": (ALARM, ALARM, ALARM, ALARM),
    "0 - X - -": (OK, OK, ALARM, OK),
    "- - - - 0": (OK, OK, ALARM, OK),
    "- - - X -": (ALARM, RETAIN, ALARM, OK),
}
ROWS = [
    (breaching, row, missing_data, state)
    for breaching, table in ((3, THREE_OF_THREE), (2, TWO_OF_THREE))
    for row, states in table.items()
    for missing_data, state in zip(COLUMNS, states, strict=True)
]
DATAPOINTS = {"0": 50.0, "X": 95.0, "-": None}


def rule(
    breaching: int = 3,
    evaluated: int = 3,
    missing_data: MissingData = MissingData.MISSING,
    comparison: Comparison = Comparison.ABOVE,
    threshold: float = 90,
) -> AlarmRule:
    return AlarmRule(comparison, threshold, breaching, evaluated, missing_data)


def points(row: str) -> list[float | None]:
    return [DATAPOINTS[mark] for mark in row.replace(" ", "")]


@pytest.mark.parametrize("current", AlarmState)
@pytest.mark.parametrize(("breaching", "row", "missing_data", "state"), ROWS)
def test_a_documented_row_is_reproduced(
    breaching: int, row: str, missing_data: MissingData, state: AlarmState | None, current: AlarmState
) -> None:
    expected = current if state is RETAIN else state
    assert evaluate_alarm(rule(breaching, 3, missing_data), points(row), current) is expected


def test_both_documented_tables_are_complete() -> None:
    assert len(ROWS) == 2 * 5 * 4
    assert all(len(points(row)) == count_evaluated_periods(rule(evaluated=3)) == 5 for _, row, _, _ in ROWS)


@pytest.mark.parametrize("row", ["- - - - X", "- - - X -"])
@pytest.mark.parametrize("current", [OK, INSUFFICIENT])
def test_one_breaching_datapoint_after_missing_data_does_not_alarm_immediately(row: str, current: AlarmState) -> None:
    # "Avoiding premature transitions to alarm state": the next datapoint may be within the threshold.
    assert evaluate_alarm(rule(3), points(row), current) is not ALARM


@pytest.mark.parametrize(
    ("comparison", "value", "breaches"),
    [
        (Comparison.ABOVE, 90.0, False),
        (Comparison.ABOVE, 90.1, True),
        (Comparison.ABOVE, 89.9, False),
        (Comparison.BELOW, 90.0, False),
        (Comparison.BELOW, 89.9, True),
        (Comparison.BELOW, 90.1, False),
    ],
)
def test_the_threshold_itself_never_breaches(comparison: Comparison, value: float, breaches: bool) -> None:
    one = rule(1, 1, comparison=comparison)
    assert one.is_breached_by(value) is breaches
    assert evaluate_alarm(one, [value], OK) is (ALARM if breaches else OK)


@pytest.mark.parametrize("missing_data", MissingData)
def test_fewer_periods_than_the_range_are_evaluated_like_missing_ones(missing_data: MissingData) -> None:
    for row in ("", "X", "X X", "0 X", "X -"):
        padded = [None] * (5 - len(points(row))) + points(row)
        for breaching in (1, 2, 3):
            one = rule(breaching, 3, missing_data)
            assert evaluate_alarm(one, points(row), OK) is evaluate_alarm(one, padded, OK), row


def datapoint_sequences(marks: str, length: int) -> list[str]:
    return ["".join(row) for row in itertools.product(marks, repeat=length)]


def silence_alone_can_alarm(missing_data: MissingData) -> bool:
    """Return whether missing data and fewer breaching datapoints than required turn OK into ALARM."""
    return any(
        evaluate_alarm(rule(breaching, 3, missing_data), points(row), OK) is ALARM
        for breaching in (2, 3)
        for row in datapoint_sequences("0X-", 5)
        if row.count("X") < breaching
    )


def test_treatments_of_missing_data_that_can_alarm() -> None:
    # The check missing-data-is-safe refuses exactly these.
    assert {item for item in MissingData if silence_alone_can_alarm(item)} == {
        MissingData.BREACHING,
        MissingData.MISSING,
    }


# --- What holds for any rule and any data -----------------------------------------------------------------

SEVERITY = {OK: 0, INSUFFICIENT: 1, ALARM: 2}

rules = st.integers(1, 5).flatmap(
    lambda evaluated: st.builds(
        rule, st.integers(1, evaluated), st.just(evaluated), st.sampled_from(MissingData), st.just(Comparison.ABOVE)
    )
)
rows = st.text(alphabet="0X-", min_size=1, max_size=8)
states = st.sampled_from(AlarmState)


def with_treatment(one: AlarmRule, missing_data: MissingData) -> AlarmRule:
    return rule(one.datapoints_to_alarm, one.evaluation_periods, missing_data, one.comparison)


@given(one=rules, row=rows, current=states, where=st.integers(0, 7))
def test_more_breaching_data_never_turns_an_alarm_off(
    one: AlarmRule, row: str, current: AlarmState, where: int
) -> None:
    at = where % len(row)
    worse = f"{row[:at]}X{row[at + 1 :]}"
    if evaluate_alarm(one, points(row), current) is ALARM:
        assert evaluate_alarm(one, points(worse), current) is ALARM


@given(one=rules, row=rows, current=states)
def test_breaching_is_the_strictest_treatment_and_not_breaching_the_mildest(
    one: AlarmRule, row: str, current: AlarmState
) -> None:
    state = {item: evaluate_alarm(with_treatment(one, item), points(row), current) for item in MissingData}
    for item in (MissingData.MISSING, MissingData.BREACHING):
        assert SEVERITY[state[item]] >= SEVERITY[state[MissingData.NOT_BREACHING]]
    if state[MissingData.NOT_BREACHING] is ALARM:
        assert set(state.values()) == {ALARM}
    if state[MissingData.BREACHING] is OK:
        assert set(state.values()) == {OK}


@given(one=rules, row=st.text(alphabet="0X", min_size=5, max_size=8), current=states)
def test_without_missing_data_only_the_newest_periods_count(one: AlarmRule, row: str, current: AlarmState) -> None:
    newest = row[-one.evaluation_periods :]
    expected = ALARM if newest.count("X") >= one.datapoints_to_alarm else OK
    for item in MissingData:
        assert evaluate_alarm(with_treatment(one, item), points(row), current) is expected


@given(one=rules, row=rows)
def test_only_ignore_and_missing_depend_on_the_previous_state(one: AlarmRule, row: str) -> None:
    for item in (MissingData.BREACHING, MissingData.NOT_BREACHING):
        found = {evaluate_alarm(with_treatment(one, item), points(row), current) for current in AlarmState}
        assert len(found) == 1


@given(one=rules, row=rows, current=states)
def test_insufficient_data_requires_missing_data(one: AlarmRule, row: str, current: AlarmState) -> None:
    if evaluate_alarm(one, points(row), current) is INSUFFICIENT:
        assert "-" in row or len(row) < one.evaluation_periods
        assert one.missing_data in {MissingData.MISSING, MissingData.IGNORE}


@given(one=rules, row=rows, current=states)
def test_below_is_symmetric_to_above(one: AlarmRule, row: str, current: AlarmState) -> None:
    mirrored = rule(one.datapoints_to_alarm, one.evaluation_periods, one.missing_data, Comparison.BELOW, -one.threshold)
    values = [None if value is None else -value for value in points(row)]
    assert evaluate_alarm(mirrored, values, current) is evaluate_alarm(one, points(row), current)
