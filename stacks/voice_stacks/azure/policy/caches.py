"""Rules on the storage of weights and KV cache: LMCache's pools, local disks, the shared model cache."""

import json
from collections.abc import Iterator

from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods
from voice_stacks.azure.policy.quantities import parse_gib, parse_quantity_or_zero
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

L1_SIZE_FLAG = "--l1-size-gb"
L2_ADAPTER_FLAG = "--l2-adapter"
WEIGHTS_VARIABLE = "HF_HOME"
OFFLINE_VARIABLE = "HF_HUB_OFFLINE"


def calculate_local_volume_gib(pod: PodTemplate, volume: str | None = None) -> float:
    """Return the total size of a pod's volumes on local disks, or the size of one volume."""
    volumes = [entry for entry in pod.spec["volumes"] if volume in (None, entry["name"].text)]
    claims = (entry.get("ephemeral", "volumeClaimTemplate", "spec") for entry in volumes)
    return sum(parse_gib(claim.get("resources", "requests", "storage").text) for claim in claims)


@rule(
    "caches-fit-containers",
    "The memory pool of an LMCache server must fit the memory limit of its container.",
    remedy="raise the limit above --l1-size-gb, or lower --l1-size-gb",
    source="https://github.com/LMCache/LMCache/issues/796",
)
def check_caches_fit_containers(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.running_containers:
            desired = float(parse_quantity_or_zero(container.get_option(L1_SIZE_FLAG)))
            if desired > container.memory_gib:
                yield Violation(
                    pod.urn,
                    f"{pod.name}/{container.name} pins {desired:g} GiB; its memory limit is "
                    f"{container.memory_gib:.0f} GiB",
                )


@rule(
    "disk-pools-fit-volumes",
    "LMCache's disk tier must be on a local-disk volume that is large enough.",
    remedy="mount the volume, and lower max_capacity_gb or raise the claim",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
)
def check_disk_pools_fit_volumes(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        used_gib: dict[str, float] = {}
        for container in pod.running_containers:
            adapter = _parse_l2_adapter(container)
            path = adapter["base_path"].text
            if not path:
                continue
            volume = _find_volume_for_path(container, path)
            if volume:
                used_gib[volume] = used_gib.get(volume, 0) + (adapter["max_capacity_gb"].number or 0)
            else:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} stores KV cache in {path}, which is not on a volume"
                )
        for volume, desired in used_gib.items():
            available_gib = calculate_local_volume_gib(pod, volume)
            if available_gib and desired > available_gib:
                yield Violation(
                    pod.urn,
                    f"LMCache servers of {pod.name} require {desired:g} GiB of volume {volume}, "
                    f"which has {available_gib:g} GiB",
                )


@rule(
    "weights-are-mounted",
    "Every engine must read its weights from a volume.",
    remedy="mount the model cache at HF_HOME",
    source="https://docs.vllm.ai/en/stable/deployment/k8s.html",
)
def check_weights_are_mounted(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        home = engine.container.environment.get(WEIGHTS_VARIABLE, "")
        if not home or not _find_volume_for_path(engine.container, home):
            yield Violation(
                engine.pod.urn,
                f"{engine.name} reads weights from {home or 'its home directory'}, which is not on a volume",
            )


@stack_rule(
    "weights-are-fetched",
    "Every engine must run offline, and a job must download its weights to the directory that it reads.",
    remedy="add a job that downloads the engine's repository and revision, with the same HF_HOME and claim",
    source="https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hfhuboffline",
)
def check_weights_are_fetched(stack: Stack) -> Iterator[Violation]:
    jobs = [pod for pod in list_pods(stack) if pod.resource.type.endswith(":Job")]
    for engine in list_engines(stack):
        home = engine.container.environment.get(WEIGHTS_VARIABLE, "")
        if not home:
            continue
        if engine.container.environment.get(OFFLINE_VARIABLE) != "1":
            yield Violation(
                engine.pod.urn,
                f"{engine.name} queries the Hugging Face hub when it starts, which no network policy allows "
                f"({OFFLINE_VARIABLE})",
            )
            continue
        desired = {engine.repository, engine.flags.get("--revision", engine.repository)}
        claim = _find_claim_name(engine.pod, engine.container, home)
        if not any(
            container.environment.get(WEIGHTS_VARIABLE) == home
            and desired <= set(container.argv)
            and _find_claim_name(job, container, home) == claim
            for job in jobs
            for container in job.running_containers
        ):
            yield Violation(
                engine.pod.urn, f"{engine.name} runs offline, and no job downloads {engine.repository} to {home}"
            )


def _find_claim_name(pod: PodTemplate, container: Container, path: str) -> str:
    volume = pod.get_volume(_find_volume_for_path(container, path) or "")
    return volume.get("persistentVolumeClaim", "claimName").text


def _parse_l2_adapter(container: Container) -> Value:
    try:
        return Value(json.loads(container.get_option(L2_ADAPTER_FLAG) or "null"))
    except json.JSONDecodeError:
        return Value()


def _find_volume_for_path(container: Container, path: str) -> str | None:
    """Return the name of the volume that contains a path, or ``None``."""
    containing_volume = [
        mount for mount in container.volume_by_mount_path if path == mount or path.startswith(f"{mount.rstrip('/')}/")
    ]
    return container.volume_by_mount_path[max(containing_volume, key=len)] if containing_volume else None
