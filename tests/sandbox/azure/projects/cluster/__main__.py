"""A resource group, an identity, a cluster with an additional pool, and a role: all forms with special handling."""

import base64

import pulumi
from pulumi_azure_native import authorization, containerservice, managedidentity, resources

config = pulumi.Config()


class Pool(pulumi.ComponentResource):
    def __init__(self, name: str, *, group: pulumi.Input[str], cluster: pulumi.Input[str], vm_size: str) -> None:
        super().__init__("sample:cluster:Pool", name, None, None)
        self.pool = containerservice.AgentPool(
            name,
            resource_group_name=group,
            resource_name_=cluster,
            agent_pool_name=name,
            vm_size=vm_size,
            count=config.require_int("nodes"),
            gpu_profile=containerservice.GPUProfileArgs(driver="Install"),
            kubelet_config={"cpu_manager_policy": "static", "topology_manager_policy": "best-effort"},
            node_taints=["sku=gpu:NoSchedule"],
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.register_outputs({"name": self.pool.name})


client = authorization.get_client_config()
group = resources.ResourceGroup(
    "group",
    resource_group_name="sample-rg",
    location=config.require("location"),
    opts=pulumi.ResourceOptions(protect=config.get_bool("protect") or False),
)
identity = managedidentity.UserAssignedIdentity("identity", resource_group_name=group.name)
cluster = containerservice.ManagedCluster(
    "aks",
    resource_group_name=group.name,
    resource_name_="sample-aks",
    dns_prefix="sample",
    identity=containerservice.ManagedClusterIdentityArgs(
        type=containerservice.ResourceIdentityType.USER_ASSIGNED,
        user_assigned_identities=[identity.id],
    ),
    agent_pool_profiles=[{"name": "system", "mode": "System", "count": 2, "vm_size": "Standard_D8ds_v5"}],
    oidc_issuer_profile=containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
    tags={"token": config.require_secret("token")},
)
gpu = Pool("gpu", group=group.name, cluster=cluster.name, vm_size=config.get("vm-size") or "Standard_NC96ads_A100_v4")
authorization.RoleAssignment(
    "reader",
    principal_id=identity.principal_id,
    principal_type="ServicePrincipal",
    role_definition_id=f"/subscriptions/{client.subscription_id}/providers/Microsoft.Authorization/roleDefinitions/acdd",
    scope=cluster.id,
)


def decode_kubeconfig(credentials: containerservice.ListManagedClusterUserCredentialsResult) -> str:
    return base64.b64decode(credentials.kubeconfigs[0].value).decode()


credentials = containerservice.list_managed_cluster_user_credentials_output(
    resource_group_name=group.name, resource_name=cluster.name
)
pulumi.export("kubeconfig", pulumi.Output.secret(credentials.apply(decode_kubeconfig)))
pulumi.export("issuer", cluster.oidc_issuer_profile.apply(lambda profile: profile and profile.issuer_url))
pulumi.export("cluster", cluster.name)
pulumi.export("pool", gpu.pool.name)
