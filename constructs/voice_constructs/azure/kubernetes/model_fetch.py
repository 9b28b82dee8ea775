"""Jobs that download weights to the model cache before an engine starts."""

import hashlib
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint import catalog
from voice_blueprint.azure.contract import WEIGHTS_DIR, Component
from voice_blueprint.azure.names import (
    MODEL_FETCH_SERVICE_ACCOUNT,
    POOL_LABEL,
    SYSTEM_TAINT,
    ClusterOutput,
)
from voice_blueprint.catalog import ModelCard
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.download import build_download_command
from voice_blueprint.file.model.azure import SYSTEM_POOL_NAME, AggregatedService, Azure, AzureService, ChatService
from voice_blueprint.file.model.serving import Quantization
from voice_blueprint.hosts import list_service_images
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.namespaces import WorkloadLimits
from voice_constructs.azure.kubernetes.pods import (
    ConfigFiles,
    ContainerResources,
    ContainerSpec,
    Mount,
    Volume,
    create_model_cache_mount,
    create_model_cache_volume,
    create_pod_security_context,
    create_tmp_volume,
    create_tolerations,
)

DOWNLOAD_RESOURCES = ContainerResources(cpus=2, memory_gib=8)
"""Resources of one download; memory includes the page cache of written files. ASSUMED, not measured."""

HUB_CREDENTIALS_NAME = "hub-secrets"
"""Name of the secret provider class that mounts the token from the vault in the jobs."""
HUB_CREDENTIALS_DIR = "/var/run/hub"
"""Mount path of the token, which is a file so that neither a manifest nor the job's environment contains it."""

DOWNLOAD_TIMEOUT_S = 7200
"""Timeout of a download, including all attempts. 45 GiB at 100 MB/s take 8 min; an NFS share of 1 TiB has about the
same write speed."""


@dataclass(frozen=True)
class ModelDownload(Launcher):
    """The download of one repository at one revision.

    Attributes:
        card: The model.
        repository: Repository of the model, or of its FP8 weights.
        revision: Commit; ``None`` for the latest commit when the job runs.
        image: Image with the Hugging Face client, which is the image that will serve the model.
        token_file: File with the hub's token, or ``None``.
    """

    card: ModelCard
    repository: str
    revision: str | None
    image: Image
    token_file: str | None = None

    @property
    def name(self) -> str:
        """Name of the job, which depends on the repository and the revision."""
        digest = hashlib.sha256(f"{self.repository}@{self.revision}".encode()).hexdigest()[:8]
        return f"fetch-{self.repository.partition('/')[2].lower().replace('.', '-')[:40]}-{digest}"

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return build_download_command(self.card, self.repository, self.revision)

    def build_environment(self) -> dict[str, str]:
        """Return the variables with the weights' directory and the token file."""
        environment = {"HF_HOME": WEIGHTS_DIR, "HOME": "/tmp", "HF_HUB_DISABLE_TELEMETRY": "1"}  # noqa: S108  the pod's own
        return environment | ({"HF_TOKEN_PATH": self.token_file} if self.token_file else {})


def collect_downloads(azure: Azure) -> tuple[ModelDownload, ...]:
    """Return one download for each repository and revision that services use."""
    token_file = f"{HUB_CREDENTIALS_DIR}/{azure.hub_token_secret}" if azure.hub_token_secret else None
    results = {
        (repository, service.revision): ModelDownload(
            card, repository, service.revision, list_service_images(service)[0], token_file
        )
        for service in azure.services
        for card in [catalog.models()[service.model]]
        for repository in [_select_repository(card, service)]
    }
    return tuple(results.values())


def _select_repository(model: ModelCard, service: AzureService) -> str:
    uses_fp8 = isinstance(service, AggregatedService | ChatService) and service.quantization is Quantization.FP8
    return model.fp8_repository if uses_fp8 and model.fp8_repository else model.repository


