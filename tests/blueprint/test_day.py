"""The simulated day: each curve has the mean and the peak of the load."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import voice_blueprint
from tests.synthesized import ROOT
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION, build_caller_tier_capacities, sum_calls_by_tier
from voice_blueprint.day import SECONDS_PER_DAY, LoadCurveError, resolve_design_load, resolve_design_load_curve
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad

SMALL = voice_blueprint.load(ROOT / "deployments/small.yaml")


def with_load(load: CallLoad | None, deployment: Deployment = SMALL) -> Deployment:
    return deployment.model_copy(update={"load": load})


@pytest.mark.parametrize("curve", ["business-day", "spike"])
@given(calls=st.integers(1, 1_000_000), factor=st.floats(1, 50))
def test_a_curve_has_the_mean_and_the_peak_of_the_load(curve: str, calls: int, factor: float) -> None:
    load = CallLoad(calls=calls, peak_factor=factor, curve=curve)
    found = resolve_design_load_curve(with_load(load))
    assert (found.seconds[0], found.seconds[-1]) == (0, SECONDS_PER_DAY)
    assert list(found.seconds) == sorted(set(found.seconds))
    assert min(found.calls) >= 0
    assert found.peak == pytest.approx(calculate_peak_calls(load), rel=0.005)
    assert found.mean == pytest.approx(calls, rel=0.005)


def test_a_flat_day_has_its_mean_at_every_hour() -> None:
    assert set(resolve_design_load_curve(with_load(CallLoad(calls=700, peak_factor=3, curve="flat"))).calls) == {700}


def test_a_business_day_has_its_peak_in_the_afternoon_and_some_calls_at_night() -> None:
    found = resolve_design_load_curve(with_load(CallLoad(calls=1_000, peak_factor=10)))
    assert found.seconds[found.calls.index(found.peak)] == 15 * 3600
    assert min(found.calls) == pytest.approx(200, rel=0.01)


def load_with_day(folder: Path, text: str, load: CallLoad) -> Deployment:
    (folder / "week.csv").write_text(text, encoding="utf-8-sig")
    source = SMALL.source.__class__(file=folder / "small.yaml", lines={})
    return SMALL.model_copy(update={"load": load}).attach_source(source)


def test_a_day_is_read_from_a_file_next_to_the_deployment_file(tmp_path: Path) -> None:
    text = "second,calls\n0,10\n43200,30\n86400,10\n"
    found = resolve_design_load_curve(
        load_with_day(tmp_path, text, CallLoad(calls=20, peak_factor=1.5, curve="week.csv"))
    )
    assert (found.name, found.mean, found.peak) == ("week", 20, 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a day"),
        ("time,calls\n0,10\n86400,30\n", "has the header second,calls"),
        ("second,calls\n0,10\n3600,30\n", "rows from second 0 to 86400"),
        ("second,calls\n0,10\n43200,many\n86400,10\n", "not a day"),
        ("second,calls\n0,10\n43200\n86400,10\n", "not a day"),
        ("second,calls\n0,10\n50000,30\n43200,30\n86400,10\n", "seconds rise"),
        ("second,calls\n0,10\n43200,-1\n86400,10\n", "not negative"),
        ("second,calls\n0,10\n43200,nan\n86400,10\n", "not negative"),
        ("second,calls\n0,10\n43200,31\n86400,10\n", "its mean is 20 calls, that of `load` is 30; set calls to 20"),
        ("second,calls\n0,20\n43200,40\n86400,20\n", "its peak is 40 calls, that of `load` is 30"),
    ],
)
def test_a_day_file_that_does_not_match_the_load_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(LoadCurveError) as raised:
        resolve_design_load_curve(load_with_day(tmp_path, text, CallLoad(calls=30, peak_factor=1, curve="week.csv")))
    assert message in str(raised.value)


def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    load = CallLoad(calls=30, curve="none.csv")
    with pytest.raises(LoadCurveError, match=r"none\.csv: No such file"):
        resolve_design_load_curve(load_with_day(tmp_path, "second,calls\n", load))


@pytest.mark.parametrize("file", ["sandbox", "both", "hosts"])
def test_a_file_without_a_load_is_designed_for_the_capacity_of_its_tiers(file: str) -> None:
    deployment = voice_blueprint.load(ROOT / f"deployments/{file}.yaml")
    assert deployment.load is None
    load = resolve_design_load(deployment)
    assert (
        calculate_peak_calls(load)
        <= TARGET_UTILIZATION
        * min(most for _, most in sum_calls_by_tier(build_caller_tier_capacities(deployment)).values())
        + 1
    )
