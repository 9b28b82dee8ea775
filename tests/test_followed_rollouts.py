"""The pipelines' scripts finish a rollout of production that takes hours, with credentials that last an hour."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ops.rollout import simulated_account
from tests.ops.rollout.simulated_account import CREDENTIALS_S, seconds
from tests.test_pipelines import FILE, ROOT, Machine

EVERY_S = 20 * 60
"""Interval of the schedule."""


class Pipeline(Machine):
    """A pipeline whose jobs have separate credentials on the simulated account."""

    def __init__(self, folder: Path, bad: dict[str, list[str]]) -> None:
        super().__init__(folder)
        self.file = folder / "account.json"
        stacks = {
            name: {
                "name": name,
                "status": "UPDATE_COMPLETE",
                "revision": "old",
                "to": "old",
                "ends_s": None,
                "updated_s": 0,
            }
            for name in seconds()
        }
        state: dict[str, Any] = {
            "now_s": 10,
            "issued_s": 10,
            "parameter": None,
            "calls": [],
            "stacks": stacks,
            "bad": bad,
        }
        self.file.write_text(json.dumps(state))
        program = Path(simulated_account.__file__)
        for name, line in (
            ("voice", f'SIMULATION="{self.file}" PYTHONPATH="{ROOT}" exec "{sys.executable}" "{program}" "$@"'),
            ("git", 'if [[ $1 == rev-parse ]]; then echo new; else mkdir -p "$5/deployments"; fi'),
        ):
            (folder / "bin" / name).write_text(f"#!/usr/bin/env bash\n{line}\n")

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text()))

    def job(self, script: str) -> tuple[int, float]:
        """Run a job with fresh credentials; return its exit code and duration."""
        state = self.state
        state["issued_s"] = state["now_s"]
        self.file.write_text(json.dumps(state))
        done = self.run(script)
        assert "ExpiredToken" not in done.stderr, done.stderr
        return done.returncode, self.state["now_s"] - state["issued_s"]

    def follow(self) -> tuple[list[int], list[float]]:
        """Run scheduled jobs until no rollout is in progress, and return exit codes and durations."""
        codes: list[int] = []
        durations: list[float] = []
        while self.state["parameter"] is not None and not json.loads(self.state["parameter"])["rolled_back_region"]:
            state = self.state
            # A job that takes longer than the interval delays the next one.
            state["now_s"] += max(0.0, EVERY_S - (durations[-1] if durations else 0))
            self.file.write_text(json.dumps(state))
            code, took_s = self.job(f".ci/deploy-aws follow {FILE}")
            codes.append(code)
            durations.append(took_s)
            assert len(codes) < 40, self.state
        return codes, durations

    @property
    def revisions(self) -> set[str]:
        return {each["revision"] for each in self.state["stacks"].values()}


@pytest.fixture
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    return Pipeline(tmp_path, getattr(request, "param", {}))


def test_jobs_of_a_production_rollout_end_before_their_credentials_expire(pipeline: Pipeline) -> None:
    groups = [each for each in seconds().values() if each > 2000]
    assert sum(groups) > 4 * 3600, "six groups with their pauses take hours"
    code, took_s = pipeline.job(f".ci/deploy-aws deploy {FILE} old")
    codes, durations = pipeline.follow()
    assert (code, set(codes)) == (0, {0})
    assert len(codes) > 4
    assert max(took_s, *durations) < CREDENTIALS_S - 120
    assert pipeline.revisions == {"new"}
    assert pipeline.state["calls"][-1] == f"status {FILE}", "it is probed once, at its end"
    assert [call for call in pipeline.state["calls"] if call.startswith("status")] == [f"status {FILE}"]


@pytest.mark.nightly
@pytest.mark.parametrize("pipeline", [{"production-us-east-1-asr-trn1": ["new"]}], indirect=True)
def test_after_a_rollback_by_an_alarm_the_previous_revision_is_rolled_out(pipeline: Pipeline) -> None:
    assert pipeline.job(f".ci/deploy-aws deploy {FILE} old")[0] == 0
    codes, durations = pipeline.follow()
    assert codes.count(1) == 1, "the job that finds it taken back fails, for people to see"
    assert max(durations) < CREDENTIALS_S - 120
    assert pipeline.revisions == {"old"}
    starts = [call for call in pipeline.state["calls"] if "--start" in call]
    assert starts == [f"rollout {FILE} --start new old", f"rollout {FILE} --start old --minutes 0"]


@pytest.mark.nightly
@pytest.mark.parametrize("pipeline", [{"production-us-east-1-asr-inf2": ["new", "old"]}], indirect=True)
def test_a_rollback_that_fails_too_ends(pipeline: Pipeline) -> None:
    """No third rollout is started, since operators must decide."""
    assert pipeline.job(f".ci/deploy-aws deploy {FILE} old")[0] == 0
    codes, _ = pipeline.follow()
    assert codes.count(1) >= 1
    assert len([call for call in pipeline.state["calls"] if "--start" in call]) == 2
