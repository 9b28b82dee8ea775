"""Role assignments at the time when a service receives a request."""

from __future__ import annotations

from enum import StrEnum

from voice_sandbox.azure.refusals.request import Request, RequestPart


class Role(StrEnum):
    """Built-in roles that services require. The value is the definition's GUID, which is the same in every tenant.

    Source: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
    """

    CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
    KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
    MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
    NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"


IDENTITY, GRANT = "managedidentity:UserAssignedIdentity", "authorization:RoleAssignment"


def find_principal_ids(request: Request, ids: list[str]) -> set[str]:
    """Return the object ids of the existing identities with the given resource ids."""
    identity_ids = {each.lower() for each in ids}
    return {
        str(RequestPart(resource.outputs).get("principalId"))
        for resource, _ in request.iter_existing_resources(IDENTITY)
        if (resource.id or "").lower() in identity_ids
    }


def is_role_granted(request: Request, identities: set[str], resource_id: str, *roles: Role) -> bool:
    """Return True if one of several roles on a resource, or on its scope, is granted before the request is sent."""
    return any(
        grant.get_text("principalId") in identities
        and grant.get_text("roleDefinitionId").lower().endswith(tuple(str(role) for role in roles))
        and f"{resource_id.lower()}/".startswith(f"{grant.get_text('scope').lower()}/")
        for _, grant in request.iter_guaranteed_resources(GRANT)
    )
