"""Identity of the caller, and the caller's roles for `pulumi up`."""

from collections.abc import Iterator
from http import HTTPStatus

from azure.core.rest import HttpRequest

from voice_blueprint.azure.names import Role
from voice_blueprint.checks.azure.pools import PLACEHOLDER_ID
from voice_blueprint.file.model.deployment import Environment
from voice_ops.preflight.azure.account import GRAPH_URL, REPORT_AREA, Account, parse_json_body
from voice_ops.preflight.azure.permissions import is_action_allowed, list_required_actions
from voice_ops.preflight.report import CheckResult, create_check_result

MAX_SHOWN_ACTIONS = 5
ASSIGN_ROLE_ACTION = "Microsoft.Authorization/roleAssignments/write"


def check_identity(account: Account) -> Iterator[CheckResult]:
    """Report the caller's identity, tenant and subscription."""
    claims = account.claims
    who = claims.get("upn") or claims.get("appid") or "unknown identity"
    result = f"{who} of tenant {claims.get('tid', 'unknown')}"
    yield create_check_result(REPORT_AREA, "identity", result, f"a sign-in for subscription {account.subscription}")


def check_permissions(account: Account) -> Iterator[CheckResult]:
    """Compare the roles on the subscription with the actions that the cluster program's resources require.

    Roles on parts of the subscription and deny assignments are ignored.
    """
    needs = list_required_actions(account.resources)
    granted = [*_list_role_permissions(account)]
    denied = [action for action in needs if not any(is_action_allowed(action, *each) for each, _ in granted)]
    more = f" and {len(denied) - MAX_SHOWN_ACTIONS} more" if len(denied) > MAX_SHOWN_ACTIONS else ""
    remedy = (
        "assign Owner on the subscription, or a role with the permissions that `voice preflight FILE --permissions` "
        "prints"
    )
    yield create_check_result(
        REPORT_AREA,
        "permissions of the deploy",
        f"denied: {', '.join(denied[:MAX_SHOWN_ACTIONS])}{more}" if denied else "allowed",
        f"{len(needs)} actions",
        blocks=remedy if denied else "",
    )


def check_role_assignment(account: Account) -> Iterator[CheckResult]:
    """Report whether the permission to assign roles has a condition, such as a list of roles.

    The condition is not evaluated:
    https://learn.microsoft.com/azure/role-based-access-control/delegate-role-assignments-overview
    """
    conditions = [
        condition for each, condition in _list_role_permissions(account) if is_action_allowed(ASSIGN_ROLE_ACTION, *each)
    ]
    bound = bool(conditions) and all(conditions)
    yield create_check_result(
        REPORT_AREA,
        "permission to assign roles",
        "none" if not conditions else f"under the condition {conditions[0]}" if bound else "without a condition",
        ASSIGN_ROLE_ACTION,
        blocks=""
        if conditions
        else "assign Owner, User Access Administrator or Role Based Access Control Administrator",
        warns=f"compare the condition with the roles that are assigned: {', '.join(sorted(map(_format_role, Role)))}"
        if bound
        else "",
    )


def _format_role(role: Role) -> str:
    return role.name.replace("_", " ").title()


def check_administrator_groups(account: Account) -> Iterator[CheckResult]:
    """Check that every administrator group exists. Placeholders are errors in production, and accepted elsewhere."""
    deployment = account.deployment
    for group in deployment.azure.admin_groups:
        placeholder = group == PLACEHOLDER_ID
        is_group = None if placeholder else _group_exists(account, group)
        missing = is_group is False or (placeholder and deployment.environment is Environment.PRODUCTION)
        yield create_check_result(
            REPORT_AREA,
            "administrators of the cluster",
            f"{group}, which does not exist" if missing else group,
            "groups of your Microsoft Entra tenant",
            blocks="set admin_groups to the output of `az ad group show --group NAME --query id`" if missing else "",
            warns=""
            if is_group or placeholder
            else f"unknown: the caller has no permission to read groups; run `az ad group show --group {group}` with "
            "an account that does",
        )


def _group_exists(account: Account, group: str) -> bool | None:
    """Return True if a group exists, or ``None`` if the caller has no permission to read groups.

    Raises:
        HttpResponseError: The request failed.
    """
    response = account.graph_client.send_request(HttpRequest("GET", f"{GRAPH_URL}/v1.0/groups/{group}?$select=id"))
    if response.status_code == HTTPStatus.FORBIDDEN:
        return None
    if response.status_code == HTTPStatus.NOT_FOUND:
        return False
    response.raise_for_status()
    return "id" in parse_json_body(response)


def _list_role_permissions(account: Account) -> Iterator[tuple[tuple[list[str], list[str]], str | None]]:
    """Yield the actions, the exclusions and the condition for each role that the caller has on the subscription.

    Roles that are assigned through groups are included.
    """
    who = account.claims["oid"]
    authorization = account.authorization_client
    assigned = authorization.role_assignments.list_for_subscription(filter=f"atScope() and assignedTo('{who}')")
    for role, condition in sorted({(each.role_definition_id, each.condition or "") for each in assigned}):
        for permission in authorization.role_definitions.get_by_id(role).permissions or ():
            yield (permission.actions or [], permission.not_actions or []), condition or None
