"""A rollout in several time-limited runs on the local AWS with the real CDK command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import Edits, edit_document
from tests.boto_calls import actions, record_calls
from voice_blueprint.shipped import ROOT
from voice_ops.cli import app
from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND
from voice_ops.rollout import parts
from voice_ops.teardown import external_resources
from voice_sandbox.rehearsals.aws import Rehearsal

pytestmark = [pytest.mark.sandbox, pytest.mark.nightly]
RETAINED_KINDS = {"bucket", "image repository", "key", "role"}
"""Kinds of resources that the stacks of a staging file retain."""


def test_a_deployment_is_created_and_updated_in_time_limited_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time-limited runs, each ended as early as possible, create the deployment and roll out a change."""
    monkeypatch.setattr(parts, "POLL_INTERVAL_S", 0.5)
    monkeypatch.setattr(external_resources, "POLL_INTERVAL_S", 0.5)
    file = tmp_path / "small.yaml"

    def write(edits: Edits) -> None:
        small = (ROOT / "tests/deployments/small.yaml").read_text(encoding="utf-8")
        file.write_text(edit_document({"environment": "staging", **edits}, small), encoding="utf-8")

    def command(name: str, *arguments: str) -> Result:
        with record_calls() as calls:
            result = CliRunner().invoke(app, [name, str(file), *arguments])
        assert actions(calls) <= ACTIONS_BY_COMMAND[name]
        return result

    voice = partial(command, "rollout")

    write({})
    with Rehearsal(voice_blueprint.load(file)) as running:
        for name, value in running.aws.build_environment(running.home).items():
            monkeypatch.setenv(name, value)
        running.bootstrap()
        assert voice("--current").stdout.strip() == ""
        first = voice("--start", "one zero", "--minutes", "0")
        assert first.exit_code == 75, first.output
        assert voice("--current").stdout.strip() == "one zero"
        done = voice("--resume", "--minutes", "10")
        assert done.exit_code == 0, done.output
        assert voice("--current").stdout.strip() == ""
        assert "no rollout is in progress" in voice("--resume").output

        write({"aws.edge.session_max_s": 1800})
        assert voice("--start", "two one", "--minutes", "0").exit_code == 75
        write({"aws.edge.session_max_s": 900})
        other = voice("--resume")
        assert (other.exit_code, "two one" in other.output) == (2, True), other.output
        write({"aws.edge.session_max_s": 1800})
        done = voice("--resume", "--minutes", "10")
        assert done.exit_code == 0, done.output
        cloudformation = running.aws.client("cloudformation")
        statuses = {each["StackStatus"] for each in cloudformation.describe_stacks()["Stacks"]}
        assert statuses <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}

        write({"aws.edge.session_max_s": 900})
        assert voice("--start", "three two", "--minutes", "0").exit_code == 75
        for _ in range(2):
            ended = command("teardown", "--yes")
            assert ended.exit_code == 0, ended.output
        assert voice("--current").stdout.strip() == ""
        assert dict(running.count_remaining_resources()).keys() <= RETAINED_KINDS
