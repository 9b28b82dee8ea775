"""Mistakes from a review of the rules, which none of them detected.

In each, a resource refers to an element that another resource, a client or a publisher lacks.
"""

import json

from tests.stacks.azure.policy.graphs import (
    CALLERS,
    CLUSTER,
    EDGE,
    WORKLOADS,
    Damage,
    Emitted,
    Json,
    Mutation,
    flag,
)
from tests.stacks.azure.policy.mutations import CELL, flags, pool, without_resource


def query(name: str, old: str, new: str) -> Damage:
    """Replace text in every query of a ScaledObject."""

    def damage(graph: Emitted) -> None:
        triggers = graph.props("ScaledObject", f"{name}-scaling")["spec"]["triggers"]
        before = [trigger["metadata"]["query"] for trigger in triggers]
        for trigger in triggers:
            trigger["metadata"]["query"] = trigger["metadata"]["query"].replace(old, new)
        assert before != [trigger["metadata"]["query"] for trigger in triggers]

    return damage


def expression(group: str, alert: str, old: str, new: str) -> Damage:
    """Replace text in the expression of an alert."""

    def damage(graph: Emitted) -> None:
        rules = graph.props("PrometheusRuleGroup", f"rules-{group}")["rules"]
        (rule,) = (rule for rule in rules if rule.get("alert") == alert)
        assert old in rule["expression"]
        rule["expression"] = rule["expression"].replace(old, new)

    return damage


def one_node_claim(graph: Emitted) -> None:
    graph.props("PersistentVolumeClaim", "model-cache")["spec"]["accessModes"] = ["ReadWriteOnce"]


