"""Rules on engines: KV transfer, KV cache types, transports, images, models and their licences."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from blueprint import catalog
from blueprint.contract.images import Image
from blueprint.engines.sizing.fit import check_engine, check_load, check_memory, check_reuse
from blueprint.engines.sizing.memory import GPU_MEMORY_UTILIZATION, KvMemory, replication, weights_gib
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.serving import KvCacheType, Load, Quantization
from stacks.azure.policy.engines import Engine, engines
from stacks.azure.policy.pods import pods
from stacks.azure.policy.pools import Pool, pools
from stacks.azure.policy.rules import Found, Rule, Scope, Stack

NIXL_DOCS = "https://docs.vllm.ai/en/stable/features/nixl_connector_usage.html"
PREFILL, DECODE = "kv_producer", "kv_consumer"
RDMA_TRANSPORTS = frozenset({"rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5", "dc", "dc_x", "ud", "ud_x", "ib"})
"""UCX transports over InfiniBand verbs."""
ENGINE_OF_IMAGE: dict[str, str] = {Image.TTS_OMNI: "vllm-omni", Image.ASR_VLLM: "vllm"}
INFINIBAND = ("mlx", "ib", "rocep")
"""How devices of InfiniBand adapters begin."""


def nixl_has_two_sides(stack: Stack) -> Iterator[Found]:
    """Each engine on NIXL is a producer or a consumer."""
    for engine in engines(stack):
        if engine.nixl_role and engine.nixl_role not in {PREFILL, DECODE}:
            yield Found(
                engine.pod.urn,
                f'{engine.name} is "{engine.nixl_role}" to NIXL, which is deprecated: it is {PREFILL} or {DECODE}',
            )


def sides_share_a_pod(stack: Stack) -> Iterator[Found]:
    """Prefill and decode lie in one pod, unless InfiniBand joins their nodes."""
    sides: dict[str, list[Engine]] = defaultdict(list)
    for engine in engines(stack):
        if engine.nixl_role in {PREFILL, DECODE}:
            sides[engine.pod.urn].append(engine)
    known = pools(stack)
    for urn, members in sides.items():
        pool = known.get(members[0].pod.pool)
        roles = {engine.nixl_role for engine in members}
        if len(roles) == 1 and not (pool and pool.size.rdma):
            other = DECODE if PREFILL in roles else PREFILL
            where = f"{pool.size.name} has no RDMA" if pool else "its nodes are unknown"
            yield Found(
                urn, f"{members[0].name} is {roles.pop()} and its pod has no {other}: {where}, KV cache would take TCP"
            )
        yield from _twins(members)


def _twins(members: list[Engine]) -> Iterator[Found]:
    """Find what two engines that hand over KV cache have to have in common and do not."""
    for flag in ("--revision", "--quantization", "--kv-cache-dtype", "--block-size", "--max-model-len"):
        values = {engine.flags.get(flag, "default") for engine in members}
        if len(values) > 1:
            yield Found(members[0].pod.urn, f"engines of {members[0].pod.name} differ in {flag}: {sorted(values)}")
    models = {engine.repository for engine in members}
    if len(models) > 1:
        yield Found(members[0].pod.urn, f"engines of {members[0].pod.name} differ in their model: {sorted(models)}")


def rdma_is_there(stack: Stack) -> Iterator[Found]:
    """Only nodes with InfiniBand are asked for it."""
    known = pools(stack)
    for pod in pods(stack):
        pool = known.get(pod.pool)
        if pool is None or pool.size.rdma:
            continue
        for container in pod.containers:
            environment = container.environment
            asked = RDMA_TRANSPORTS & set(environment.get("UCX_TLS", "").split(","))
            devices = [d for d in environment.get("UCX_NET_DEVICES", "").split(",") if d.startswith(INFINIBAND)]
            claimed = [kind for kind in container.value.at("resources", "limits").texts() if kind.startswith("rdma/")]
            for what in [*sorted(asked), *devices, *claimed]:
                yield Found(pod.urn, f"{pod.name}/{container.name} asks for {what}; {pool.size.name} has no RDMA")


def model_is_known(stack: Stack) -> Iterator[Found]:
    """Every engine serves a model of the catalogue."""
    for engine in engines(stack):
        if engine.model is None:
            yield Found(
                engine.pod.urn, f'{engine.name} serves "{engine.repository}", which the catalogue does not have'
            )


def licence_allows(stack: Stack) -> Iterator[Found]:
    """Models that may not be used commercially are served where the deployment says so, or by agreement."""
    azure = stack.deployment.azure_half if stack.deployment else None
    # A stack without a deployment is another rule's.
    commercial = azure.commercial if azure else False
    agreed = {agreement.model for agreement in azure.model_agreements} if azure else set()
    for engine in engines(stack):
        card = engine.model
        if card and commercial and not card.commercial_use and card.name not in agreed:
            yield Found(
                engine.pod.urn,
                f"{engine.name} serves {card.name} under {card.licence} in a commercial deployment, without agreement",
            )


def engine_serves_model(stack: Stack) -> Iterator[Found]:
    """vLLM-Omni serves its models and vLLM the others, each from an image of its own."""
    by_image: dict[str, set[str]] = defaultdict(set)
    for engine in engines(stack):
        kind = "vllm-omni" if engine.is_omni else "vllm"
        if engine.model and engine.model.served_by != kind:
            yield Found(
                engine.pod.urn, f"{engine.name} runs {kind}; {engine.model.name} is served by {engine.model.served_by}"
            )
        image = engine.container.image.text
        repository = image.partition("@")[0].rpartition("/")[2]
        known = ENGINE_OF_IMAGE.get(repository, kind)
        by_image[image] |= {kind, known} if image else set()
        if len(by_image[image]) > 1:
            yield Found(
                engine.pod.urn,
                f"{engine.name}: image {repository} is to run vLLM and vLLM-Omni, whose pins exclude each other "
                f"({catalog.engines()['vllm'].version} and {catalog.engines()['vllm-for-omni'].version})",
            )


def engine_fits(stack: Stack) -> Iterator[Found]:
    """Sizing would accept each engine as its flags describe it."""
    known = pools(stack)
    for engine in engines(stack):
        pool = known.get(engine.pod.pool)
        if engine.model and engine.model.served_by == "vllm" and not engine.is_omni and pool and pool.gpu:
            for check in (_check_engine, _check_reuse, _check_context, _check_memory):
                yield from _refusal(engine, pool, check)


def _refusal(engine: Engine, pool: Pool, check: Callable[[Engine, Pool], None]) -> Iterator[Found]:
    try:
        check(engine, pool)
    except DoesNotFitError as error:
        yield Found(engine.pod.urn, f"{engine.name} on pool {pool.name}: {error.arithmetic}")


def _kv_type(engine: Engine) -> KvCacheType:
    return KvCacheType.FP8 if engine.flags.get("--kv-cache-dtype", "").startswith("fp8") else KvCacheType.AUTO


def _load(engine: Engine) -> Load | None:
    tokens = engine.number("--max-model-len", engine.model.max_context_tokens if engine.model else 0)
    return Load(sessions=1, session_tokens=1, context_tokens=tokens) if tokens else None


def _check_engine(engine: Engine, pool: Pool) -> None:
    if engine.model and pool.gpu:
        check_engine(engine.model, pool.gpu, _kv_type(engine), engine.tensor_parallel)


def _check_reuse(engine: Engine, _: Pool) -> None:
    if engine.model and (engine.connectors or "--kv-offloading-size" in engine.flags):
        check_reuse(engine.model)


def _check_context(engine: Engine, _: Pool) -> None:
    load = _load(engine)
    if engine.model and load:
        check_load(engine.model, load)


def _check_memory(engine: Engine, pool: Pool) -> None:
    load = _load(engine)
    if engine.model and pool.gpu and load:
        fp8 = engine.flags.get("--quantization") == "fp8" or engine.repository == engine.model.fp8_repository
        memory = KvMemory(
            pool.gpu,
            engine.tensor_parallel,
            weights_gib(engine.model, Quantization.FP8 if fp8 else Quantization.NONE),
            replication(engine.model, engine.tensor_parallel),
            utilization=float(engine.flags.get("--gpu-memory-utilization") or GPU_MEMORY_UTILIZATION),
        )
        check_memory(engine.model, memory, _kv_type(engine), load)


RULES = (
    Rule(
        "nixl-has-two-sides",
        "Every engine on NIXL is a producer or a consumer.",
        "set kv_role to kv_producer for prefill and kv_consumer for decode",
        NIXL_DOCS,
        Scope.RESOURCE,
        nixl_has_two_sides,
    ),
    Rule(
        "prefill-and-decode-share-a-pod",
        "Prefill and decode lie in one pod where no InfiniBand joins nodes, and agree on model, context and KV type.",
        "put both engines into one pod that sees all GPUs of its node",
        "https://github.com/vllm-project/vllm/pull/55906",
        Scope.STACK,
        sides_share_a_pod,
    ),
    Rule(
        "rdma-is-there",
        "RDMA transports and devices are asked for on sizes that have InfiniBand.",
        "take them out of UCX_TLS, UCX_NET_DEVICES and the limits, or select an ND size with an r",
        "https://learn.microsoft.com/azure/virtual-machines/overview-hb-hc",
        Scope.STACK,
        rdma_is_there,
    ),
    Rule(
        "model-is-known",
        "Every engine serves a model of the catalogue, whose licence and size are known.",
        "add the model to blueprint/catalog/models.yaml, or correct its name",
        "blueprint/catalog/models.yaml",
        Scope.RESOURCE,
        model_is_known,
    ),
    Rule(
        "licence-allows-use",
        "Models that forbid commercial use are served under an agreement, or in a deployment that is not commercial.",
        "name the agreement under model_agreements in the deployment file",
        "https://huggingface.co/mistralai/Voxtral-4B-TTS-2603",
        Scope.STACK,
        licence_allows,
    ),
    Rule(
        "engine-serves-model",
        "vLLM-Omni serves speech and vLLM the rest, from different images.",
        "use the image of the model's engine",
        "https://docs.vllm.ai/projects/vllm-omni",
        Scope.STACK,
        engine_serves_model,
    ),
    Rule(
        "engine-fits-gpus",
        "Weights, context, KV cache type and connectors of every engine suit its model and its GPUs.",
        "change the engine's flags as blueprint.engines.sizing would set them",
        "https://docs.vllm.ai/en/stable/configuration/conserving_memory.html",
        Scope.STACK,
        engine_fits,
    ),
)
