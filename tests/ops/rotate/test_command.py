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
from voice_ops.rotate.passwords import User

DONE = {"status": "PRIMARY", "rolloutState": "COMPLETED"}
RUNNING = {"status": "PRIMARY", "rolloutState": "IN_PROGRESS"}
FAILED = {"status": "PRIMARY", "rolloutState": "FAILED"}
OLD_TASKS = {"status": "ACTIVE", "rolloutState": "COMPLETED"}


class DeployedServices(Account):
    """An account whose gateway and agents are deployed."""

    def find_service(self, tier: str) -> tuple[str, str] | None:
        return ("cluster", f"arn:aws:ecs:us-east-1:1:service/cluster/{tier}")


def run_again(
    monkeypatch: pytest.MonkeyPatch, deployments: dict[str, list[dict[str, str]]]
) -> tuple[Result, list[str]]:
    """Run the command after the passwords have settled. Return its result, and the users whose password it removed."""
    removed: list[str] = []

    def describe_services(*, services: list[str], **_: object) -> dict[str, Any]:
        return {
            "services": [
                {"serviceName": arn[-4:], "deployments": deployments.get(arn[-4:], [DONE])} for arn in services
            ]
        }

    users = [User(id_, "secret", 2, datetime.now(UTC) - timedelta(hours=1)) for id_ in ("gateway", "agent")]
    ecs = SimpleNamespace(describe_services=describe_services)
    monkeypatch.setattr(command, "Account", DeployedServices)
    monkeypatch.setattr(command, "sign_in", lambda _: SimpleNamespace(client=lambda _: ecs))
    monkeypatch.setattr(command, "store_users", lambda _: users)
    monkeypatch.setattr(command, "remove_old_passwords", lambda _, user: removed.append(user.id))
    return CliRunner().invoke(app, ["rotate", str(DEPLOYMENTS / "small.yaml")]), removed


@pytest.mark.parametrize("deployments", [[RUNNING, OLD_TASKS], [DONE, OLD_TASKS], [RUNNING], [FAILED]])
def test_old_passwords_remain_while_a_service_replaces_its_tasks(
    monkeypatch: pytest.MonkeyPatch, deployments: list[dict[str, str]]
) -> None:
    """A task with calls keeps its protection for up to an hour, and needs its password when it reconnects."""
    result, removed = run_again(monkeypatch, {"edge": deployments})
    assert (result.exit_code, removed) == (1, [])
    said = " ".join(result.output.split())
    states = ", ".join(f"{each['status']} {each['rolloutState']}" for each in deployments)
    assert f"edge has the deployments {states}" in said
    assert "run this command again when each service has one deployment, COMPLETED" in said


def test_old_passwords_are_removed_after_all_tasks_were_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    result, removed = run_again(monkeypatch, {})
    assert (result.exit_code, removed) == (0, ["gateway", "agent"]), result.output
