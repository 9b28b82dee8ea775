"""Rules on engines: KV transfer, KV cache types, transports, images, models and their licences."""

from collections import defaultdict
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.checks.engines import IMAGE_BY_ENGINE
from voice_blueprint.engines.launch.pod_consistency import KV_COMPATIBILITY_FLAGS
from voice_stacks.azure.policy.cluster import collect_gpu_pools_by_name
from voice_stacks.azure.policy.engines import DECODE, PREFILL, Engine, list_engines
from voice_stacks.azure.policy.pods import list_pods
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule

NIXL_DOCS_URL = "https://docs.vllm.ai/en/stable/features/nixl_connector_usage.html"
RDMA_TRANSPORTS = frozenset({"rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5", "dc", "dc_x", "ud", "ud_x", "ib"})
"""UCX transports over InfiniBand verbs."""
INFINIBAND_PREFIXES = ("mlx", "ib", "rocep")
"""Prefixes of InfiniBand device names."""


@rule(
    "nixl-has-two-sides",
    "Every engine that uses NIXL must be a producer or a consumer.",
    remedy="set kv_role to kv_producer for prefill and kv_consumer for decode",
    source=NIXL_DOCS_URL,
)
def check_nixl_has_producer_and_consumer(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        if engine.nixl_role and engine.nixl_role not in {PREFILL, DECODE}:
            yield Violation(
                engine.pod.urn,
                f'{engine.name} has the kv_role "{engine.nixl_role}", which is deprecated; use {PREFILL} or {DECODE}',
            )


@stack_rule(
    "prefill-and-decode-share-a-pod",
    "Prefill and decode must share a pod without InfiniBand, and have the same model, context and KV type.",
    remedy="put both engines into one pod that sees all GPUs of its node",
    source="https://github.com/vllm-project/vllm/pull/55906",
)
def check_prefill_and_decode_share_pod(stack: Stack) -> Iterator[Violation]:
    sides: dict[str, list[Engine]] = defaultdict(list)
    for engine in list_engines(stack):
        if engine.nixl_role in {PREFILL, DECODE}:
            sides[engine.pod.urn].append(engine)
    pools_by_name = collect_gpu_pools_by_name(stack)
    for urn, members in sides.items():
        pool = pools_by_name.get(members[0].pod.pool)
        roles = {engine.nixl_role for engine in members}
        if len(roles) == 1 and not (pool and pool.size.rdma):
            other = DECODE if PREFILL in roles else PREFILL
            rdma_text = f"{pool.size.name} has no RDMA" if pool else "its nodes are unknown"
            yield Violation(
                urn,
                f"{members[0].name} is {roles.pop()} and its pod has no {other}: {rdma_text}, KV cache would be sent "
                "over TCP",
            )
        yield from _find_pair_violations(members)


def _find_pair_violations(members: list[Engine]) -> Iterator[Violation]:
    """Yield a violation for each setting that differs between engines that transfer KV cache to each other."""
    for flag in KV_COMPATIBILITY_FLAGS:
        values = {engine.flags.get(flag, "default") for engine in members}
        if len(values) > 1:
            yield Violation(members[0].pod.urn, f"engines of {members[0].pod.name} differ in {flag}: {sorted(values)}")
    models = {engine.repository for engine in members}
    if len(models) > 1:
        yield Violation(members[0].pod.urn, f"engines of {members[0].pod.name} differ in their model: {sorted(models)}")


@stack_rule(
    "rdma-is-there",
    "RDMA transports and devices must only be used on VM sizes with InfiniBand.",
    remedy="remove them from UCX_TLS, UCX_NET_DEVICES and the limits, or select an ND size with an r",
    source="https://learn.microsoft.com/azure/virtual-machines/overview-hb-hc",
)
def check_rdma_is_available(stack: Stack) -> Iterator[Violation]:
    pools_by_name = collect_gpu_pools_by_name(stack)
    for pod in list_pods(stack):
        pool = pools_by_name.get(pod.pool)
        if pool is None or pool.size.rdma:
            continue
        for container in pod.containers:
            environment = container.environment
            transports = RDMA_TRANSPORTS & set(environment.get("UCX_TLS", "").split(","))
            devices = [
                d for d in environment.get("UCX_NET_DEVICES", "").split(",") if d.startswith(INFINIBAND_PREFIXES)
            ]
            devices_limit = [
                kind for kind in container.spec.get("resources", "limits").as_text_dict() if kind.startswith("rdma/")
            ]
            for rdma_setting in [*sorted(transports), *devices, *devices_limit]:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} uses {rdma_setting}; {pool.size.name} has no RDMA"
                )


@rule(
    "model-is-known",
    "Every engine must serve a model of the catalogue, which contains its licence and size.",
    remedy="add the model to voice_blueprint/catalog/models.yaml, or correct its name",
    source="voice_blueprint/catalog/models.yaml",
)
def check_model_is_known(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        if engine.model is None:
            yield Violation(
                engine.pod.urn, f'{engine.name} serves "{engine.repository}", which is not in the catalogue'
            )


@stack_rule(
    "engines-have-their-image",
    "vLLM-Omni and vLLM must use different images.",
    remedy="use the image of the model's engine",
    source="https://docs.vllm.ai/projects/vllm-omni",
)
def check_engine_images_differ(stack: Stack) -> Iterator[Violation]:
    by_image: dict[str, set[str]] = defaultdict(set)
    for engine in list_engines(stack):
        kind = "vllm-omni" if engine.is_omni else "vllm"
        image = engine.container.image.text
        repository = image.partition("@")[0].rpartition("/")[2]
        engine_name = next((name for name, own in IMAGE_BY_ENGINE.items() if own == repository), kind)
        by_image[image] |= {kind, engine_name} if image else set()
        if len(by_image[image]) > 1:
            yield Violation(
                engine.pod.urn,
                f"{engine.name}: image {repository} is used for both vLLM and vLLM-Omni, whose pinned dependencies "
                f"conflict ({catalog.engines()['vllm'].version} and {catalog.engines()['vllm-for-omni'].version})",
            )
