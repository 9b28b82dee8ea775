"""A `voice rollout` for pipelines' scripts: the real code over a simulated CloudFormation whose clock is in a file.

The working folder of the program is the revision, and ``SIMULATION`` is the path of the account's state.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

import voice_blueprint
from voice_blueprint import Deployment
from voice_blueprint.aws import names
from voice_ops.exits import FAILED, IN_PROGRESS
from voice_ops.rollout.resume import (
    START_TIMEOUT_S,
    PartTimeLimit,
    RolloutOutcome,
    advance_rollout,
    load_rollout,
    record_rollout_start,
)
from voice_sandbox.rehearsals.cdk import CdkError

FILE = Path(__file__).parents[3] / "tests/deployments/production-us-east-1.yaml"
CREDENTIALS_S, MINUTES = 3600.0, 40.0
EPOCH = datetime(2026, 11, 26, tzinfo=UTC)
SETUP_S, CALM_S = 240.0, 180.0
"""Duration of a job before it runs `voice`, and of the update of a stack without hosts."""


@cache
def production() -> Deployment:
    """Return the file of production."""
    return voice_blueprint.load(FILE)


@cache
def seconds() -> dict[str, float]:
    """Return the duration of each production stack's update: pauses, bake time, and batches of hosts."""
    deployment = production()
    rollout, tiers = deployment.aws.rollout, ("network", "registry", "state", "vad", "asr", "edge", "observability")
    pauses = (len(rollout.checkpoint_percentages) + 1) * rollout.checkpoint_pause_s + rollout.bake_s
    group_series = pauses + 2 * 900.0
    takes = {names.build_stack_name(deployment, tier): CALM_S for tier in tiers}
    takes[names.build_stack_name(deployment, "vad")] = group_series * len(names.list_vad_group_names(deployment))
    return takes | {
        names.build_stack_name(deployment, names.build_fleet_stack_suffix(each.name)): group_series
        for each in deployment.aws.asr
    }


class Simulation:
    """State of the simulated account, stored in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.state: dict[str, Any] = json.loads(file.read_text())

    def save(self) -> None:
        self._file.write_text(json.dumps(self.state))

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.state["now_s"])

    def pass_s(self, duration_s: float) -> None:
        self.state["now_s"] += duration_s
        for stack in self.state["stacks"].values():
            if stack["ends_s"] is not None and stack["ends_s"] <= self.state["now_s"]:
                bad = stack["to"] in self.state["bad"].get(stack["name"], [])
                stack["status"] = "UPDATE_ROLLBACK_COMPLETE" if bad else "UPDATE_COMPLETE"
                stack["revision"] = stack["revision"] if bad else stack["to"]
                stack["ends_s"] = None

    def check(self) -> None:
        """Reject calls with expired credentials like AWS."""
        if self.state["now_s"] - self.state["issued_s"] > CREDENTIALS_S:
            raise ClientError({"Error": {"Code": "ExpiredToken", "Message": "expired"}}, "any")

    def begin(self, name: str, revision: str) -> None:
        stack = self.state["stacks"][name]
        stack |= {"status": "UPDATE_IN_PROGRESS", "to": revision, "updated_s": self.state["now_s"]}
        stack["ends_s"] = self.state["now_s"] + seconds()[name]


class Deploy:
    """Fake of the CDK's command line: the update begins a minute after its start."""

    def __init__(self, simulation: Simulation, revision: str, stack: str) -> None:
        self._simulation, self._revision, self._stack = simulation, revision, stack
        self._at_s: float | None = simulation.state["now_s"] + 60

    def has_ended(self) -> bool:
        self._simulation.check()
        if self._at_s is not None and self._simulation.state["now_s"] >= self._at_s:
            self._simulation.begin(self._stack, self._revision)
            self._at_s = None
        return False

    def stop_cli(self) -> None:
        assert self._at_s is None, f"left {self._stack} before CloudFormation had begun"


def account_for(simulation: Simulation, revision: str) -> Any:  # noqa: ANN401  a fake Account
    """Return the rollout's view of the account, with the templates of a revision."""

    def fetch_stack_statuses() -> dict[str, str]:
        simulation.check()
        return {name: each["status"] for name, each in simulation.state["stacks"].items()}

    def client(_: str) -> SimpleNamespace:
        return SimpleNamespace(
            describe_stacks=lambda StackName: {"Stacks": [_describe_stack(simulation, StackName)]},  # noqa: N803
            get_parameter=lambda Name: _parameter(simulation, Name),  # noqa: N803
            put_parameter=lambda **said: simulation.state.update(parameter=said["Value"]),
            delete_parameter=lambda Name: simulation.state.update(parameter=None),  # noqa: ARG005, N803
        )

    return SimpleNamespace(
        deployment=production(),
        region="us-east-1",
        templates={name: {"revision": revision} for name in seconds()},
        fetch_stack_statuses=fetch_stack_statuses,
        fetch_live_template=lambda name: {"revision": simulation.state["stacks"][name]["revision"]},
        session=SimpleNamespace(client=client),
    )


def _describe_stack(simulation: Simulation, name: str) -> dict[str, Any]:
    updated = EPOCH + timedelta(seconds=simulation.state["stacks"][name]["updated_s"])
    return {"LastUpdatedTime": updated, "CreationTime": EPOCH, "StackStatusReason": "an alarm"}


def _parameter(simulation: Simulation, _: str) -> dict[str, Any]:
    simulation.check()
    if simulation.state["parameter"] is None:
        raise ClientError({"Error": {"Code": "ParameterNotFound", "Message": "none"}}, "GetParameter")
    return {"Parameter": {"Value": simulation.state["parameter"]}}


def main(arguments: list[str]) -> int:
    """Run `voice rollout` with these arguments on the simulated account; other commands succeed."""
    file = Path(os.environ["SIMULATION"])
    simulation = Simulation(file)
    simulation.state["calls"].append(" ".join(arguments))
    revision = next(reversed([*_revisions(Path.cwd())]), "new")
    account, code = account_for(simulation, revision), 0
    try:
        if "--current" in arguments:
            found = load_rollout(account)
            sys.stdout.write("" if found is None or found.rolled_back_region else found.label)
        elif arguments[0] == "rollout":
            simulation.pass_s(SETUP_S)
            code = _roll(simulation, account, revision, arguments)
    finally:
        simulation.save()
    return code


def _revisions(folder: Path) -> Iterator[str]:
    yield from (each for before, each in zip(folder.parts, folder.parts[1:], strict=False) if before == "build")


def _roll(simulation: Simulation, account: Any, revision: str, arguments: list[str]) -> int:  # noqa: ANN401
    rollout = (
        record_rollout_start(account, arguments[arguments.index("--start") + 1], simulation.now)
        if "--start" in arguments
        else load_rollout(account)
    )
    assert rollout
    minutes = float(arguments[arguments.index("--minutes") + 1]) if "--minutes" in arguments else MINUTES
    clock = PartTimeLimit(
        lambda: float(simulation.state["now_s"]),
        lambda: simulation.pass_s(30),
        simulation.state["now_s"] + minutes * 60,
    )
    try:
        outcome = advance_rollout(account, rollout, lambda stack: Deploy(simulation, revision, stack), clock, print)
    except CdkError:
        return FAILED
    assert START_TIMEOUT_S < CREDENTIALS_S - MINUTES * 60
    return {RolloutOutcome.DONE: 0, RolloutOutcome.UNFINISHED: IN_PROGRESS, RolloutOutcome.ROLLED_BACK: FAILED}[outcome]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
