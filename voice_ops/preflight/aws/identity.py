"""Identity of the caller, and the caller's permissions for a deploy."""

from collections.abc import Iterator

from botocore.exceptions import ClientError

from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.refusals import get_error_code
from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND
from voice_ops.preflight.aws.permissions import (
    BOOTSTRAP_ROLES,
    build_bootstrap_role_arn,
    exclude_wildcard_actions,
    list_required_actions,
)
from voice_ops.preflight.report import CheckResult, CheckStatus, create_check_result

MAX_ACTIONS_PER_SIMULATION = 100
"""Number of actions per simulation. IAM returns all results of a simulation at once."""
MAX_SHOWN_ACTIONS = 5


def check_identity(account: Account) -> Iterator[CheckResult]:
    """Report the caller's identity, and compare the account with the account in the file."""
    result = account.caller_identity["Account"]
    expected_account = account.deployment.aws.account
    yield create_check_result(
        REPORT_AREA,
        "identity",
        account.caller_identity["Arn"],
        f"account {expected_account}" if expected_account else "any account; the file has no aws.account",
        blocks=f"use credentials of {expected_account}, or correct aws.account"
        if expected_account not in {None, result}
        else "",
    )


def check_permissions(account: Account) -> Iterator[CheckResult]:
    """Simulate the permissions of the caller and CloudFormation for a deploy, and the caller's for `voice` commands."""
    caller = _find_caller_principal(account)
    number, region, partition = (
        account.caller_identity["Account"],
        account.region,
        account.caller_identity["Arn"].split(":")[1],
    )
    roles = [build_bootstrap_role_arn(name, number, region, partition) for name in BOOTSTRAP_ROLES]
    question, requirement = (
        "the caller's permission to assume the CDK's roles",
        "sts:AssumeRole on deploy, file-publishing and lookup",
    )
    if caller is None:
        result = f"{account.caller_identity['Arn'].rpartition(':')[2]} cannot be simulated"
        yield CheckResult(
            REPORT_AREA,
            question,
            CheckStatus.SKIPPED,
            result,
            requirement,
            "run the preflight with an IAM user or role",
        )
    else:
        denied = [
            arn for role in roles for arn in _find_actions_denied_on_resource(account, caller, ["sts:AssumeRole"], role)
        ]
        result = f"denied for {len(denied)} of {len(roles)}" if denied else "allowed"
        remedy = "`voice preflight FILE --permissions` prints the policy" if denied else ""
        yield create_check_result(REPORT_AREA, question, result, requirement, blocks=remedy)
        yield _check_command_permissions(account, caller)
    yield _check_execution_role(account, build_bootstrap_role_arn("cfn-exec", number, region, partition))


def _check_command_permissions(account: Account, caller: str) -> CheckResult:
    """Compare the caller's permissions with the actions that `voice` commands require.

    A missing permission is only a warning, since a caller who only deploys does not need these actions.
    """
    needs = sorted(frozenset().union(*ACTIONS_BY_COMMAND.values()))
    denied = set(_find_denied_actions(account, caller, needs))
    commands = [command for command, actions in ACTIONS_BY_COMMAND.items() if actions & denied]
    result = (
        f"denied on *: {_format_denied_actions(sorted(denied))}; used by {', '.join(commands)}" if denied else "allowed"
    )
    remedy = "`voice preflight FILE --permissions` prints a policy for each command" if denied else ""
    return create_check_result(
        REPORT_AREA, "the caller's permissions for voice commands", result, f"{len(needs)} actions", warns=remedy
    )


def _check_execution_role(account: Account, role: str) -> CheckResult:
    needs = exclude_wildcard_actions(list_required_actions(resource["Type"] for resource in account.iter_resources()))
    question, requirement = "permissions of CloudFormation's role", f"{len(needs)} actions"
    try:
        denied = _find_denied_actions(account, role, needs)
    except ClientError as error:
        if get_error_code(error) != "NoSuchEntity":
            raise
        return CheckResult(
            REPORT_AREA, question, CheckStatus.SKIPPED, "the role does not exist before `cdk bootstrap`", requirement
        )
    if not denied:
        return create_check_result(REPORT_AREA, question, "allowed", requirement)
    return create_check_result(
        REPORT_AREA,
        question,
        f"denied on *: {_format_denied_actions(denied)}",
        requirement,
        blocks="`voice preflight FILE --permissions` prints least-privilege policies; check policies for specific "
        "resources yourself, since the simulation uses all resources",
    )


def _format_denied_actions(denied: list[str]) -> str:
    more = f" and {len(denied) - MAX_SHOWN_ACTIONS} more" if len(denied) > MAX_SHOWN_ACTIONS else ""
    return ", ".join(denied[:MAX_SHOWN_ACTIONS]) + more


def _find_denied_actions(account: Account, principal: str, actions: list[str]) -> list[str]:
    """Return the actions that a principal may not perform on all resources, according to IAM's simulator."""
    batches = [
        actions[start : start + MAX_ACTIONS_PER_SIMULATION]
        for start in range(0, len(actions), MAX_ACTIONS_PER_SIMULATION)
    ]
    return [action for batch in batches for action in _find_actions_denied_on_resource(account, principal, batch, "*")]


def _find_actions_denied_on_resource(account: Account, principal: str, actions: list[str], resource: str) -> list[str]:
    """Return the actions that a principal may not perform on a resource, according to IAM's simulator."""
    path = "EvaluationResults[?EvalDecision != 'allowed'].EvalActionName"
    query = {"PolicySourceArn": principal, "ActionNames": actions, "ResourceArns": [resource]}
    return list(account.iter_paginated_items("iam", "simulate_principal_policy", path, None, **query))


def _find_caller_principal(account: Account) -> str | None:
    """Return the ARN of the caller's user or role, or ``None`` for the root user and for federated users."""
    kind, _, name = account.caller_identity["Arn"].rpartition(":")[2].partition("/")
    if kind == "user":
        return account.caller_identity["Arn"]
    if kind == "assumed-role":
        # The session's ARN does not contain the role's path.
        return account.session.client("iam").get_role(RoleName=name.partition("/")[0])["Role"]["Arn"]
    return None
