"""Rules on what engines, their kernels and the routers before them take: limits that no field of the file names."""

import re
from collections import defaultdict
from collections.abc import Iterator

import yaml

from blueprint import catalog
from blueprint.engines.published.release import Setting, published
from blueprint.file.loading import suggestion
from stacks.azure.policy.cluster import placed, profiles
from stacks.azure.policy.engines import SERVE, Engine, engines
from stacks.azure.policy.rules import Found, Stack, rule, stack_rule
from stacks.azure.policy.values import Value

BODY, CLIP = "VLLM_HTTP_MAX_REQUEST_BODY_SIZE", "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB"
MIB = 2**20
OWN = "VLLM_"
NUMBERS = {"int": re.compile(r"-?\d+"), "float": re.compile(r"-?\d*\.?\d+")}

_LOCATION = re.compile(r"location\s+(?:=\s+)?(\S+)\s*\{\s*proxy_pass http://pd_router;")


@rule(
    "releases-take-arguments",
    "Every flag, number, choice and variable of an engine is one that its release takes.",
    remedy="correct it, or run a release that takes it",
    source="blueprint/engines/published/tables, read from the published releases",
)
def releases_take_arguments(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        table, urn = engine.table, engine.pod.urn
        serve = table.commands[SERVE[1]]
        for name, text in engine.flags.items():
            flag = serve.flag(name.partition(".")[0])
            if flag is None:
                yield Found(urn, f"{engine.name}: {table.release} has no {name}{suggestion(name, serve.names)}")
            elif not _takes(flag, text):
                yield Found(urn, f'{engine.name}: {table.release} takes no {name} "{text}"')
        for name in engine.container.environment:
            if name.startswith(OWN) and name not in table.environment:
                near = suggestion(name, table.environment)
                yield Found(urn, f"{engine.name}: {table.release} reads no {name}{near}")


def _takes(flag: Setting, text: str) -> bool:
    if flag.nullable and text in {"", "None"}:
        return True
    if flag.choices:
        spelt = str.lower if flag.any_case else str
        return flag.extensible or spelt(text) in (spelt(str(choice)) for choice in flag.choices)
    return flag.type not in NUMBERS or bool(NUMBERS[flag.type].fullmatch(text))


@rule(
    "batches-hold-sequences",
    "A batch of an engine has a token at least for each sequence that it may run.",
    remedy="raise --max-num-batched-tokens, or lower --max-num-seqs",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/config/scheduler.py",
)
def batches_hold_sequences(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        batch, sequences = (engine.flags.get(name, "") for name in ("--max-num-batched-tokens", "--max-num-seqs"))
        if batch.isdecimal() and sequences.isdecimal() and int(batch) < int(sequences):
            yield Found(engine.pod.urn, f"{engine.name} runs {sequences} sequences in batches of {batch} tokens")


@stack_rule(
    "kernels-take-the-cache",
    "An engine's KV cache has blocks and a type that the attention kernels of its GPU take.",
    remedy="leave --block-size out, and choose a type that the GPU computes with",
    source="blueprint/engines/published/tables, whose kernels are read from the published releases",
)
def kernels_take_the_cache(stack: Stack) -> Iterator[Found]:
    pools = {pod.urn: pool for pod, pool in placed(stack)}
    for engine in engines(stack):
        pool, release = pools.get(engine.pod.urn), engine.table.release
        gpu = catalog.gpus().get(pool.size.gpu or "") if pool else None
        kind, block = engine.flags.get("--kv-cache-dtype") or "auto", engine.number("--block-size", 0)
        chosen = engine.flags.get("--attention-backend", "").upper()
        kernels = (each for each in engine.table.kernels if chosen in {"", each.name})
        majors = [(each, each.kv_types.get(kind, ())) for each in kernels]
        taking = [each for each, known in majors if (gpu.compute_capability[0] in known if gpu else known)]
        sizes = sorted({size for each in taking for size in each.blocks})
        if not taking:
            where = f" on {gpu.name}" if gpu else ""
            yield Found(engine.pod.urn, f"{engine.name}: no kernel of {release} takes a KV cache in {kind}{where}")
        elif block and all(block % size for size in sizes):
            yield Found(
                engine.pod.urn,
                f"{engine.name}: kernels of {release} take multiples of {', '.join(map(str, sizes))} tokens, "
                f"not blocks of {block}",
            )


@rule(
    "bodies-hold-audio",
    "An engine takes bodies as large as the audio files that it is told to take.",
    remedy=f"raise {BODY}, or lower {CLIP}",
    source="blueprint/engines/published/tables/vllm.json, which has both with their defaults",
)
def bodies_hold_audio(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        told, release = engine.container.environment, engine.table.environment
        if CLIP in told and BODY in release:
            clip, body = int(told[CLIP]) * MIB, int(told.get(BODY) or str(release[BODY]))
            if body < clip:
                yield Found(engine.pod.urn, f"{engine.name} takes audio of {clip} bytes in bodies of {body}")


@rule(
    "audio-passes-by-the-json-router",
    "What is no JSON goes past the P/D router, which reads every body as JSON.",
    remedy="lead audio, WebSockets and `location /` straight to the decode engine",
    source="blueprint/engines/launch/pd_router.py",
)
def audio_passes_by(stack: Stack) -> Iterator[Found]:
    other = {each.path for each in published("vllm").endpoints if "audio" in each.path or each.method == "WEBSOCKET"}
    for resource in stack.of(":ConfigMap"):
        for name, text in resource.props["data"].texts().items():
            led = set(_LOCATION.findall(text))
            for path in sorted(led & (other | {"/"})):
                yield Found(resource.urn, f"{resource.name}, {name}: {path} goes to the P/D router")


@stack_rule(
    "engines-share-their-gpus",
    "Engines of a pod, and stages of vLLM-Omni, take no more than the whole memory of each GPU together.",
    remedy="lower --gpu-memory-utilization of an engine, or gpu_memory_utilization of a stage",
    source="https://docs.vllm.ai/en/stable/configuration/engine_args (two instances on one GPU take 0.5 each)",
)
def engines_share_gpus(stack: Stack) -> Iterator[Found]:
    taken: dict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
    for engine in engines(stack):
        for gpu, share in _shares(stack, engine):
            taken[engine.pod.urn, gpu].append((engine.name, share))
    for (urn, gpu), parts in taken.items():
        total = round(sum(share for _, share in parts), 4)
        if total > 1:
            named = ", ".join(f"{name} {share:.0%}" for name, share in parts)
            yield Found(urn, f"{total:.0%} of the memory of GPU {gpu} is taken: {named}")


def _shares(stack: Stack, engine: Engine) -> Iterator[tuple[int, float]]:
    """Yield GPUs of the pod, and the share of each one's memory; each stage of vLLM-Omni has its own."""
    stages = list(_deployed(stack, engine)["stages"])
    for stage in stages:
        for device in stage["devices"].text.split(","):
            if device.isdecimal() and int(device) < len(engine.pod_gpus):
                yield engine.pod_gpus[int(device)], stage["gpu_memory_utilization"].number or 0
    if not stages:
        yield from ((gpu, engine.memory_share) for gpu in engine.pod_gpus)


def _deployed(stack: Stack, engine: Engine) -> Value:
    """Return what vLLM-Omni's deploy file says, which is mounted from a config map."""
    path = engine.flags.get("--deploy-config", "")
    mount = next((each for each in engine.container.value["volumeMounts"] if each["mountPath"].text == path), Value())
    source = engine.pod.volume(mount["name"].text).at("configMap", "name").text
    files = (each.props for each in stack.of(":ConfigMap") if each.props.at("metadata", "name").text == source)
    return Value(yaml.safe_load(next(files, Value()).at("data", mount["subPath"].text).text))


@rule(
    "placement-group-fits-its-pool",
    "A pool in a proximity placement group lies in one zone, and draws from no capacity reservation.",
    remedy="take the placement group out, or keep the pool in one zone without a reservation",
    source="https://learn.microsoft.com/azure/aks/reduce-latency-ppg, "
    "https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview",
)
def placement_group_fits(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        if not profile.props["proximityPlacementGroupID"].text:
            continue
        zones = [zone.text for zone in profile.props["availabilityZones"]]
        if len(zones) > 1:
            yield Found(profile.resource.urn, f"pool {profile.name}: a placement group over zones {', '.join(zones)}")
        if profile.props["capacityReservationGroupID"].text:
            yield Found(profile.resource.urn, f"pool {profile.name} has a placement group and a capacity reservation")
