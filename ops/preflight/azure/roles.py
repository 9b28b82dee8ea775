"""Who is asking, and whether their roles allow what `pulumi up` does."""

from collections.abc import Iterator
from http import HTTPStatus

from azure.core.rest import HttpRequest

from blueprint.azure.names import Role
from blueprint.checks.azure_pools import PLACEHOLDER
from blueprint.file.model.deployment import Environment
from ops.preflight.azure.account import AREA, GRAPH, Account
from ops.preflight.azure.permissions import actions_of, allows
from ops.preflight.report import Row, answer

SHOWN = 5
ASSIGN = "Microsoft.Authorization/roleAssignments/write"


def identity_rows(account: Account) -> Iterator[Row]:
    """Say who is asking, of which tenant, in which subscription."""
    claims = account.claims
    who = claims.get("upn") or claims.get("appid") or "somebody"
    found = f"{who} of tenant {claims.get('tid', 'unknown')}"
    yield answer(AREA, "identity", found, f"a sign-in for subscription {account.subscription}")


def permission_rows(account: Account) -> Iterator[Row]:
    """Compare the roles on the subscription with the actions of the cluster program's resources.

    Roles on parts of the subscription and deny assignments are not looked at.
    """
    needs = actions_of(account.resources)
    granted = [*_permissions(account)]
    denied = [action for action in needs if not any(allows(action, *each) for each, _ in granted)]
    more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
    remedy = "assign Owner on the subscription, or a role with what `voice preflight FILE --permissions` prints"
    yield answer(
        AREA,
        "permissions of the deploy",
        f"denied: {', '.join(denied[:SHOWN])}{more}" if denied else "allowed",
        f"{len(needs)} actions",
        blocks=remedy if denied else "",
    )


def assignment_rows(account: Account) -> Iterator[Row]:
    """Say whether the right to assign roles has a condition, such as the roles that may be assigned.

    What a condition allows is Azure's to judge: https://learn.microsoft.com/azure/role-based-access-control/
    delegate-role-assignments-overview
    """
    conditions = [condition for each, condition in _permissions(account) if allows(ASSIGN, *each)]
    bound = bool(conditions) and all(conditions)
    yield answer(
        AREA,
        "right to assign roles",
        "none" if not conditions else f"under the condition {conditions[0]}" if bound else "without a condition",
        ASSIGN,
        blocks="" if conditions else "be Owner, User Access Administrator or Role Based Access Control Administrator",
        warns=f"compare the condition with the roles that are assigned: {', '.join(sorted(map(_title, Role)))}"
        if bound
        else "",
    )


def _title(role: Role) -> str:
    return role.name.replace("_", " ").title()


def administrator_rows(account: Account) -> Iterator[Row]:
    """Ask whether every group exists; a placeholder is refused in production, and `voice plan` warns of it anywhere."""
    deployment = account.deployment
    for group in deployment.azure.admin_groups:
        placeholder = group == PLACEHOLDER
        known = None if placeholder else _is_group(account, group)
        nobody = known is False or (placeholder and deployment.environment is Environment.PRODUCTION)
        yield answer(
            AREA,
            "administrators of the cluster",
            f"{group}, which is nobody" if nobody else group,
            "groups of your Microsoft Entra tenant",
            blocks="set admin_groups: `az ad group show --group NAME --query id` says yours" if nobody else "",
            warns=""
            if known or placeholder
            else f"not seen: whoever signed in may not read groups; `az ad group show "
            f"--group {group}` by somebody who may",
        )


def _is_group(account: Account, group: str) -> bool | None:
    """Ask Microsoft Graph for a group; ``None`` where the sign-in may not.

    Raises:
        HttpResponseError: It does not answer.
    """
    response = account.graph.send_request(HttpRequest("GET", f"{GRAPH}/v1.0/groups/{group}?$select=id"))
    if response.status_code == HTTPStatus.FORBIDDEN:
        return None
    if response.status_code != HTTPStatus.NOT_FOUND:
        response.raise_for_status()
    return bool(response.status_code == HTTPStatus.OK)


def _permissions(account: Account) -> Iterator[tuple[tuple[list[str], list[str]], str | None]]:
    """Yield actions, exclusions and condition of every role of the caller on the subscription, through groups too."""
    who = account.claims["oid"]
    authorization = account.authorization
    assigned = authorization.role_assignments.list_for_subscription(filter=f"atScope() and assignedTo('{who}')")
    for role, condition in sorted({(each.role_definition_id, each.condition or "") for each in assigned}):
        for permission in authorization.role_definitions.get_by_id(role).permissions or ():
            yield (permission.actions or [], permission.not_actions or []), condition or None
