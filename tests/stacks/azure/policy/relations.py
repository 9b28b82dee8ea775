"""Mistakes in relations that no field of the file can express, written without knowledge of the rules.

They come from the behaviour of engines, kernels and Kubernetes: arguments against a model's training and an attention
kernel's inputs, routers against the bodies that they parse, pods against the room of a node, a reservation beside spot,
two engines that share one GPU's memory. The rules detected those that are ``blind`` when new.
"""

import copy
import json
from collections.abc import Callable

import yaml

from tests.stacks.azure.policy.graphs import CLUSTER, WORKLOADS, Damage, Emitted, Mutation, flag, variable
from tests.stacks.azure.policy.mutations import CELL, flags, pool


def one_gpu_for_both(graph: Emitted) -> None:
    """Let both engines reserve most of the memory of the same GPUs."""
    prefill = graph.container(CELL, "prefill")
    visible = next(entry["value"] for entry in prefill["env"] if entry["name"] == "CUDA_VISIBLE_DEVICES")
    variable(graph.container(CELL, "decode"), "CUDA_VISIBLE_DEVICES", visible)


def greedy_stages(graph: Emitted) -> None:
    """Let the codec of a speech engine take half of the GPU that its language model uses to 80 %."""
    files = next(r for r in graph.resources if r.type.endswith(":ConfigMap") and r.name.startswith("speech"))
    data = graph.props("ConfigMap", files.name)["data"]
    deployed = yaml.safe_load(data["etc.voice.omni.yaml"])
    deployed["stages"][1]["gpu_memory_utilization"] = 0.5
    data["etc.voice.omni.yaml"] = yaml.safe_dump(deployed)


def spot_pool_with_reservation(graph: Emitted) -> None:
    group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/one"
    graph.props("AgentPool", "h100spot")["capacityReservationGroupID"] = group


def reservation_with_placement_group(graph: Emitted) -> None:
    here = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
    graph.props("AgentPool", "h100").update(
        capacityReservationGroupID=f"{here}/capacityReservationGroups/one",
        proximityPlacementGroupID=f"{here}/proximityPlacementGroups/one",
    )


def placement_group_over_three_zones(graph: Emitted) -> None:
    group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/proximityPlacementGroups/one"
    graph.props("AgentPool", "a100").update(proximityPlacementGroupID=group, availabilityZones=["1", "2", "3"])


def small_bodies(graph: Emitted) -> None:
    """Limit request bodies to less than a minute of WAV audio (2 MiB)."""
    variable(graph.container("voxtral"), "VLLM_HTTP_MAX_REQUEST_BODY_SIZE", "1")


def audio_through_the_json_router(old: str, new: str) -> Callable[[Emitted], None]:
    """Route audio through the P/D router, which reads every body as JSON; a transcription is multipart."""

    def mistaken(graph: Emitted) -> None:
        front = next(r.name for r in graph.resources if r.type.endswith(":ConfigMap") and r.name.startswith(CELL))
        files = graph.props("ConfigMap", front)["data"]
        assert old in files["etc.voice.nginx.conf"]
        files["etc.voice.nginx.conf"] = files["etc.voice.nginx.conf"].replace(old, new)

    return mistaken


def identical_services(of: str, *shares: str) -> Damage:
    """Add a second engine to the pod, on the GPU of the first one."""

    def mistaken(graph: Emitted) -> None:
        first = graph.container(of)
        second = copy.deepcopy(first)
        second["name"] = "engine-b"
        flag(second, "--port", "8009")
        second["ports"] = []
        for side in ("requests", "limits"):
            second["resources"][side].pop("nvidia.com/gpu")
        variable(second, "CUDA_VISIBLE_DEVICES", "0")
        graph.pod(of)["containers"].append(second)
        for engine, share in zip((first, second), shares, strict=False):
            flag(engine, "--gpu-memory-utilization", share)

    return mistaken


def unknown_variable(graph: Emitted) -> None:
    variable(graph.container("voxtral"), "VLLM_HTTP_MAX_BODY_SIZE", "33554432")


