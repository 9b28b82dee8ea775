"""What people may do."""

from dataclasses import dataclass

import pulumi

from blueprint.azure.names import Role
from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.identity import grant
from voice_constructs.azure.monitoring import Monitoring
from voice_constructs.azure.registry import ImageRegistry
from voice_constructs.azure.scope import Scope
from voice_constructs.azure.vault import SecretVault


@dataclass(frozen=True)
class AdministratorsProps:
    """What ``Administrators`` is made from."""

    cluster: Cluster
    registry: ImageRegistry
    vault: SecretVault
    monitoring: Monitoring


class Administrators(pulumi.ComponentResource):
    """The roles of the deployment file's Entra groups: the cluster, images, secrets, and Grafana."""

    def __init__(self, name: str, *, scope: Scope, props: AdministratorsProps) -> None:
        super().__init__("voice:azure:Administrators", name)
        grants = (
            ("fetch-kubeconfig", Role.AKS_CLUSTER_USER, props.cluster.id),
            ("administer-cluster", Role.AKS_RBAC_CLUSTER_ADMIN, props.cluster.id),
            ("push-images", Role.ACR_PUSH, props.registry.id),
            ("keep-secrets", Role.KEY_VAULT_SECRETS_OFFICER, props.vault.id),
            ("administer-grafana", Role.GRAFANA_ADMIN, props.monitoring.grafana_id),
        )
        for number, group in enumerate(scope.deployment.azure.admin_groups):
            for purpose, role, on in grants:
                grant(f"admins-{number}-{purpose}", scope=scope, role=role, on=on, to=group, parent=self, group=True)
        self.register_outputs({})
