"""Jobs that bring weights into the model cache before an engine asks for them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from blueprint import catalog
from blueprint.azure.contract import WEIGHTS_DIR, Component
from blueprint.azure.names import MODEL_FETCH_SERVICE_ACCOUNT, POOL_LABEL, SYSTEM_POOL, SYSTEM_TAINT, ClusterOutput
from blueprint.catalog import ModelCard
from blueprint.contract.images import Image
from blueprint.engines.launch.base import Launcher
from blueprint.file.model.azure import AggregatedService, AzureService, ChatService
from blueprint.file.model.serving import Quantization
from blueprint.hosts import service_images
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata, pod_labels
from voice_constructs.azure.kubernetes.namespaces import Claim
from voice_constructs.azure.kubernetes.pods import (
    ConfigFiles,
    LaunchedContainer,
    Share,
    model_cache_mount,
    model_cache_volume,
    pod_security,
    tmp_volume,
    tolerations,
)

SHARE = Share(cpus=2, memory_gib=8)
"""Of one download: it writes through the page cache, which counts. ASSUMED, not measured."""

TIMEOUT_S = 7200
"""Longest download, in all attempts. 45 GiB at 100 MB/s take 8 min; an NFS share of 1 TiB writes about as fast."""


@dataclass(frozen=True)
class Download(Launcher):
    """The download of one repository at one revision.

    Attributes:
        revision: Commit; ``None`` is the newest at the time of the job.
        image: An image that has the Hugging Face client: the one that will serve the model.
    """

    repository: str
    revision: str | None
    image: Image

    @property
    def name(self) -> str:
        """Name of its job; another revision is another job."""
        digest = hashlib.sha256(f"{self.repository}@{self.revision}".encode()).hexdigest()[:8]
        return f"fetch-{self.repository.partition('/')[2].lower().replace('.', '-')[:40]}-{digest}"

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector; what is there already is not fetched again."""
        return ("hf", "download", self.repository, *(("--revision", self.revision) if self.revision else ()))

    def environment(self) -> dict[str, str]:
        """Return where weights go."""
        return {"HF_HOME": WEIGHTS_DIR, "HOME": "/tmp", "HF_HUB_DISABLE_TELEMETRY": "1"}  # noqa: S108  the pod's own


def downloads(services: Sequence[AzureService]) -> tuple[Download, ...]:
    """Return every repository that services read, each once for each revision."""
    found = {
        (repository, service.revision): Download(repository, service.revision, service_images(service)[0])
        for service in services
        for repository in [_repository(catalog.models()[service.model], service)]
    }
    return tuple(found.values())


def _repository(model: ModelCard, service: AzureService) -> str:
    asks_fp8 = isinstance(service, AggregatedService | ChatService) and service.quantization is Quantization.FP8
    return model.fp8_repository if asks_fp8 and model.fp8_repository else model.repository


class ModelFetch(pulumi.ComponentResource):
    """One job for each repository. Engines run offline and read what it left; it alone may reach the Internet.

    Attributes:
        jobs: By repository.
        claim: What all of them take at most.
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
        super().__init__(f"{TYPE_PREFIX}:ModelFetch", name, None, opts)
        self._context = context
        self._model_cache = model_cache
        wanted = downloads(context.azure.services)
        self.claim = Claim(len(wanted), SHARE.cpus, SHARE.memory_gib)
        self._account = k8s.core.v1.ServiceAccount(
            MODEL_FETCH_SERVICE_ACCOUNT.name,
            metadata=metadata(
                MODEL_FETCH_SERVICE_ACCOUNT.name,
                context.namespace,
                annotations={
                    "azure.workload.identity/client-id": cluster.require_output(ClusterOutput.MODEL_FETCH_CLIENT_ID)
                },
            ),
            automount_service_account_token=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.jobs = {download.repository: self._build_job(download) for download in wanted}
        self.register_outputs({})

    def _build_job(self, download: Download) -> k8s.batch.v1.Job:
        context, held = self._context, self._context.held((download.image,))
        container = LaunchedContainer(
            name=Component.MODEL_FETCH.value,
            image=context.image_uri(download.image),
            launcher=download,
            share=SHARE,
            ports={},
            mounts=[model_cache_mount()],
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            restart_policy="Never",
            security_context=pod_security(),
            node_selector={POOL_LABEL: SYSTEM_POOL},
            tolerations=tolerations([SYSTEM_TAINT]),
            containers=[container.args(ConfigFiles(download.name, {}))],
            volumes=[tmp_volume(), model_cache_volume()],
        )
        return k8s.batch.v1.Job(
            download.name,
            metadata=metadata(
                download.name,
                context.namespace,
                labels=pod_labels(Component.MODEL_FETCH),
                # A job that waits for its image is done as far as `pulumi up` is concerned.
                annotations={"pulumi.com/skipAwait": "true"} if held else None,
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                suspend=held,
                backoff_limit=4,
                active_deadline_seconds=TIMEOUT_S,
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=pod_labels(Component.MODEL_FETCH)), spec=pod
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[self._model_cache],
                # A job's pods cannot be changed: a new image is a new job under the same name.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=f"{TIMEOUT_S}s"),
            ),
        )
