"""Mistakes for which the rules were written, each applied to the output of the real programs."""

import copy

from tests.stacks.azure.policy.graphs import CLUSTER, WORKLOADS, Damage, Emitted, Mutation, flag, limits, variable

CELL = "voxtral-cells"
WHISPER = "openai/whisper-large-v3"
LMCACHE = '{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both"}'
POOL_LABEL = "voice-serve/pool"
H100_POLICY = "azure.pools.1.topology_policy"
SHARED_MEMORY_VOLUME = "shared-memory"
"""Volume that is mounted at /dev/shm."""


def pool(name: str, **props: object) -> Damage:
    return lambda graph: graph.props("AgentPool", name).update(props)


def kubelet(name: str, policy: str) -> Damage:
    return pool(name, kubeletConfig={"cpuManagerPolicy": "static", "topologyManagerPolicy": policy})


def flags(name: str, container: str, **values: str | None) -> Damage:
    def damage(graph: Emitted) -> None:
        for key, value in values.items():
            flag(graph.container(name, container), f"--{key.replace('_', '-')}", value)

    return damage


def nothing(_: Emitted) -> None:
    """Leave the output unchanged, since the mistake is in the deployment file."""


def cpus(graph: Emitted) -> None:
    limits(graph.container("voxtral"), cpu="20")


def three_gpus_of_a_cell(graph: Emitted) -> None:
    graph.pod("voxtral")["nodeSelector"][POOL_LABEL] = "cells"
    graph.pod("voxtral")["tolerations"] = graph.pod(CELL)["tolerations"]
    limits(graph.container("voxtral"), gpu="3")
    flag(graph.container("voxtral"), "--tensor-parallel-size", "3")


def four_gpus_across_pairs(graph: Emitted) -> None:
    limits(graph.container("voxtral"), gpu="4", cpu="80")
    flag(graph.container("voxtral"), "--tensor-parallel-size", "4")
    graph.pod("voxtral")["nodeSelector"][POOL_LABEL] = "cells"


def two_large_pools(graph: Emitted) -> None:
    for server in ("lmcache", "lmcache-decode"):
        flag(graph.container(CELL, server), "--l1-size-gb", "200")
        limits(graph.container(CELL, server), memory="208Gi")


def no_shared_memory(graph: Emitted) -> None:
    engine = graph.container("voxtral")
    engine["volumeMounts"] = [mount for mount in engine["volumeMounts"] if mount["name"] != SHARED_MEMORY_VOLUME]


def small_shared_memory(graph: Emitted) -> None:
    for volume in graph.pod(CELL)["volumes"]:
        if volume["name"] == SHARED_MEMORY_VOLUME:
            volume["emptyDir"]["sizeLimit"] = "64Mi"


def no_toleration(graph: Emitted) -> None:
    graph.pod(CELL)["tolerations"] = graph.pod(CELL)["tolerations"][:1]


def one_gpu_in_cells(graph: Emitted) -> None:
    graph.pod("qwen-a100")["nodeSelector"][POOL_LABEL] = "cells"
    graph.pod("qwen-a100")["tolerations"] = graph.pod(CELL)["tolerations"]


def replace_argument(name: str, container: str, old: str, new: str) -> Damage:
    """Replace text in a container's command."""

    def damage(graph: Emitted) -> None:
        found = graph.container(name, container)
        changed = [part.replace(old, new) for part in found["command"]]
        assert changed != found["command"]
        found["command"] = changed

    return damage


def separate_decode_deployment(graph: Emitted) -> None:
    """Create two Deployments of two GPUs each."""
    whole = copy.deepcopy(graph.props("Deployment", CELL))
    for props, gone in ((graph.props("Deployment", CELL), "decode"), (whole, "prefill")):
        pod = props["spec"]["template"]["spec"]
        pod["containers"] = [entry for entry in pod["containers"] if entry["name"] not in {gone, "gpus"}]
        limits(pod["containers"][0], gpu="2")
        variable(pod["containers"][0], "CUDA_VISIBLE_DEVICES", "0,1")
    whole["metadata"]["name"] = f"{CELL}-decode"
    graph.add("kubernetes:apps/v1:Deployment", f"{CELL}-decode", whole)


