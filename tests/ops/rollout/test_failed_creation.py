"""A stack whose creation failed is deployed again: its template was attempted, but nothing of it is in service."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.ops.rollout.simulated_account import Deploy, Simulation, account_for, production, seconds
from voice_blueprint.aws import names
from voice_ops.aws.account import Account
from voice_ops.aws.launches import AUTO_SCALING_GROUP_TYPE
from voice_ops.rollout.plan import plan_rollouts
from voice_ops.rollout.resume import PartTimeLimit, RolloutOutcome, advance_rollout, record_rollout_start

FAILED_STATES = ["CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED"]
FLEET = production().aws.asr[0].name
STACK, GROUP = (
    names.build_stack_name(production(), names.build_fleet_stack_suffix(FLEET)),
    names.build_group_name(production(), FLEET),
)


@pytest.mark.parametrize("status", FAILED_STATES)
def test_a_rollout_of_the_same_file_deploys_a_stack_whose_creation_failed(tmp_path: Path, status: str) -> None:
    file = tmp_path / "account.json"
    updated = {"status": "UPDATE_COMPLETE", "revision": "new", "to": "new", "ends_s": None, "updated_s": 0}
    stacks = {name: {"name": name, **updated} for name in seconds()}
    stacks[STACK]["status"] = status
    file.write_text(json.dumps({"now_s": 60, "issued_s": 86_400, "parameter": None, "stacks": stacks, "bad": {}}))
    simulation = Simulation(file)
    account, told = account_for(simulation, "new"), list[str]()
    rollout = record_rollout_start(account, "new", simulation.now)
    clock = PartTimeLimit(lambda: float(simulation.state["now_s"]), lambda: simulation.pass_s(30), 86_400)
    outcome = advance_rollout(account, rollout, lambda stack: Deploy(simulation, "new", stack), clock, told.append)
    assert outcome is RolloutOutcome.DONE
    assert [line for line in told if line.endswith("begins")] == [f"{STACK}: begins"]
    assert simulation.state["stacks"][STACK]["status"] == "UPDATE_COMPLETE"


def launch_template(instance_type: str) -> dict[str, Any]:
    group = {"AutoScalingGroupName": GROUP, "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Launch"}}}
    launch = {"LaunchTemplateData": {"InstanceType": instance_type}}
    return {
        "Resources": {
            "Launch": {"Type": "any", "Properties": launch},
            "G": {"Type": AUTO_SCALING_GROUP_TYPE, "Properties": group},
        }
    }


@pytest.mark.parametrize("status", [*FAILED_STATES, "REVIEW_IN_PROGRESS", "UPDATE_COMPLETE"])
def test_hosts_that_do_not_exist_are_not_replaced(status: str) -> None:
    """A group of a deployed stack may have been deleted by hand."""
    system = Account(production(), {STACK: launch_template("inf2.48xlarge")}, cast("Any", None))
    client = SimpleNamespace(describe_auto_scaling_groups=lambda **_: {"AutoScalingGroups": []})
    fake = SimpleNamespace(
        deployment=system.deployment,
        templates=system.templates,
        scaling_groups=system.scaling_groups,
        session=SimpleNamespace(client=lambda _: client),
        fetch_stack_statuses=lambda: {STACK: status},
        fetch_live_template=lambda _: launch_template("inf2.24xlarge"),
    )
    assert plan_rollouts(cast("Account", fake)) == []
