"""Rules on what keeps weights and KV cache: LMCache's pools, local disks, the shared model cache."""

import json
from collections.abc import Iterator

from stacks.azure.policy.engines import engines
from stacks.azure.policy.pods import Container, Pod, pods
from stacks.azure.policy.quantities import amount, gib
from stacks.azure.policy.rules import Found, Stack, rule
from stacks.azure.policy.values import Value

LMCACHE_SIZE = "--l1-size-gb"
LMCACHE_DISK = "--l2-adapter"
WEIGHTS = "HF_HOME"


def ephemeral_gib(pod: Pod, volume: str | None = None) -> float:
    """Return the size of a pod's volumes on local disks, or of one of them."""
    volumes = [entry for entry in pod.spec["volumes"] if volume in (None, entry["name"].text)]
    claims = (entry.at("ephemeral", "volumeClaimTemplate", "spec") for entry in volumes)
    return sum(gib(claim.at("resources", "requests", "storage").text) for claim in claims)


@rule(
    "caches-fit-containers",
    "An LMCache server's pool fits the memory limit of its container.",
    remedy="raise the limit above --l1-size-gb, or lower --l1-size-gb",
    source="https://github.com/LMCache/LMCache/issues/796",
)
def caches_fit_containers(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        for container in pod.running:
            wanted = float(amount(container.option(LMCACHE_SIZE)))
            if wanted > container.memory_gib:
                yield Found(
                    pod.urn, f"{pod.name}/{container.name} pins {wanted:g} GiB and may have {container.memory_gib:.0f}"
                )


@rule(
    "disk-pools-fit-volumes",
    "LMCache's second level lies on a volume of local disks that is large enough.",
    remedy="mount the volume, and lower max_capacity_gb or raise the claim",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
)
def disk_pools_fit_volumes(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        taken: dict[str, float] = {}
        for container in pod.running:
            adapter = _adapter(container)
            path = adapter["base_path"].text
            if not path:
                continue
            volume = _volume_of(container, path)
            if volume:
                taken[volume] = taken.get(volume, 0) + (adapter["max_capacity_gb"].number or 0)
            else:
                yield Found(pod.urn, f"{pod.name}/{container.name} keeps KV cache in {path}, which is on no volume")
        for volume, wanted in taken.items():
            have = ephemeral_gib(pod, volume)
            if have and wanted > have:
                yield Found(
                    pod.urn, f"LMCache servers of {pod.name} want {wanted:g} GiB of volume {volume}: {have:g} GiB"
                )


@rule(
    "weights-are-mounted",
    "Every engine reads its weights from a volume.",
    remedy="mount the model cache where HF_HOME points",
    source="https://docs.vllm.ai/en/stable/deployment/k8s.html",
)
def weights_are_mounted(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        home = engine.container.environment.get(WEIGHTS, "")
        if not home or not _volume_of(engine.container, home):
            yield Found(engine.pod.urn, f"{engine.name} reads weights from {home or 'its home'}, which is on no volume")


def _adapter(container: Container) -> Value:
    try:
        return Value(json.loads(container.option(LMCACHE_DISK) or "null"))
    except json.JSONDecodeError:
        return Value()


def _volume_of(container: Container, path: str) -> str | None:
    """Return the volume that a path lies on."""
    around = [mount for mount in container.mounts if path == mount or path.startswith(f"{mount.rstrip('/')}/")]
    return container.mounts[max(around, key=len)] if around else None