def whisper_with_lmcache(graph: Emitted) -> None:
    engine = graph.container("qwen-a100")
    engine["command"][2] = WHISPER
    flag(engine, "--max-model-len", "448")
    flag(engine, "--kv-transfer-config", LMCACHE)


def one_image(graph: Emitted) -> None:
    graph.container("speech")["image"] = graph.container("voxtral")["image"]


def quantity(graph: Emitted) -> None:
    limits(graph.container(CELL, "lmcache"), memory="400Gb")


def load_balancer(graph: Emitted) -> None:
    graph.props("Service", "router")["spec"]["type"] = "LoadBalancer"


def privileged(graph: Emitted) -> None:
    graph.container(CELL, "prefill")["securityContext"]["privileged"] = True


def host_memory(graph: Emitted) -> None:
    graph.pod(CELL)["volumes"].append({"name": "host", "hostPath": {"path": "/var/lib"}})


def host_ipc(graph: Emitted) -> None:
    graph.pod(CELL)["hostIPC"] = True


def image(address: str) -> Damage:
    return lambda graph: graph.container("voxtral").update(image=address)


def without_resource(kind: str, name: str) -> Damage:
    return lambda graph: graph.drop(kind, name)


def change_cluster(**props: object) -> Damage:
    return lambda graph: graph.props("ManagedCluster", "cluster").update(props)


def without_tags(graph: Emitted) -> None:
    del graph.props("AgentPool", "cells")["tags"]
    del graph.props("Registry", "registry")["tags"]


def ucx(graph: Emitted) -> None:
    variable(graph.container(CELL, "prefill"), "UCX_TLS", "rc,cuda_ipc,cuda_copy,sm,self,tcp")


def no_probe(graph: Emitted) -> None:
    del graph.container("voxtral")["readinessProbe"]


def short_grace(graph: Emitted) -> None:
    graph.pod("voxtral")["terminationGracePeriodSeconds"] = 600


def scales_nothing(graph: Emitted) -> None:
    graph.props("ScaledObject", "speech-scaling")["spec"]["scaleTargetRef"]["name"] = "speach"


def token_without_reader(graph: Emitted) -> None:
    graph.drop("SecretProviderClass", "hub-secrets")


def public_machine(graph: Emitted) -> None:
    configuration = graph.props("NetworkInterface", "jump")["ipConfigurations"][0]
    configuration["publicIPAddress"] = {"id": "/subscriptions/s/resourceGroups/r/x"}


def request_above_limit(graph: Emitted) -> None:
    graph.container("voxtral")["resources"]["requests"]["memory"] = "900Gi"


def unrestricted_callers(graph: Emitted) -> None:
    graph.props("NetworkPolicy", "voice-router-from-client")["spec"]["ingress"][0]["from"] = []


def plain_text_token(graph: Emitted) -> None:
    variable(graph.container("voxtral"), "HF_TOKEN", "hf_abc")


def subscription_owner(graph: Emitted) -> None:
    props = graph.props("RoleAssignment", "keda-reads-metrics")
    props["scope"] = "/subscriptions/00000000-0000-0000-0000-000000000001"


def no_pool(graph: Emitted) -> None:
    del graph.pod("speech")["nodeSelector"]


def unknown_model(graph: Emitted) -> None:
    graph.container("qwen-a100")["command"][2] = "Qwen/Qwen9-900B"


def open_network(graph: Emitted) -> None:
    group = next(r for r in graph.resources if r.type.endswith(":NetworkSecurityGroup"))
    rule = {"direction": "Inbound", "access": "Allow", "sourceAddressPrefix": "Internet", "destinationPortRange": "22"}
    assert isinstance(group.props.raw, dict)
    group.props.raw.setdefault("securityRules", []).append(rule)