def startup(name: str, seconds: int, container: str = "engine") -> Damage:
    """Set the start limit of an engine in seconds."""

    def damage(graph: Emitted) -> None:
        graph.container(name, container)["startupProbe"].update(periodSeconds=10, failureThreshold=seconds // 10)

    return damage


def strategy(name: str, **values: object) -> Damage:
    """Replace the strategy of a Deployment."""
    return lambda graph: graph.props("Deployment", name)["spec"].update(strategy=values)


def service(name: str, **values: object) -> Damage:
    """Change the specification of a Service."""
    return lambda graph: graph.props("Service", name)["spec"].update(values)


def database(**values: object) -> Damage:
    """Change the state store's database."""
    return lambda graph: graph.props("Database", "state").update(values)


def backend(name: str, **values: object) -> Damage:
    """Change one of the application gateway's backend settings."""

    def damage(graph: Emitted) -> None:
        settings: list[Json] = graph.props("ApplicationGateway", "edge")["backendHttpSettingsCollection"]
        next(each for each in settings if each["name"] == name).update(values)

    return damage


def no_variable(name: str, variable: str, container: str = "engine") -> Damage:
    """Remove a variable of a container."""

    def damage(graph: Emitted) -> None:
        found = graph.container(name, container)
        kept = [entry for entry in found["env"] if entry["name"] != variable]
        assert len(kept) < len(found["env"])
        found["env"] = kept

    return damage


def large_chunks(graph: Emitted) -> None:
    for server in ("lmcache", "lmcache-decode"):
        flag(graph.container(CELL, server), "--chunk-size", "65536")


REVIEWED_MUTATIONS = (
    Mutation("KEDA query of a metric that is not published", WORKLOADS,
             query("voxtral", "vllm:num_requests_running", "vllm:num_requests_active"),
             ("queries-read-published-metrics",), ("vllm:num_requests_active",)),
    Mutation("gateway may not reach the state store", CALLERS, without_resource("NetworkPolicy",
             "voice-gateway-to-state"),
             ("contract-flows-are-allowed",), ("gateway", "state", "10000")),
    Mutation("model cache for one node", WORKLOADS, one_node_claim, ("claims-serve-their-pods",),
             ("ReadWriteOnce", "model-cache")),
    Mutation("no class of local disks", WORKLOADS, without_resource("StorageClass", "local-nvme"), ("names-resolve",),
             ("StorageClass local-nvme",)),
    Mutation("engine that may start for 60 s", WORKLOADS, startup("voxtral", 60), ("starts-fit-probes",), ("60 s",)),
    Mutation("all replicas replaced at once", WORKLOADS, strategy("voxtral", type="Recreate"),
             ("rollouts-keep-replicas",), ("Recreate",)),
    Mutation("UDP load balancer that hides senders", CALLERS, service("vad", externalTrafficPolicy="Cluster"),
             ("load-balancers-show-senders",), ("vad", "Cluster")),
    Mutation("state store that forgets sessions", EDGE, database(evictionPolicy="AllKeysLRU"),
             ("state-store-keeps-sessions",), ("AllKeysLRU",)),
    Mutation("edge that waits for 4 s", EDGE, backend("api", requestTimeout=4), ("timeouts-nest",), ("4 s",)),
    Mutation("model by another name than clients use", CALLERS,
             flags("speech", "engine", served_model_name="voxtral-tts"), ("clients-find-their-model",),
             ("voxtral-4b-tts",)),
    Mutation("more sequences than the KV cache holds", WORKLOADS, flags("voxtral", "engine", max_num_seqs="4096"),
             ("batches-fit-kv-cache",), ("4096",)),
    Mutation("chunks larger than the shortest prompt", WORKLOADS, large_chunks, ("chunks-fit-prompts",), ("65536",)),
    Mutation("audio decoded to vLLM's own limit", WORKLOADS,
             no_variable("voxtral", "VLLM_MAX_AUDIO_DECODE_DURATION_S"), ("engines-decode-their-audio",), ("600",)),
    Mutation("alert that fires while all is well", CLUSTER,
             expression("cluster", "service-down-router", " < 1", " > 1"), ("alerts-watch-the-bad-side",)),
)  # fmt: skip


def hook(**changes: object) -> Damage:
    """Change the preStop hook of speech; ``None`` removes a value."""

    def damage(graph: Emitted) -> None:
        command = graph.container("speech")["lifecycle"]["preStop"]["exec"]["command"]
        command[-1] = json.dumps({**json.loads(command[-1]), **changes})

    return damage


def no_hook(graph: Emitted) -> None:
    graph.container("speech")["lifecycle"] = {"preStop": {"sleep": {"seconds": 38}}}


def no_program(graph: Emitted) -> None:
    engine = graph.container("speech")
    engine["volumeMounts"] = [mount for mount in engine["volumeMounts"] if "drain_speech" not in mount["mountPath"]]


def budget(name: str, max_unavailable: object) -> Damage:
    """Set how many pods of a workload may be evicted at once."""
    return lambda graph: graph.props("PodDisruptionBudget", name)["spec"].update(maxUnavailable=max_unavailable)


def system_pool_without_drain(graph: Emitted) -> None:
    del graph.props("ManagedCluster", "cluster")["agentPoolProfiles"][0]["upgradeSettings"]["drainTimeoutInMinutes"]


DRAIN_MUTATIONS = (
    Mutation("speech whose hook waits for no request", WORKLOADS, no_hook, ("grace-exceeds-drain",),
             ("no preStop hook that waits",)),
    Mutation("speech killed while it waits", WORKLOADS, hook(limit_s=700), ("grace-exceeds-drain",),
             ("38 + 662 s", "698 s")),
    Mutation("hook that waits for one kind of request", WORKLOADS, hook(gauges=["vllm_omni:num_requests_running"]),
             ("drains-see-requests",), ("num_requests_waiting",)),
    Mutation("hook that reads another port", WORKLOADS, hook(metrics="http://127.0.0.1:8001/metrics"),
             ("drains-see-requests",), ("8001",)),
    Mutation("hook without its program", WORKLOADS, no_program, ("drains-see-requests",), ("drain_speech.py",)),
    Mutation("time-out that vLLM-Omni ignores", WORKLOADS, flags("speech", "engine", shutdown_timeout="585"),
             ("drains-see-requests",), ("ignores",)),
    Mutation("pool drained before a second replica has started", EDGE,
             pool("pairs", upgradeSettings={"drainTimeoutInMinutes": 60}), ("pools-drain-long-enough",),
             ("2 pods of voxtral-pairs", "60 min")),
    Mutation("pool drained within AKS's default", EDGE, pool("pairs", upgradeSettings={}),
             ("pools-drain-long-enough",), ("30 min",)),
    Mutation("system pool drained before its router", CLUSTER, system_pool_without_drain,
             ("pools-drain-long-enough",), ("system", "30 min", "router"),
             {"azure.services.1.drain_timeout_s": 3600}),
    Mutation("CPU pool drained before its calls end", EDGE,
             pool("cpu", upgradeSettings={"drainTimeoutInMinutes": 10}), ("pools-drain-long-enough",),
             ("cpu", "10 min")),
    Mutation("local disks of which the autoscaler does not know", WORKLOADS,
             without_resource("CSIStorageCapacity", "local-nvme-cells"), ("local-disks-are-local",),
             ("voxtral-cells", "adds no node")),
    Mutation("local disks too small in the autoscaler's view", WORKLOADS,
             lambda graph: graph.props("CSIStorageCapacity", "local-nvme-cells").update(capacity="100Gi"),
             ("local-disks-are-local",), ("voxtral-cells", "adds no node")),
    Mutation("budget that keeps the pods of the only node", WORKLOADS, budget("speech", 1), ("budgets-fit-replicas",),
             ("1 of the 8 pods", "h200")),
    Mutation("budget that stops all replicas", CALLERS, budget("voxtral-pairs", "100%"), ("budgets-fit-replicas",),
             ("5 of 4 replicas",)),
)  # fmt: skip
"""Mistakes in the preStop hook of speech, and in the drains of nodes."""
