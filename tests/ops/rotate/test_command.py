"""The old passwords are removed only when no task uses them."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.blueprint.documents import DEPLOYMENTS
from voice_ops.aws.account import Account
from voice_ops.cli import app
from voice_ops.rotate import command
from voice_ops.rotate.passwords import StoreUser

CHANGED_AT = datetime.now(UTC) - timedelta(hours=1)
BEFORE, AFTER = CHANGED_AT - timedelta(minutes=1), CHANGED_AT + timedelta(seconds=1)
DONE = {"status": "PRIMARY", "rolloutState": "COMPLETED", "createdAt": AFTER}
RUNNING = {"status": "PRIMARY", "rolloutState": "IN_PROGRESS", "createdAt": AFTER}
FAILED = {"status": "PRIMARY", "rolloutState": "FAILED", "createdAt": AFTER}
OLD_TASKS = {"status": "ACTIVE", "rolloutState": "COMPLETED", "createdAt": BEFORE}
NEVER_RENEWED = {"status": "PRIMARY", "rolloutState": "COMPLETED", "createdAt": BEFORE}
ROLLING_BACK = {"status": "PRIMARY", "rolloutState": "IN_PROGRESS", "createdAt": BEFORE}
Deployments = list[dict[str, Any]]


class DeployedServices(Account):
    """An account whose gateway and agents are deployed."""

    def find_service(self, tier: str) -> tuple[str, str] | None:
        return ("cluster", f"arn:aws:ecs:us-east-1:1:service/cluster/{tier}")


def run_again(monkeypatch: pytest.MonkeyPatch, deployments: dict[str, Deployments]) -> tuple[Result, list[str]]:
    """Run the command after the passwords have settled. Return its result, and the users whose password it removed."""
    removed: list[str] = []

    def describe_services(*, services: list[str], **_: object) -> dict[str, Any]:
        return {
            "services": [
                {"serviceName": arn[-4:], "deployments": deployments.get(arn[-4:], [DONE])} for arn in services
            ]
        }

    users = [
        StoreUser("gateway", "secret", 2, CHANGED_AT),
        StoreUser("agent", "secret", 2, CHANGED_AT - timedelta(hours=1)),
    ]
    ecs = SimpleNamespace(describe_services=describe_services)
    monkeypatch.setattr(command, "Account", DeployedServices)
    monkeypatch.setattr(command, "create_deployment_session", lambda _: SimpleNamespace(client=lambda _: ecs))
    monkeypatch.setattr(command, "list_state_store_users", lambda _: users)
    monkeypatch.setattr(command, "remove_old_passwords", lambda _, user: removed.append(user.id))
    return CliRunner().invoke(app, ["rotate", str(DEPLOYMENTS / "small.yaml")]), removed


@pytest.mark.parametrize("deployments", [[RUNNING, OLD_TASKS], [DONE, OLD_TASKS], [RUNNING], [FAILED]])
def test_old_passwords_remain_while_a_service_replaces_its_tasks(
    monkeypatch: pytest.MonkeyPatch, deployments: Deployments
) -> None:
    """A task with calls keeps its protection for up to an hour, and needs its password when it reconnects."""
    result, removed = run_again(monkeypatch, {"edge": deployments})
    assert (result.exit_code, removed) == (1, [])
    said = " ".join(result.output.split())
    states = ", ".join(f"{each['status']} {each['rolloutState']}" for each in deployments)
    assert f"edge has the deployments {states}" in said
    assert "run this command again when each service has one deployment, COMPLETED" in said


@pytest.mark.parametrize("deployments", [[NEVER_RENEWED], [ROLLING_BACK, {**OLD_TASKS, "createdAt": AFTER}]])
def test_old_passwords_remain_if_a_service_was_not_deployed_after_the_newest_password(
    monkeypatch: pytest.MonkeyPatch, deployments: Deployments
) -> None:
    """The first run was interrupted, or ECS rolled its deployment back: waiting does not replace such tasks."""
    result, removed = run_again(monkeypatch, {"edge": deployments})
    assert (result.exit_code, removed) == (1, [])
    assert (
        "edge was deployed before the newest password: replace its tasks with `aws ecs update-service "
        "--region us-east-1 --cluster cluster --service edge --force-new-deployment`"
    ) in " ".join(result.output.split())


def test_stacks_with_users_or_services_are_found_without_the_tag_of_the_deployment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts: list[Account] = []

    def read_users(account: Account) -> list[StoreUser]:
        accounts.append(account)
        raise KeyError("small-state")

    stacks = [{"StackName": f"small-{tier}", "StackStatus": "CREATE_COMPLETE"} for tier in ("state", "edge", "agents")]
    monkeypatch.setattr(Account, "iter_paginated_items", lambda *_, **__: stacks)
    monkeypatch.setattr(command, "create_deployment_session", lambda _: None)
    monkeypatch.setattr(command, "list_state_store_users", read_users)
    CliRunner().invoke(app, ["rotate", str(DEPLOYMENTS / "small.yaml")])
    assert [list(account.fetch_stack_statuses()) for account in accounts] == [
        ["small-state", "small-edge", "small-agents"]
    ]


def test_old_passwords_are_removed_after_all_tasks_were_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    result, removed = run_again(monkeypatch, {})
    assert (result.exit_code, removed) == (0, ["gateway", "agent"]), result.output