def system_pool_with_gpus(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["agentPoolProfiles"][0]["vmSize"] = "Standard_NC24ads_A100_v4"


def large_disks(graph: Emitted) -> None:
    for volume in graph.pod(CELL)["volumes"]:
        if volume["name"] == "nvme":
            volume["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] = "4000Gi"


def engines_of_few_cpus(graph: Emitted) -> None:
    for name in ("prefill", "decode"):
        limits(graph.container(CELL, name), cpu="34")


def single_gpu_service_on_paired_pool(graph: Emitted) -> None:
    graph.pod("qwen-a100")["nodeSelector"][POOL_LABEL] = "h100"


def speech_on_vllm(graph: Emitted) -> None:
    graph.container("speech")["command"].remove("--omni")


def unrequested_callers(graph: Emitted) -> None:
    rule = {"direction": "Inbound", "access": "Allow", "sourceAddressPrefix": "Internet", "protocol": "Udp",
            "destinationPortRange": "5004"}  # fmt: skip
    graph.props("NetworkSecurityGroup", "nodes")["securityRules"].append(rule)


def edge_without_tls(graph: Emitted) -> None:
    graph.add(
        "azure-native:network:ApplicationGateway", "edge", {"httpListeners": [{"name": "api", "protocol": "Http"}]}
    )


def state_with_keys(graph: Emitted) -> None:
    graph.add("azure-native:redisenterprise:Database", "state", {"clientProtocol": "Encrypted"})


def shared_keys(graph: Emitted) -> None:
    account = {"location": "southcentralus", "publicNetworkAccess": "Disabled", "allowSharedKeyAccess": True}
    graph.add("azure-native:storage:StorageAccount", "files", account)


MUTATIONS = (
    Mutation("misspelt VM size", CLUSTER, pool("cells", vmSize="Standard_NC96ads_A100_v5"), ("vm-size-is-known",),
             ("Standard_NC96ads_A100_v5", "did you mean Standard_NC96ads_A100_v4?")),
    Mutation("single-numa-node with TP=2, in the pool", CLUSTER, kubelet("h100", "single-numa-node"),
             ("numa-admits-pods",), ("single-numa-node", "2 GPUs")),
    Mutation("single-numa-node with TP=2, at the pod", WORKLOADS, nothing, ("numa-admits-pods",),
             ("2 GPUs lie on 2 of 2 NUMA nodes",), {H100_POLICY: "single-numa-node"}),
    Mutation("restricted with 20 CPUs", WORKLOADS, cpus, ("numa-admits-pods",), ("20 CPUs on 1",),
             {H100_POLICY: "restricted"}),
    Mutation("TP=3 on two GPUs", WORKLOADS, flags("voxtral", "engine", tensor_parallel_size="3"),
             ("engine-has-its-gpus",), ("requests 2 GPU(s), but its tensor parallelism is 3",)),
    Mutation("TP=3 on three GPUs", WORKLOADS, three_gpus_of_a_cell, ("engine-on-one-nvlink-domain",),
             ("TP 3", "at most 2 of its 4")),
    Mutation("TP=4 across pairs", WORKLOADS, four_gpus_across_pairs, ("engine-on-one-nvlink-domain",),
             ("TP 4", "at most 2 of its 4")),
    Mutation("TP=2 across pairs, in a cell", WORKLOADS,
             lambda graph: variable(graph.container(CELL, "prefill"), "CUDA_VISIBLE_DEVICES", "0,2,1,3"),
             ("engine-on-one-nvlink-domain", "engine-has-its-gpus"), ("(0, 2)",)),
    Mutation("2 x 200 GB pools on a 440 GB node", WORKLOADS, two_large_pools, ("node-memory-holds-pods",), ("440 GiB",),
             {"azure.pools.0.vm_size": "Standard_NC48ads_A100_v4"}),
    Mutation("the runtime's 64 MiB of shared memory", WORKLOADS, no_shared_memory, ("shared-memory-is-enough",),
             ("64 MiB", "8 GiB")),
    Mutation("64 MiB of shared memory", WORKLOADS, small_shared_memory, ("shared-memory-is-enough",), ("has 64 MiB",)),
    Mutation("missing toleration", WORKLOADS, no_toleration, ("taints-are-tolerated",), ("voice-serve/pool=cells",)),
    Mutation("one-GPU pod in the cell pool", WORKLOADS, one_gpu_in_cells, ("cell-pool-is-exclusive",),
             ("qwen-a100 uses 1 GPU(s)",)),
    Mutation("missing AcrPull", CLUSTER, without_resource("RoleAssignment", "kubelet-pulls-images"),
             ("kubelet-pulls-images",),
             ("AcrPull",)),
    Mutation("kv_both on NIXL", WORKLOADS, replace_argument(CELL, "decode", '"kv_consumer"', '"kv_both"'),
             ("nixl-has-two-sides",), ("kv_both",)),
    Mutation("FP8 KV cache on an A100", WORKLOADS, flags("qwen-a100", "engine", kv_cache_dtype="fp8"),
             ("kv-type-supported",), ("8.9", "A100-80 has 8.0")),
    Mutation("prefill and decode in separate pods", WORKLOADS, separate_decode_deployment,
             ("prefill-and-decode-share-a-pod",),
             ("has no RDMA", "TCP")),
    Mutation("Whisper with LMCache", WORKLOADS, whisper_with_lmcache, ("kv-transfer-supported",), ("cross-attention",)),
    Mutation("vLLM and vLLM-Omni in one image", WORKLOADS, one_image, ("engines-have-their-image",), ("asr-vllm",)),
    Mutation("text to speech sold without a licence", WORKLOADS, nothing, ("licence-allows-use",), ("CC-BY-NC-4.0",),
             {"azure.commercial": True}),
    Mutation("quantity 400Gb", WORKLOADS, quantity, ("quantities-parse",), ('"400Gb" is no quantity', "400Gi")),
    # Beyond the list
    Mutation("load balancer", WORKLOADS, load_balancer, ("no-load-balancer-without-reason",), ("LoadBalancer",)),
    Mutation("privileged engine", WORKLOADS, privileged, ("no-host-access",), ("prefill privileged",)),
    Mutation("the host's shared memory", WORKLOADS, host_memory, ("no-host-access",), ("/var/lib of its host",)),
    Mutation("the host's IPC", WORKLOADS, host_ipc, ("no-host-access",), ("hostIPC",)),
    Mutation("image by tag", WORKLOADS, image("voice.azurecr.io/asr-vllm:latest"), ("images-are-pinned",), ("latest",)),
    Mutation("image of another registry", WORKLOADS, image(f"other.azurecr.io/asr-vllm@sha256:{'a' * 64}"),
             ("images-are-pinned",), ("other.azurecr.io",)),
    Mutation("no disruption budget", WORKLOADS, without_resource("PodDisruptionBudget", "voxtral"),
             ("replicated-pods-have-budgets",), ("voxtral",)),
    Mutation("no readiness probe", WORKLOADS, no_probe, ("engines-have-probes",), ("readinessProbe",)),
    Mutation("killed while it drains", WORKLOADS, short_grace, ("grace-exceeds-drain",), ("38 + 585 s", "600 s")),
    Mutation("ScaledObject without a target", WORKLOADS, scales_nothing, ("scaling-has-a-target",), ("voice/speach",)),
    Mutation("no default refusal", WORKLOADS, without_resource("NetworkPolicy", "voice-refuse-everything"),
             ("namespaces-refuse-by-default",), ('"voice"',)),
    Mutation("RDMA on a size without", WORKLOADS, ucx, ("rdma-is-there",), ("rc", "Standard_NC96ads_A100_v4")),
    Mutation("reservation of a size without", CLUSTER, pool("h100", capacityReservationGroupID="/subscriptions/s/c"),
             ("purchase-supported",), ("Standard_NC80adis_H100_v5 does not support on-demand",)),
    Mutation("size that the region has not", CLUSTER, change_cluster(location="westindia"), ("vm-size-in-location",),
             ("westus2",)),
    Mutation("GPU pool without a taint", CLUSTER, pool("a100", nodeTaints=[]), ("gpu-pool-is-tainted",), ("a100",)),
    Mutation("local accounts", CLUSTER, change_cluster(disableLocalAccounts=False), ("sign-in-is-entra",),
             ("local accounts",)),
    Mutation("disks in the clear", CLUSTER, pool("cells", enableEncryptionAtHost=False), ("data-is-closed",),
             ("cells",)),
    Mutation("public registry", CLUSTER,
             lambda graph: graph.props("Registry", "registry").update(publicNetworkAccess="Enabled"),
             ("data-is-closed",), ("Enabled",)),
    Mutation("open to the internet", CLUSTER, open_network, ("network-is-closed",), ("Internet", "22")),
    Mutation("way in for callers where there are none", CLUSTER, unrequested_callers, ("network-is-closed",),
             ("5004",)),
    Mutation("edge without a firewall, in the clear", CLUSTER, edge_without_tls, ("edge-is-guarded",),
             ("no web application firewall", "without TLS")),
    Mutation("state store that takes keys", CLUSTER, state_with_keys, ("state-store-knows-its-users",),
             ("access keys",)),
    Mutation("request above its limit", WORKLOADS, request_above_limit, ("requests-below-limits",), ("900Gi",)),
    Mutation("network policy for everybody", WORKLOADS, unrestricted_callers, ("policies-name-their-peers",),
             ("any source",)),
    Mutation("secret in the environment", WORKLOADS, plain_text_token, ("no-secrets-in-environment",), ("HF_TOKEN",)),
    Mutation("role on the whole subscription", CLUSTER, subscription_owner, ("roles-are-narrow",), ("subscription",)),
    Mutation("GPU pod without a pool", WORKLOADS, no_pool, ("gpu-pod-names-its-pool",), ("selects no pool",)),
    Mutation("model that nobody knows", WORKLOADS, unknown_model, ("model-is-known",), ("Qwen9-900B",)),
    Mutation("CPUs that are aligned and not pinned", CLUSTER,
             pool("cells", kubeletConfig={"cpuManagerPolicy": "none", "topologyManagerPolicy": "restricted"}),
             ("kubelet-policies-align",), ("static CPU manager",)),
    Mutation("GPUs cut with MIG", CLUSTER, pool("a100", gpuInstanceProfile="MIG1g"), ("pool-fits-its-size",), ("MIG",)),
    Mutation("GPUs in the system pool", CLUSTER, system_pool_with_gpus, ("pools-have-their-gpus",), ("1 GPU(s)",)),
    Mutation("API server for everybody", CLUSTER,
             change_cluster(apiServerAccessProfile={"enablePrivateCluster": False,
                            "authorizedIPRanges": ["0.0.0.0/0"]}),
             ("api-server-is-closed",), ("0.0.0.0/0",)),
    Mutation("heads that do not divide", WORKLOADS, flags("voxtral", "engine", tensor_parallel_size="3"),
             ("engine-splits-model",), ("TP 3",)),
    Mutation("more CPUs than the node has", WORKLOADS, lambda graph: limits(graph.container("voxtral"), cpu="90"),
             ("node-cpus-hold-pods",), ("90 CPUs", "of 80")),
    Mutation("more NVMe than the node has", WORKLOADS, large_disks, ("nvme-holds-kv",), ("4000.0 GiB", "3576")),
    # 36 CPUs only fit the two NUMA nodes of the engine; 34 would also fit nodes of both engines.
    Mutation("engine pinned elsewhere than it is bound", WORKLOADS, engines_of_few_cpus,
             ("cell-engines-beside-their-gpus",), ("34 and 34 CPUs",)),
    Mutation("cell on one NVLink domain", WORKLOADS, nothing, ("cell-has-two-domains",), ("two NVLink pairs",),
             {"azure.pools.0.vm_size": "Standard_ND96isr_H200_v5"}),
    Mutation("one-GPU pod in the pool of pairs", WORKLOADS, single_gpu_service_on_paired_pool, ("pods-get-linked-gpus",
             ),
             ("qwen-a100 uses 1 GPU(s)",)),
    Mutation("speech on vLLM", WORKLOADS, speech_on_vllm, ("engine-serves-model",), ("voxtral-4b-tts",)),
    Mutation("context beyond the model's", WORKLOADS, flags("qwen-a100", "engine", max_model_len="99999"),
             ("context-fits-model",), ("99999",)),
    Mutation("storage account with shared keys", CLUSTER, shared_keys, ("data-is-closed",), ("allowSharedKeyAccess",)),
    Mutation("token that no pod presents", WORKLOADS, token_without_reader, ("references-resolve",),
             ("SecretProviderClass hub-secrets",)),
    Mutation("private API server that is not reachable", CLUSTER, without_resource("BastionHost", "bastion"),
             ("cluster-reachable-by-operators",), ("cannot be reached",)),
    Mutation("jump host with a public address", CLUSTER, public_machine, ("machines-are-inside",), ("public address",)),
    Mutation("no tags", CLUSTER, without_tags, ("resources-are-tagged",), ("registry has no tag deployment",)),
    Mutation("vLLM on a node image whose driver is too old", WORKLOADS, nothing, ("driver-runs-engine",),
             ("GRID 570.211.01", "R580"), {"azure.pools.3.vm_size": "Standard_NV36ads_A10_v5"}),
)  # fmt: skip
