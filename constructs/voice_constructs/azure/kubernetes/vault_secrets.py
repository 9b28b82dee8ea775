"""Secrets from the deployment's vault as environment variables for a tier's pods."""

import hashlib
from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.contract.environment import Variable
from voice_constructs.azure.kubernetes.context import ClusterContext, create_metadata
from voice_constructs.azure.kubernetes.pods import Mount, Volume
from voice_constructs.azure.kubernetes.state_login import StateLogin

SECRETS_DIR = "/run/voice/secrets"
"""Mount path in the pod. The Kubernetes secret only exists while the volume is mounted."""
_VOLUME_NAME = "secrets"
_DIGEST_CHARS = 10


class VaultSecrets:
    """Secret provider for a tier, and the Kubernetes secret that it creates.

    Args:
        secrets: Names in the vault, by environment variable.

    Attributes:
        provider: The secret provider class, which pods depend on.
        environment_sources: Source of each variable's value.
    """

    def __init__(
        self,
        tier: Component,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        login: StateLogin,
        secrets: Mapping[Variable, str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        self._name = f"{tier}-secrets"
        names = list(dict.fromkeys(secrets.values()))
        # The driver does not add keys to an existing secret when a pod starts, so a changed list requires a new secret.
        digest = hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()[:_DIGEST_CHARS]
        secret_name = f"{self._name}-{digest}"
        objects = "".join(f"  - |\n    objectName: {name}\n    objectType: secret\n" for name in names)
        self.provider = k8s.apiextensions.CustomResource(
            self._name,
            api_version="secrets-store.csi.x-k8s.io/v1",
            kind="SecretProviderClass",
            metadata=create_metadata(self._name, context.namespace),
            spec={
                "provider": "azure",
                "parameters": {
                    "clientID": login.get_client_id(tier),
                    "tenantID": cluster.require_output(ClusterOutput.TENANT_ID),
                    "keyvaultName": cluster.require_output(ClusterOutput.VAULT_NAME),
                    "objects": f"array:\n{objects}",
                },
                "secretObjects": [
                    {
                        "secretName": secret_name,
                        "type": "Opaque",
                        "data": [{"objectName": name, "key": name} for name in names],
                    }
                ],
            },
            opts=opts,
        )
        self.environment_sources = {
            variable.name: k8s.core.v1.EnvVarSourceArgs(
                secret_key_ref=k8s.core.v1.SecretKeySelectorArgs(name=secret_name, key=name)
            )
            for variable, name in secrets.items()
        }

    def create_mount(self) -> Mount:
        """Return the mount for the container that uses the secrets."""
        return Mount(name=_VOLUME_NAME, mount_path=SECRETS_DIR, read_only=True)

    def create_volume(self) -> Volume:
        """Return the volume for the mount."""
        source = k8s.core.v1.CSIVolumeSourceArgs(
            driver="secrets-store.csi.k8s.io", read_only=True, volume_attributes={"secretProviderClass": self._name}
        )
        return Volume(name=_VOLUME_NAME, csi=source)
