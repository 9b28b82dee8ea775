"""Rules on limits of engines, kernels and routers that are not settings in the deployment file."""

import re
from collections import defaultdict
from collections.abc import Iterator

import yaml

from voice_blueprint import catalog
from voice_blueprint.engines.published.release import Setting, load_published_table
from voice_blueprint.file.suggestion import format_suggestion
from voice_stacks.azure.policy.cluster import iter_pods_with_pools, iter_pool_profiles
from voice_stacks.azure.policy.engines import SERVE_COMMAND, Engine, list_engines
from voice_stacks.azure.policy.pods import read_mounted_file
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

BODY_SIZE_VARIABLE, CLIP_SIZE_VARIABLE = "VLLM_HTTP_MAX_REQUEST_BODY_SIZE", "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB"
BYTES_PER_MIB = 2**20
VLLM_VARIABLE_PREFIX = "VLLM_"
NUMBER_PATTERN_BY_TYPE = {"int": re.compile(r"-?\d+"), "float": re.compile(r"-?\d*\.?\d+")}

_ROUTED_LOCATION_PATTERN = re.compile(r"location\s+(?:=\s+)?(\S+)\s*\{\s*proxy_pass http://pd_router;")


@rule(
    "releases-take-arguments",
    "Flags, values and environment variables of an engine must be supported by its release.",
    remedy="correct it, or use a release that supports it",
    source="voice_blueprint/engines/published/tables, read from the published releases",
)
def check_releases_accept_arguments(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        table, urn = engine.published_table, engine.pod.urn
        serve = table.commands[SERVE_COMMAND[1]]
        for name, text in engine.flags.items():
            flag = serve.find_flag(name.partition(".")[0])
            if flag is None:
                yield Violation(
                    urn, f"{engine.name}: {table.release} has no {name}{format_suggestion(name, serve.names)}"
                )
            elif not _accepts_value(flag, text):
                yield Violation(urn, f'{engine.name}: {table.release} does not accept {name} "{text}"')
        for name in engine.container.environment:
            if name.startswith(VLLM_VARIABLE_PREFIX) and name not in table.environment:
                closest = format_suggestion(name, table.environment)
                yield Violation(urn, f"{engine.name}: {table.release} does not read {name}{closest}")


def _accepts_value(flag: Setting, text: str) -> bool:
    if flag.nullable and text in {"", "None"}:
        return True
    if flag.choices:
        normalize = str.lower if flag.any_case else str
        return flag.extensible or normalize(text) in (normalize(str(choice)) for choice in flag.choices)
    return flag.type not in NUMBER_PATTERN_BY_TYPE or bool(NUMBER_PATTERN_BY_TYPE[flag.type].fullmatch(text))


@rule(
    "batches-hold-sequences",
    "An engine's batch must have at least one token for each sequence that it may run.",
    remedy="raise --max-num-batched-tokens, or lower --max-num-seqs",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/config/scheduler.py",
)
def check_batches_fit_sequences(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        batch, sequences = (engine.flags.get(name, "") for name in ("--max-num-batched-tokens", "--max-num-seqs"))
        if batch.isdecimal() and sequences.isdecimal() and int(batch) < int(sequences):
            yield Violation(engine.pod.urn, f"{engine.name} runs {sequences} sequences in batches of {batch} tokens")


@stack_rule(
    "kernels-take-the-cache",
    "An engine's KV cache must have a block size and data type that its GPU's attention kernels support.",
    remedy="remove --block-size, and choose a type that the GPU computes with",
    source="voice_blueprint/engines/published/tables, whose kernels are read from the published releases",
)
def check_kernels_support_cache(stack: Stack) -> Iterator[Violation]:
    pools = {pod.urn: pool for pod, pool in iter_pods_with_pools(stack)}
    for engine in list_engines(stack):
        pool, release = pools.get(engine.pod.urn), engine.published_table.release
        gpu = catalog.gpus().get(pool.size.gpu or "") if pool else None
        kind, block = engine.flags.get("--kv-cache-dtype") or "auto", engine.parse_int_flag("--block-size", 0)
        chosen = engine.flags.get("--attention-backend", "").upper()
        kernels = (each for each in engine.published_table.kernels if chosen in {"", each.name})
        majors = [(each, each.kv_types.get(kind, ())) for each in kernels]
        supporting_kernels = [
            each
            for each, capabilities in majors
            if (gpu.compute_capability[0] in capabilities if gpu else capabilities)
        ]
        sizes = sorted({size for each in supporting_kernels for size in each.blocks})
        if not supporting_kernels:
            on_gpu = f" on {gpu.name}" if gpu else ""
            yield Violation(
                engine.pod.urn, f"{engine.name}: no kernel of {release} supports a KV cache in {kind}{on_gpu}"
            )
        elif block and all(block % size for size in sizes):
            yield Violation(
                engine.pod.urn,
                f"{engine.name}: kernels of {release} require multiples of {', '.join(map(str, sizes))} tokens, not "
                f"blocks of {block}",
            )


@rule(
    "bodies-hold-audio",
    "An engine's maximum body size must be at least its maximum audio file size.",
    remedy=f"raise {BODY_SIZE_VARIABLE}, or lower {CLIP_SIZE_VARIABLE}",
    source="voice_blueprint/engines/published/tables/vllm.json, which has both with their defaults",
)
def check_body_limits_fit_audio(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        variables, release = engine.container.environment, engine.published_table.environment
        if CLIP_SIZE_VARIABLE in variables and BODY_SIZE_VARIABLE in release:
            clip, body = (
                int(variables[CLIP_SIZE_VARIABLE]) * BYTES_PER_MIB,
                int(variables.get(BODY_SIZE_VARIABLE) or str(release[BODY_SIZE_VARIABLE])),
            )
            if body < clip:
                yield Violation(
                    engine.pod.urn, f"{engine.name} accepts audio files of {clip} bytes, but bodies of only {body}"
                )


@rule(
    "audio-passes-by-the-json-router",
    "Requests without a JSON body must bypass the P/D router, which parses every body as JSON.",
    remedy="route audio, WebSockets and `location /` directly to the decode engine",
    source="voice_blueprint/engines/launch/pd_router.py",
)
def check_audio_bypasses_pd_router(stack: Stack) -> Iterator[Violation]:
    other = {
        each.path
        for each in load_published_table("vllm").endpoints
        if "audio" in each.path or each.method == "WEBSOCKET"
    }
    for resource in stack.find_resources(":ConfigMap"):
        for name, text in resource.props["data"].as_text_dict().items():
            routed_paths = set(_ROUTED_LOCATION_PATTERN.findall(text))
            for path in sorted(routed_paths & (other | {"/"})):
                yield Violation(resource.urn, f"{resource.name}, {name}: {path} is routed to the P/D router")


@stack_rule(
    "engines-share-their-gpus",
    "Engines of a pod, and stages of vLLM-Omni, must not use more than 100 % of a GPU's memory together.",
    remedy="lower --gpu-memory-utilization of an engine, or gpu_memory_utilization of a stage",
    source="https://docs.vllm.ai/en/stable/configuration/engine_args (two instances on one GPU take 0.5 each)",
)
def check_engines_share_gpus(stack: Stack) -> Iterator[Violation]:
    fractions: dict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
    for engine in list_engines(stack):
        for gpu, share in _iter_gpu_memory_fractions(stack, engine):
            fractions[engine.pod.urn, gpu].append((engine.name, share))
    for (urn, gpu), parts in fractions.items():
        total = round(sum(share for _, share in parts), 4)
        if total > 1:
            fractions_text = ", ".join(f"{name} {share:.0%}" for name, share in parts)
            yield Violation(urn, f"{total:.0%} of the memory of GPU {gpu} is allocated: {fractions_text}")


def _iter_gpu_memory_fractions(stack: Stack, engine: Engine) -> Iterator[tuple[int, float]]:
    """Yield the fraction of each GPU's memory that an engine, or each stage of vLLM-Omni, uses."""
    stages = list(read_deploy_config(stack, engine)["stages"])
    for stage in stages:
        for device in stage["devices"].text.split(","):
            if device.isdecimal() and int(device) < len(engine.pod_gpus):
                yield engine.pod_gpus[int(device)], stage["gpu_memory_utilization"].number or 0
    if not stages:
        yield from ((gpu, engine.memory_fraction) for gpu in engine.pod_gpus)


def read_deploy_config(stack: Stack, engine: Engine) -> Value:
    """Return the content of vLLM-Omni's deploy file, which is part of a ConfigMap."""
    path = engine.flags.get("--deploy-config", "")
    return Value(yaml.safe_load(read_mounted_file(stack, engine.pod, engine.container, path)))


@rule(
    "placement-group-fits-its-pool",
    "A pool with a proximity placement group must have one zone and no capacity reservation.",
    remedy="remove the placement group, or use one zone and no reservation",
    source="https://learn.microsoft.com/azure/aks/reduce-latency-ppg, "
    "https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview",
)
def check_placement_group_fits_pool(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        if not profile.props["proximityPlacementGroupID"].text:
            continue
        zones = [zone.text for zone in profile.props["availabilityZones"]]
        if len(zones) > 1:
            yield Violation(
                profile.resource.urn,
                f"pool {profile.name}: its proximity placement group spans the zones {', '.join(zones)}",
            )
        if profile.props["capacityReservationGroupID"].text:
            yield Violation(
                profile.resource.urn, f"pool {profile.name} has a proximity placement group and a capacity reservation"
            )
