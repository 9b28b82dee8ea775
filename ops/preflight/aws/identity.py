"""Who is asking, and whether what the deploy does is allowed."""

from collections.abc import Iterator

from botocore.exceptions import ClientError

from ops.aws.account import AREA, Account
from ops.aws.refusals import code_of
from ops.preflight.aws.permissions import BOOTSTRAP_ROLES, actions_of, role_arn, simulable
from ops.preflight.report import Row, Status, answer

BATCH = 100
"""Actions for one simulation; IAM answers all of them at once."""
SHOWN = 5


def identity_rows(account: Account) -> Iterator[Row]:
    """Say who is asking, and compare the account with the file's."""
    found = account.caller["Account"]
    meant = account.deployment.aws.account
    yield answer(
        AREA,
        "identity",
        account.caller["Arn"],
        f"account {meant}" if meant else "any account; the file names none",
        blocks=f"take credentials of {meant}, or correct aws.account" if meant not in {None, found} else "",
    )


def permission_rows(account: Account) -> Iterator[Row]:
    """Simulate what the caller and CloudFormation's role do in a deploy."""
    caller = _principal(account)
    number, region, partition = account.caller["Account"], account.region, account.caller["Arn"].split(":")[1]
    roles = [role_arn(name, number, region, partition) for name in BOOTSTRAP_ROLES]
    asked, needed = "may the caller take on the CDK's roles", "sts:AssumeRole on deploy, file-publishing and lookup"
    if caller is None:
        found = f"{account.caller['Arn'].rpartition(':')[2]} cannot be simulated"
        yield Row(AREA, asked, Status.NOT_ASKED, found, needed, "preflight with an IAM user or role")
    else:
        denied = [arn for role in roles for arn in _denied(account, caller, ["sts:AssumeRole"], role)]
        found = f"denied for {len(denied)} of {len(roles)}" if denied else "allowed"
        remedy = "`voice preflight FILE --permissions` prints the policy" if denied else ""
        yield answer(AREA, asked, found, needed, blocks=remedy)
    yield _execution_row(account, role_arn("cfn-exec", number, region, partition))


def _execution_row(account: Account, role: str) -> Row:
    needs = simulable(actions_of(resource["Type"] for resource in account.resources()))
    asked, needed = "may CloudFormation's role make the resources", f"{len(needs)} actions"
    try:
        denied = [
            action
            for start in range(0, len(needs), BATCH)
            for action in _denied(account, role, needs[start : start + BATCH], "*")
        ]
    except ClientError as error:
        if code_of(error) != "NoSuchEntity":
            raise
        return Row(AREA, asked, Status.NOT_ASKED, "the role does not exist before `cdk bootstrap`", needed)
    if not denied:
        return answer(AREA, asked, "allowed", needed)
    more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
    return answer(
        AREA,
        asked,
        f"denied on *: {', '.join(denied[:SHOWN])}{more}",
        needed,
        blocks="`voice preflight FILE --permissions` prints the least policies; a policy that names resources has to "
        "be read, since the simulation asks for every resource",
    )


def _denied(account: Account, principal: str, actions: list[str], resource: str) -> list[str]:
    """Return the actions that IAM's simulator does not allow a principal on a resource."""
    path = "EvaluationResults[?EvalDecision != 'allowed'].EvalActionName"
    asked = {"PolicySourceArn": principal, "ActionNames": actions, "ResourceArns": [resource]}
    return list(account.listed("iam", "simulate_principal_policy", path, None, **asked))


def _principal(account: Account) -> str | None:
    """Return the ARN whose policies decide: of a session its role; `None` for root and federated users."""
    kind, _, name = account.caller["Arn"].rpartition(":")[2].partition("/")
    if kind == "user":
        return account.caller["Arn"]
    if kind == "assumed-role":
        # The session's ARN lacks the role's path.
        return account.session.client("iam").get_role(RoleName=name.partition("/")[0])["Role"]["Arn"]
    return None
