"""Roles for users and groups."""

import pulumi

from voice_blueprint.azure.names import Role
from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.identity import assign_admin_roles
from voice_constructs.azure.monitoring import Monitoring
from voice_constructs.azure.registry import ImageRegistry
from voice_constructs.azure.scope import Scope
from voice_constructs.azure.vault import SecretVault


class AdminRoleAssignments(pulumi.ComponentResource):
    """Roles that the deployment file's Entra groups have on the cluster, images, secrets and Grafana."""

    def __init__(
        self,
        name: str,
        *,
        scope: Scope,
        cluster: Cluster,
        registry: ImageRegistry,
        vault: SecretVault,
        monitoring: Monitoring,
    ) -> None:
        super().__init__("voice:azure:Administrators", name)
        grants: list[tuple[str, Role, pulumi.Input[str]]] = [
            ("fetch-kubeconfig", Role.AKS_CLUSTER_USER, cluster.id),
            ("administer-cluster", Role.AKS_RBAC_CLUSTER_ADMIN, cluster.id),
            ("keep-secrets", Role.KEY_VAULT_SECRETS_OFFICER, vault.id),
            ("administer-grafana", Role.GRAFANA_ADMIN, monitoring.grafana_id),
        ]
        if registry.is_managed:
            grants += [
                ("push-images", Role.ACR_PUSH, registry.id),
                ("import-images", Role.ACR_IMPORT, registry.id),
            ]
        assign_admin_roles(grants, scope=scope, parent=self)
        self.register_outputs({})