class ModelFetch(pulumi.ComponentResource):
    """A download job for each repository and revision.

    Engines run offline and read the downloaded weights. Only the jobs may access the internet.

    Attributes:
        jobs: Jobs by name.
        resource_limits: Total limits of all jobs.
    """

    def __init__(
        self,
        name: str,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        model_cache: pulumi.Resource,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:ModelFetch", name, None, opts)
        self._context = context
        self._model_cache = model_cache
        desired = collect_downloads(context.azure)
        self.resource_limits = WorkloadLimits(len(desired), DOWNLOAD_RESOURCES.cpus, DOWNLOAD_RESOURCES.memory_gib)
        self._account = k8s.core.v1.ServiceAccount(
            MODEL_FETCH_SERVICE_ACCOUNT.name,
            metadata=create_metadata(
                MODEL_FETCH_SERVICE_ACCOUNT.name,
                context.namespace,
                annotations={
                    "azure.workload.identity/client-id": cluster.require_output(ClusterOutput.MODEL_FETCH_CLIENT_ID)
                },
            ),
            automount_service_account_token=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
        secret = context.azure.hub_token_secret
        self._token = [self._build_secret_provider(secret, cluster)] if secret else []
        self.jobs = {download.name: self._build_job(download) for download in desired}
        self.register_outputs({})

    def _build_secret_provider(self, secret: str, cluster: pulumi.StackReference) -> k8s.apiextensions.CustomResource:
        """Grant the jobs' service account read access to one secret in the vault.

        The driver exchanges the account's token itself; the label of workload identity would add an unused token to the
        pod. https://azure.github.io/secrets-store-csi-driver-provider-azure/docs/configurations/
        identity-access-modes/workload-identity-mode/
        """
        return k8s.apiextensions.CustomResource(
            HUB_CREDENTIALS_NAME,
            api_version="secrets-store.csi.x-k8s.io/v1",
            kind="SecretProviderClass",
            metadata=create_metadata(HUB_CREDENTIALS_NAME, self._context.namespace),
            spec={
                "provider": "azure",
                "parameters": {
                    "clientID": cluster.require_output(ClusterOutput.MODEL_FETCH_CLIENT_ID),
                    "tenantID": cluster.require_output(ClusterOutput.TENANT_ID),
                    "keyvaultName": cluster.require_output(ClusterOutput.VAULT_NAME),
                    "objects": f"array:\n  - |\n    objectName: {secret}\n    objectType: secret\n",
                },
            },
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _build_job(self, download: ModelDownload) -> k8s.batch.v1.Job:
        context, must_wait_for_image = self._context, self._context.must_wait_for_image((download.image,))
        container = ContainerSpec(
            name=Component.MODEL_FETCH.value,
            image=context.get_image_uri(download.image),
            launcher=download,
            resources=DOWNLOAD_RESOURCES,
            ports={},
            mounts=[
                create_model_cache_mount(),
                *(Mount(name="hub", mount_path=HUB_CREDENTIALS_DIR, read_only=True) for _ in self._token),
            ],
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            restart_policy="Never",
            security_context=create_pod_security_context(),
            node_selector={POOL_LABEL: SYSTEM_POOL_NAME},
            tolerations=create_tolerations([SYSTEM_TAINT]),
            containers=[container.to_container_args(ConfigFiles(download.name, {}))],
            volumes=[create_tmp_volume(), create_model_cache_volume(), *(_create_hub_volume() for _ in self._token)],
        )
        return k8s.batch.v1.Job(
            download.name,
            metadata=create_metadata(
                download.name,
                context.namespace,
                labels=create_pod_labels(Component.MODEL_FETCH),
                # `pulumi up` does not wait for a job whose image has no digest.
                annotations={"pulumi.com/skipAwait": "true"} if must_wait_for_image else None,
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                suspend=must_wait_for_image,
                backoff_limit=4,
                active_deadline_seconds=DOWNLOAD_TIMEOUT_S,
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=create_pod_labels(Component.MODEL_FETCH)), spec=pod
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[self._model_cache, *self._token],
                # A job's pod template is immutable, so a new image requires a new job with the same name.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=f"{DOWNLOAD_TIMEOUT_S}s"),
            ),
        )


def _create_hub_volume() -> Volume:
    source = k8s.core.v1.CSIVolumeSourceArgs(
        driver="secrets-store.csi.k8s.io",
        read_only=True,
        volume_attributes={"secretProviderClass": HUB_CREDENTIALS_NAME},
    )
    return Volume(name="hub", csi=source)
