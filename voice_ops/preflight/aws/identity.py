"""Identity of the caller and its permissions for a deploy."""

from collections.abc import Iterator

from botocore.exceptions import ClientError

from voice_ops.aws.account import AREA, Account
from voice_ops.aws.refusals import error_code
from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND
from voice_ops.preflight.aws.permissions import BOOTSTRAP_ROLES, actions_for, role_arn, simulable_actions
from voice_ops.preflight.report import Row, Status, make_row

MAX_ACTIONS = 100
"""Number of actions per simulation. IAM returns all results of a simulation at once."""
MAX_SHOWN_ACTIONS = 5


def identity_rows(account: Account) -> Iterator[Row]:
    """Report the caller's identity, and compare the account with the account in the file."""
    result = account.caller["Account"]
    expected_account = account.deployment.aws.account
    yield make_row(
        AREA,
        "identity",
        account.caller["Arn"],
        f"account {expected_account}" if expected_account else "any account; the file has no aws.account",
        blocks=f"use credentials of {expected_account}, or correct aws.account"
        if expected_account not in {None, result}
        else "",
    )


def permission_rows(account: Account) -> Iterator[Row]:
    """Simulate the caller's and CloudFormation's permissions for a deploy, and the caller's for `voice` commands."""
    caller = _caller_principal(account)
    number, region, partition = account.caller["Account"], account.region, account.caller["Arn"].split(":")[1]
    roles = [role_arn(name, number, region, partition) for name in BOOTSTRAP_ROLES]
    question, requirement = (
        "the caller's permission to assume the CDK's roles",
        "sts:AssumeRole on deploy, file-publishing and lookup",
    )
    if caller is None:
        result = f"{account.caller['Arn'].rpartition(':')[2]} cannot be simulated"
        yield Row(AREA, question, Status.SKIPPED, result, requirement, "run the preflight with an IAM user or role")
    else:
        denied = [arn for role in roles for arn in _denied_on_resource(account, caller, ["sts:AssumeRole"], role)]
        result = f"denied for {len(denied)} of {len(roles)}" if denied else "allowed"
        remedy = "`voice preflight FILE --permissions` prints the policy" if denied else ""
        yield make_row(AREA, question, result, requirement, blocks=remedy)
        yield _commands_row(account, caller)
    yield _execution_row(account, role_arn("cfn-exec", number, region, partition))


def _commands_row(account: Account, caller: str) -> Row:
    """Compare the caller's permissions with the actions of `voice` commands.

    A missing permission is only a warning, since a caller who only deploys does not need these actions.
    """
    needs = sorted(frozenset().union(*ACTIONS_BY_COMMAND.values()))
    denied = set(_denied_actions(account, caller, needs))
    commands = [command for command, actions in ACTIONS_BY_COMMAND.items() if actions & denied]
    result = f"denied on *: {_format_denied(sorted(denied))}; used by {', '.join(commands)}" if denied else "allowed"
    remedy = "`voice preflight FILE --permissions` prints a policy for each command" if denied else ""
    return make_row(AREA, "the caller's permissions for voice commands", result, f"{len(needs)} actions", warns=remedy)


def _execution_row(account: Account, role: str) -> Row:
    needs = simulable_actions(actions_for(resource["Type"] for resource in account.resources()))
    question, requirement = "permissions of CloudFormation's role", f"{len(needs)} actions"
    try:
        denied = _denied_actions(account, role, needs)
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
        return Row(AREA, question, Status.SKIPPED, "the role does not exist before `cdk bootstrap`", requirement)
    if not denied:
        return make_row(AREA, question, "allowed", requirement)
    return make_row(
        AREA,
        question,
        f"denied on *: {_format_denied(denied)}",
        requirement,
        blocks="`voice preflight FILE --permissions` prints least-privilege policies; check policies for specific "
        "resources yourself, since the simulation uses all resources",
    )


def _format_denied(denied: list[str]) -> str:
    more = f" and {len(denied) - MAX_SHOWN_ACTIONS} more" if len(denied) > MAX_SHOWN_ACTIONS else ""
    return ", ".join(denied[:MAX_SHOWN_ACTIONS]) + more


def _denied_actions(account: Account, principal: str, actions: list[str]) -> list[str]:
    """Return the actions that IAM's simulator does not allow a principal on every resource."""
    batches = [actions[start : start + MAX_ACTIONS] for start in range(0, len(actions), MAX_ACTIONS)]
    return [action for batch in batches for action in _denied_on_resource(account, principal, batch, "*")]


def _denied_on_resource(account: Account, principal: str, actions: list[str], resource: str) -> list[str]:
    """Return the actions that IAM's simulator does not allow a principal on a resource."""
    path = "EvaluationResults[?EvalDecision != 'allowed'].EvalActionName"
    query = {"PolicySourceArn": principal, "ActionNames": actions, "ResourceArns": [resource]}
    return list(account.list_all("iam", "simulate_principal_policy", path, None, **query))


def _caller_principal(account: Account) -> str | None:
    """Return the ARN of the caller's user or role, or ``None`` for the root user and for federated users."""
    kind, _, name = account.caller["Arn"].rpartition(":")[2].partition("/")
    if kind == "user":
        return account.caller["Arn"]
    if kind == "assumed-role":
        # The session's ARN does not contain the role's path.
        return account.session.client("iam").get_role(RoleName=name.partition("/")[0])["Role"]["Arn"]
    return None