def small_system_pool(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["agentPoolProfiles"][0]["maxPods"] = 29


def batch_below_sequences(graph: Emitted) -> None:
    flag(graph.container("voxtral"), "--max-num-batched-tokens", "64")


def two_prefill_roles(graph: Emitted) -> None:
    transfer = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"})
    flag(graph.container(CELL, "decode"), "--kv-transfer-config", transfer)


RELATION_MUTATIONS = (
    Mutation("context beyond what the model was trained for", WORKLOADS,
             flags("voxtral", "engine", max_model_len="1048576"),
             ("context-fits-model",), blind=True),
    Mutation("a batch with less than a token a sequence", WORKLOADS, batch_below_sequences,
             ("batches-hold-sequences",)),
    Mutation("attention heads that GPUs cannot share", WORKLOADS,
             flags("voxtral", "engine", tensor_parallel_size="3"), ("engine-splits-model",), blind=True),
    Mutation("KV cache type that the GPU has not", WORKLOADS,
             flags("qwen-a100", "engine", kv_cache_dtype="nvfp4_4over6"), ("kernels-take-the-cache",),
             ("no kernel of vllm 0.33.0 supports a KV cache in nvfp4_4over6 on A100-80",)),
    Mutation("block size that no attention kernel takes", WORKLOADS,
             flags("voxtral", "engine", block_size="24"), ("kernels-take-the-cache",), ("not blocks of 24",)),
    Mutation("prefill and decode on the same GPUs' memory", WORKLOADS, one_gpu_for_both,
             ("engine-has-its-gpus",), blind=True),
    Mutation("two engines with 90 % of one GPU each", WORKLOADS, identical_services("speech"),
             ("engines-share-their-gpus",),
             ("180% of the memory of GPU 0", "speech/engine-b 10%"), blind=True),
    Mutation("stages of one engine with more than one GPU's memory", WORKLOADS, greedy_stages,
             ("engines-share-their-gpus",), ("130% of the memory of GPU 0",)),
    Mutation("bodies smaller than audio", WORKLOADS, small_bodies, ("bodies-hold-audio",)),
    Mutation("audio through a router that parses JSON", WORKLOADS,
             audio_through_the_json_router("location / {", "location = /v1/audio/transcriptions "
                                           "{ proxy_pass http://pd_router; }\n    location / {"),
             ("audio-passes-by-the-json-router",), ("/v1/audio/transcriptions is routed to",)),
    Mutation("live audio through a router that parses JSON", WORKLOADS,
             audio_through_the_json_router("location / {", "location /v1/realtime { proxy_pass http://pd_router; }\n"
                                           "    location / {"),
             ("audio-passes-by-the-json-router",), ("/v1/realtime is routed to",)),
    Mutation("what nobody knows through a router that parses JSON", WORKLOADS,
             audio_through_the_json_router("http://decode;", "http://pd_router;"),
             ("audio-passes-by-the-json-router",), ("/ is routed to",)),
    Mutation("fewer pods than a node's own daemons", CLUSTER, pool("a100", maxPods=12), ("pools-can-work",),
             blind=True),
    Mutation("spot nodes with a reservation", CLUSTER, spot_pool_with_reservation,
             ("pool-fits-its-size", "purchase-supported"), ("is spot and uses",), blind=True),
    Mutation("a reservation inside a placement group", CLUSTER, reservation_with_placement_group,
             ("placement-group-fits-its-pool",)),
    Mutation("a placement group over three zones", CLUSTER, placement_group_over_three_zones,
             ("placement-group-fits-its-pool",)),
    Mutation("KV cache handed over through host memory", WORKLOADS, two_prefill_roles,
             ("nixl-has-two-sides",), blind=True),
)  # fmt: skip

DERIVED_MUTATIONS = (
    Mutation("fewer pods than agents and engines of a node", CLUSTER, pool("h200", maxPods=22), ("pools-can-work",),
             ("maxPods 22 is below 23", "15 agents and 8 engines")),
    Mutation("system pool with fewer pods than AKS takes", CLUSTER, small_system_pool, ("pools-can-work",),
             ("maxPods 29 is below 30",)),
    Mutation("shares of one GPU that add up to more than the whole", WORKLOADS, identical_services("qwen-a100", "0.6",
             "0.45"),
             ("engines-share-their-gpus",), ("105% of the memory of GPU 0", "engine 60%", "engine-b 45%")),
    Mutation("share of one GPU beside an engine that is told none", WORKLOADS, identical_services("qwen-a100", "0.1",
             ""),
             ("engines-share-their-gpus",), ("102% of the memory of GPU 0", "engine-b 92%")),
    Mutation("engine that takes GPUs which its pod has not", WORKLOADS,
             lambda graph: variable(graph.container(CELL, "decode"), "CUDA_VISIBLE_DEVICES", "4,5"),
             ("engine-has-its-gpus",), ("decode (4, 5); the pod has 4",)),
    Mutation("KV cache type of models with latent attention", WORKLOADS,
             flags("voxtral", "engine", kv_cache_dtype="fp8_ds_mla"), ("kernels-take-the-cache",), ("fp8_ds_mla",)),
    Mutation("KV cache type that the chosen kernel does not take", WORKLOADS,
             flags("qwen-a100", "engine", attention_backend="triton_attn", kv_cache_dtype="nvfp4"),
             ("kernels-take-the-cache",), ("nvfp4 on A100-80",)),
    Mutation("block size that the kernels of its KV cache type do not take", WORKLOADS,
             flags("qwen-a100", "engine", kv_cache_dtype="turboquant_k8v4", block_size="8"),
             ("kernels-take-the-cache",), ("multiples of 16 tokens, not blocks of 8",)),
    Mutation("flag that the release has not", WORKLOADS, flags("voxtral", "engine", max_num_sequences="8"),
             ("releases-take-arguments",), ("vllm 0.33.0 has no --max-num-sequences; did you mean `--max-num-seqs`?",)),
    Mutation("choice that the release has not", WORKLOADS, flags("voxtral", "engine", dtype="bf16"),
             ("releases-take-arguments",), ('does not accept --dtype "bf16"',)),
    Mutation("amount that is no number", WORKLOADS, flags("voxtral", "engine", gpu_memory_utilization="92%"),
             ("releases-take-arguments",), ('does not accept --gpu-memory-utilization "92%"',)),
    Mutation("variable that the release does not read", WORKLOADS, unknown_variable, ("releases-take-arguments",),
             ("VLLM_HTTP_MAX_BODY_SIZE", "did you mean")),
)  # fmt: skip
"""Mistakes without a specific rule, which sums over the output and the tables of releases detect."""
