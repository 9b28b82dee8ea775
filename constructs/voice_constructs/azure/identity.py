"""Identities, their permissions, and the service accounts that may use them."""

from collections.abc import Iterable

import pulumi
from pulumi_azure_native import authorization, managedidentity

from voice_blueprint.azure.names import Role, ServiceAccount
from voice_constructs.azure.scope import Scope

_FEDERATION_AUDIENCE = "api://AzureADTokenExchange"
"""Audience of the tokens that workload identity exchanges:
https://learn.microsoft.com/azure/aks/workload-identity-overview"""


def assign_role(
    name: str,
    *,
    scope: Scope,
    role: Role,
    resource_id: pulumi.Input[str],
    principal_id: pulumi.Input[str],
    parent: pulumi.Resource,
    former_name: str | None = None,
    is_group: bool = False,
) -> authorization.RoleAssignment:
    """Assign a role on one resource to an identity or a group.

    Azure accepts only one assignment of a role to a principal on a resource, and Pulumi creates new assignments before
    it deletes previous ones. The name must therefore not depend on the order of a list: a change of the order would
    create the same assignment under another name.

    Args:
        resource_id: Id of the resource.
        principal_id: Object id of the identity or group.
        former_name: Name of the assignment in release 0.1.0, if it was different.
        is_group: Whether the principal is a group. Without the principal type, Azure rejects a principal that has not
            been replicated yet.
    """
    return authorization.RoleAssignment(
        name,
        role_definition_id=role.build_definition_id(scope.subscription),
        scope=resource_id,
        principal_id=principal_id,
        principal_type=authorization.PrincipalType.GROUP if is_group else authorization.PrincipalType.SERVICE_PRINCIPAL,
        opts=pulumi.ResourceOptions(
            parent=parent,
            aliases=[pulumi.Alias(name=former_name)] if former_name else None,
            # Azure cannot change an assignment, but the provider only replaces it if the principal or the scope
            # changes.
            replace_on_changes=["role_definition_id", "principal_type"],
        ),
    )


def assign_admin_roles(
    grants: Iterable[tuple[str, Role, pulumi.Input[str]]], *, scope: Scope, parent: pulumi.Resource
) -> None:
    """Assign roles to each of the deployment file's administrator groups.

    Args:
        grants: Purpose (part of the assignment's name), role, and resource id of each grant.
    """
    for number, group in enumerate(scope.deployment.azure.admin_groups):
        for purpose, role, resource_id in grants:
            assign_role(
                f"admins-{group}-{purpose}",
                scope=scope,
                role=role,
                resource_id=resource_id,
                principal_id=group,
                parent=parent,
                former_name=f"admins-{number}-{purpose}",
                is_group=True,
            )


class Identity(pulumi.ComponentResource):
    """A user-assigned managed identity.

    Attributes:
        id: Resource id.
        client_id: Client id with which a program signs in.
        principal_id: Principal id for role assignments.
    """

    def __init__(self, name: str, *, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("voice:azure:Identity", name, None, opts)
        self._scope = scope
        identity = managedidentity.UserAssignedIdentity(
            name,
            resource_group_name=scope.group,
            resource_name_=scope.build_name(name),
            location=scope.location,
            tags=scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._resource = identity
        self.id: pulumi.Output[str] = identity.id
        self.client_id: pulumi.Output[str] = identity.client_id
        self.principal_id: pulumi.Output[str] = identity.principal_id
        self.register_outputs({})

    def grant_role(
        self, name: str, role: Role, resource_id: pulumi.Input[str], *, former_name: str | None = None
    ) -> authorization.RoleAssignment:
        """Assign a role to the identity. The scope is limited to this resource."""
        return assign_role(
            name,
            scope=self._scope,
            role=role,
            resource_id=resource_id,
            principal_id=self.principal_id,
            parent=self,
            former_name=former_name,
        )

    def trust_service_account(
        self, name: str, *, issuer: pulumi.Input[str], account: ServiceAccount
    ) -> managedidentity.FederatedIdentityCredential:
        """Allow the pods of a service account to use the identity without a secret.

        Args:
            issuer: The cluster's OIDC issuer.
            account: The only trusted service account.
        """
        return managedidentity.FederatedIdentityCredential(
            name,
            resource_group_name=self._scope.group,
            resource_name_=self._resource.name,
            federated_identity_credential_resource_name=name,
            issuer=issuer,
            subject=account.subject,
            audiences=[_FEDERATION_AUDIENCE],
            opts=pulumi.ResourceOptions(parent=self),
        )
