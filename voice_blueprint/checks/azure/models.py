"""Checks on the models in a cluster: licences, KV cache transfer, driver versions."""

from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.checks.azure.cluster import Cluster, Engine, PodGroup
from voice_blueprint.checks.base import Violation, cluster_check, iter_sizing_violations
from voice_blueprint.engines.sizing.fit import validate_cached_prompts, validate_kv_reuse

OLD_DRIVER_BY_GPU = {"A10": "GRID 570.211.01"}
"""Drivers in AKS node images that are older than the R580 branch, which CUDA 13 requires, by GPU model. For all other
models, the driver is 580.159.04."""


@cluster_check(
    "licence-allows-use",
    "Every model's licence, or an agreement, allows the use of the deployment.",
    source="https://huggingface.co/mistralai/Voxtral-4B-TTS-2603 (CC BY-NC 4.0); each model's row names its licence",
)
def check_licence_allows_use(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _iter_engines_with_pods(cluster):
        card = engine.model
        if cluster.commercial and not card.commercial_use and card.name not in cluster.licensed_models:
            yield Violation(
                pod.location.locate_setting("model"),
                f"{card.name} is licensed {card.licence}, which forbids commercial use, and this deployment is "
                "commercial",
                "add the agreement with its owner to model_agreements, use another model, or set commercial: false "
                "if the use is not commercial",
            )


@cluster_check(
    "kv-transfer-supported",
    "LMCache and prefill/decode cells serve decoder-only models, and sessions of at least one LMCache chunk.",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py (asserted when it starts)",
    is_acceptable=False,
)
def check_kv_transfer_supported(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _iter_engines_with_pods(cluster):
        if engine.transfers_kv:
            yield from iter_sizing_violations(
                pod.location.locate_setting("model"), pod.title, validate_kv_reuse, engine.model
            )
            if engine.load:
                yield from iter_sizing_violations(
                    pod.location.locate_setting("load"), pod.title, validate_cached_prompts, engine.load
                )


@cluster_check(
    "driver-runs-engine",
    "The NVIDIA driver of every pool's node image supports the CUDA version of its engine.",
    source="https://github.com/Azure/AKS/issues/5875 and https://docs.nvidia.com/deploy/cuda-compatibility",
)
def check_driver_runs_engine(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _iter_engines_with_pods(cluster):
        driver = OLD_DRIVER_BY_GPU.get(pod.size.gpu or "")
        release = catalog.engines()[engine.kind]
        if driver and release.min_driver and not _is_driver_compatible(driver, release.min_driver):
            yield Violation(
                pod.pool_location,
                f"{pod.size.name} has driver {driver}, but {release.name} {release.version} is built for CUDA 13, "
                f"which requires {release.min_driver}: the engine would restart repeatedly on a paid node",
                "run the service on an A100, H100 or H200 pool, or provide a node image with that driver and accept "
                "this check",
            )


def _iter_engines_with_pods(cluster: Cluster) -> Iterator[tuple[PodGroup, Engine]]:
    return ((pod, engine) for pod in cluster.pods for engine in pod.engines)


def _is_driver_compatible(driver: str, required_branch: str) -> bool:
    """Return True if a driver such as ``GRID 570.211.01`` belongs to the required branch or to a later one."""
    branch = driver.rsplit(maxsplit=1)[-1].partition(".")[0]
    return int(branch) >= int(required_branch.removeprefix("R"))
