"""Mistakes of the kinds that a review planted, invented after the rules for those were written.

The existing rules refused those that are ``blind``; the others led to further rules. Their author wrote the rules, so
they give no detection rate.
"""

import yaml

from tests.stacks.azure.policy.graphs import (
    CALLERS,
    EDGE,
    WORKLOADS,
    Damage,
    Emitted,
    Json,
    Mutation,
    flag,
    variable,
)
from tests.stacks.azure.policy.mutations import CELL, flags, pool, without_resource
from tests.stacks.azure.policy.reviewed_mutations import (
    backend,
    database,
    expression,
    no_variable,
    query,
    startup,
    strategy,
)

GATEWAY, AGENT, ASR, VAD = "gateway", "agent", "asr", "vad"


def set_variable(tier: str, name: str, value: str, container: str | None = None) -> Damage:
    """Set a variable of a tier."""
    return lambda graph: variable(graph.container(tier, container or tier), name, value)


def change(kind: str, name: str, **values: object) -> Damage:
    """Change a resource's top level, or its specification if it has one."""

    def changed(graph: Emitted) -> None:
        props = graph.props(kind, name)
        props.get("spec", props).update(values)

    return changed


def secret_key(graph: Emitted) -> None:
    for entry in graph.container(GATEWAY, GATEWAY)["env"]:
        if entry["name"] == "VOICE_TOKEN_KEY":
            entry["valueFrom"]["secretKeyRef"]["key"] = "session-key"


def no_secret_volume(graph: Emitted) -> None:
    pod, container = graph.pod(GATEWAY), graph.container(GATEWAY, GATEWAY)
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "secrets"]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "secrets"]


def other_file(graph: Emitted) -> None:
    data = graph.props("ConfigMap", "state")["data"]
    data["hostname"] = data.pop("host")


def monitor(name: str, **values: object) -> Damage:
    """Change the endpoints of a monitor."""

    def damage(graph: Emitted) -> None:
        for endpoint in graph.props("PodMonitor", f"{name}-monitor")["spec"]["podMetricsEndpoints"]:
            endpoint.update(values)

    return damage


def no_relabelings(graph: Emitted) -> None:
    for endpoint in graph.props("PodMonitor", "engine-monitor")["spec"]["podMetricsEndpoints"]:
        del endpoint["relabelings"]


def other_pool(graph: Emitted) -> None:
    graph.pod(GATEWAY)["nodeSelector"]["voice-serve/pool"] = "cpus"


def no_spot_toleration(graph: Emitted) -> None:
    graph.pod("device-plugin", "DaemonSet")["tolerations"].pop()


def login(graph: Emitted) -> None:
    for trigger in graph.props("ScaledObject", "voxtral-scaling")["spec"]["triggers"]:
        trigger["authenticationRef"]["name"] = "prometheus-login"


def policy(name: str, side: str, **entry: object) -> Damage:
    """Change the only entry of a network policy."""

    def damage(graph: Emitted) -> None:
        graph.props("NetworkPolicy", name)["spec"][side][0].update(entry)

    return damage


def no_security_rule(name: str) -> Damage:
    """Remove a rule of the nodes' security group."""

    def damage(graph: Emitted) -> None:
        group = graph.props("NetworkSecurityGroup", "nodes")
        kept = [rule for rule in group["securityRules"] if rule["name"] != name]
        assert len(kept) < len(group["securityRules"])
        group["securityRules"] = kept

    return damage


def refusing_first(graph: Emitted) -> None:
    for rule in graph.props("NetworkSecurityGroup", "nodes")["securityRules"]:
        if rule["name"] == "nothing-else-in":
            rule["priority"] = 150


def probe(tier: str, kind: str, container: str | None = None, **values: object) -> Damage:
    """Change a probe."""
    return lambda graph: graph.container(tier, container or tier)[kind].update(values)


def route(name: str, part: str, old: str, new: str) -> Damage:
    """Route a host name of the edge to another backend."""

    def damage(graph: Emitted) -> None:
        rules: list[Json] = graph.props("ApplicationGateway", "edge")["requestRoutingRules"]
        (rule,) = (rule for rule in rules if rule["name"] == name)
        assert old in rule[part]["id"]
        rule[part]["id"] = rule[part]["id"].replace(old, new)

    return damage


def other_backend(graph: Emitted) -> None:
    pools: list[Json] = graph.props("ApplicationGateway", "edge")["backendAddressPools"]
    pools[0]["backendAddresses"] = [{"ipAddress": "10.60.127.252"}]


def address(graph: Emitted) -> None:
    annotations = graph.props("Service", AGENT)["metadata"]["annotations"]
    annotations["service.beta.kubernetes.io/azure-load-balancer-ipv4"] = "10.60.127.250"


def threshold(name: str, trigger: str, value: str) -> Damage:
    """Change the threshold of a trigger."""

    def damage(graph: Emitted) -> None:
        for each in graph.props("ScaledObject", f"{name}-scaling")["spec"]["triggers"]:
            if each["name"] == trigger:
                each["metadata"]["threshold"] = value

    return damage


def dropped_metric(graph: Emitted) -> None:
    data = graph.props("ConfigMap", "ama-metrics-settings-configmap")["data"]
    data["cluster-metrics"] = data["cluster-metrics"].replace("|kube_job_status_failed", "")


def dashboard(old: str, new: str) -> Damage:
    """Change the queries of the dashboard of services."""

    def damage(graph: Emitted) -> None:
        properties = graph.props("DashboardDefinition", "dashboard-services")["properties"]
        assert old in properties["serializedData"]
        properties["serializedData"] = properties["serializedData"].replace(old, new)

    return damage


def alert(group: str, name: str, **values: object) -> Damage:
    """Change an alert."""

    def damage(graph: Emitted) -> None:
        for rule in graph.props("PrometheusRuleGroup", f"rules-{group}")["rules"]:
            if rule.get("alert") == name:
                rule.update(values)

    return damage


def wide_stages(graph: Emitted) -> None:
    name = next(r.name for r in graph.resources if r.type.endswith(":ConfigMap") and r.name.startswith("speech"))
    data = graph.props("ConfigMap", name)["data"]
    deployed = yaml.safe_load(data["etc.voice.omni.yaml"])
    deployed["stages"][0]["max_num_seqs"] = 256
    data["etc.voice.omni.yaml"] = yaml.safe_dump(deployed)


def other_user(tier: str, of: str) -> Damage:
    """Let a tier use another tier's user of the state store."""

    def damage(graph: Emitted) -> None:
        others = graph.container(of, of)["env"]
        user = next(entry["value"] for entry in others if entry["name"] == "VOICE_VALKEY_USER")
        variable(graph.container(tier, tier), "VOICE_VALKEY_USER", user)

    return damage


def fetch(old: str, new: str) -> Damage:
    """Change what the job of Qwen's weights fetches, and the target."""

    def damage(graph: Emitted) -> None:
        job = next(r.name for r in graph.resources if r.type.endswith(":Job") and "qwen" in r.name)
        container = graph.container(job, "model-fetch", "Job")
        container["command"] = [part.replace(old, new) for part in container["command"]]
        for entry in container["env"]:
            entry["value"] = entry["value"].replace(old, new)

    return damage


def audience(graph: Emitted) -> None:
    for volume in graph.pod(VAD)["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            source["serviceAccountToken"]["audience"] = "api://AzureAD"


def wrong_spread_label(graph: Emitted) -> None:
    for each in graph.pod(ASR)["topologySpreadConstraints"]:
        each["labelSelector"]["matchLabels"] = {"voice-serve/component": "asrs"}


def fallback(graph: Emitted) -> None:
    graph.props("ScaledObject", "voxtral-scaling")["spec"]["fallback"]["replicas"] = 0


def never_ready(graph: Emitted) -> None:
    behavior = graph.props("ScaledObject", "gateway-scaling")["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    behavior["behavior"]["scaleUp"]["selectPolicy"] = "Disabled"


INVENTED_MUTATIONS = (
    # Names
    Mutation("URL of a service that is not there", CALLERS,
             set_variable(AGENT, "VOICE_CHAT_URL", "http://routers.voice:8080/v1"), ("urls-lead-to-services",),
                          blind=True),
    Mutation("URL of a port that the service has not", CALLERS,
             set_variable(AGENT, "VOICE_GATEWAY_URL", "http://gateway.voice:8090"), ("urls-lead-to-services",),
                          blind=True),
    Mutation("no service before the router", CALLERS, without_resource("Service", "router"),
             ("urls-lead-to-services",), blind=True),
    Mutation("key that the secret has not", CALLERS, secret_key, ("names-resolve",), blind=True),
    Mutation("secret whose class no pod mounts", CALLERS, no_secret_volume, ("secrets-are-brought",), blind=True),
    Mutation("no config map of the state store", CALLERS, without_resource("ConfigMap", "state"),
             ("references-resolve",), blind=True),
    Mutation("file that the config map has not", CALLERS, other_file, ("files-are-mounted",), blind=True),
    Mutation("monitor of a port that no pod names", CALLERS, monitor(GATEWAY, port="prometheus"),
             ("monitors-scrape-pods",), blind=True),
    Mutation("monitor of no pod", CALLERS,
             change("PodMonitor", "asr-monitor", selector={"matchLabels": {"voice-serve/component": "asrs"}}),
             ("monitors-scrape-pods",), blind=True),
    Mutation("series without their service", WORKLOADS, no_relabelings, ("monitors-scrape-pods",), blind=True),
    Mutation("tier on a pool that is not there", CALLERS, other_pool, ("pods-have-a-pool",), blind=True),
    Mutation("device plugin that spot nodes refuse", WORKLOADS, no_spot_toleration, ("pods-have-a-pool",), blind=True),
    Mutation("scaling that signs in as nobody", WORKLOADS, login, ("names-resolve",), blind=True),
    Mutation("weights fetched to another folder", WORKLOADS, fetch("/models/huggingface", "/models/hub"),
             ("weights-are-fetched",)),
    Mutation("weights of another model fetched", WORKLOADS, fetch("Qwen3-8B-FP8", "Qwen3-8B"),
             ("weights-are-fetched",)),
    Mutation("tier that is another user of the store", CALLERS, other_user(ASR, VAD), ("tiers-are-themselves",)),
    Mutation("token for another audience", CALLERS, audience, ("tiers-are-themselves",)),
    Mutation("spread over pods that are not there", CALLERS, wrong_spread_label, ("spreads-select-their-pods",)),
    # Ports and flows
    Mutation("tier without the cluster's DNS over UDP", CALLERS,
             policy("voice-gateway-to-dns", "egress", ports=[{"port": 53, "protocol": "TCP"}]),
             ("contract-flows-are-allowed",), blind=True),
    Mutation("audio let in by TCP", CALLERS,
             policy("voice-vad-from-gateway", "ingress", ports=[{"port": 5004, "protocol": "TCP"}]),
             ("contract-flows-are-allowed",), blind=True),
    Mutation("state store looked for in another range", CALLERS,
             policy("voice-asr-to-state", "egress", to=[{"ipBlock": {"cidr": "10.60.200.0/26"}}]),
             ("contract-flows-are-allowed",), blind=True),
    Mutation("metrics read from another namespace", WORKLOADS,
             policy("voice-engine-from-monitoring", "ingress", **{"from": [{
                 "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                 "podSelector": {"matchLabels": {"rsName": "ama-metrics"}}}]}),
             ("contract-flows-are-allowed",), blind=True),
    Mutation("no audio from the internet", EDGE, no_security_rule("callers-to-rtp"),
             ("network-lets-callers-in",), blind=True),
    Mutation("no question of the load balancer", EDGE, no_security_rule("load-balancer-to-32081"),
             ("network-lets-callers-in",)),
    Mutation("refusal before what it lets in", EDGE, refusing_first, ("network-lets-callers-in",)),
    Mutation("gateway that listens elsewhere", CALLERS, set_variable(GATEWAY, "VOICE_HTTP_PORT", "9000"),
             ("programs-use-contract-ports",)),
    Mutation("state store asked on another port", CALLERS, set_variable(VAD, "VOICE_VALKEY_PORT", "6380"),
             ("programs-use-contract-ports",)),
    Mutation("chunks sent to another port", CALLERS, set_variable(VAD, "VOICE_CHUNK_PORT", "5007"),
             ("programs-use-contract-ports",)),
    Mutation("audio sent to another port", CALLERS, set_variable(GATEWAY, "VOICE_RTP_PORT", "5006"),
             ("programs-use-contract-ports",)),
    # Time
    Mutation("engine that may start for ten minutes", WORKLOADS, startup("voxtral", 600),
             ("starts-fit-probes",), blind=True),
    Mutation("speech that may start for a quarter of an hour", WORKLOADS, startup("speech", 900),
             ("starts-fit-probes",), blind=True),
    Mutation("dead gateways kept for an hour", CALLERS, probe(GATEWAY, "readinessProbe", periodSeconds=600),
             ("dead-pods-leave-in-time",)),
    Mutation("rollout that stops all", CALLERS,
             strategy(GATEWAY, type="RollingUpdate", rollingUpdate={"maxUnavailable": "100%", "maxSurge": 0}),
             ("rollouts-keep-replicas",), blind=True),
    Mutation("rollout that never ends", CALLERS,
             strategy(ASR, type="RollingUpdate", rollingUpdate={"maxUnavailable": 0, "maxSurge": 0}),
             ("rollouts-keep-replicas",), blind=True),
    Mutation("budget that empties no node", CALLERS,
             lambda graph: graph.props("PodDisruptionBudget", VAD)["spec"].update(minAvailable=2),
             ("budgets-fit-replicas",), blind=True),
    Mutation("pool emptied within a minute", EDGE, pool("pairs", upgradeSettings={"drainTimeoutInMinutes": 1}),
             ("pools-drain-long-enough",), blind=True),
    Mutation("router killed before its engines", WORKLOADS,
             lambda graph: graph.pod("router").update(terminationGracePeriodSeconds=60), ("routers-outlive-engines",)),
    Mutation("edge that hangs up on agents", EDGE, backend(AGENT, requestTimeout=100), ("timeouts-nest",), blind=True),
    Mutation("agents more silent than the edge allows", CALLERS, set_variable(AGENT, "VOICE_IDLE_TIMEOUT_S", "400"),
             ("timeouts-nest",), blind=True),
    # Edge
    Mutation("audio's name leads to the session API", EDGE, route("media", "backendHttpSettings", "/media", "/api"),
             ("edge-parts-exist",), blind=True),
    Mutation("edge that asks a probe it has not", EDGE, route("api", "httpListener", "/api", "/apis"),
             ("edge-parts-exist",), blind=True),
    Mutation("edge that leads to another address", EDGE, other_backend, ("edge-parts-exist",), blind=True),
    Mutation("load balancer at another address", CALLERS, address, ("balancers-have-their-address",), blind=True),
    # Telemetry
    Mutation("share compared as percent", EDGE,
             expression("voxtral", "service-saturated-voxtral-kv-cache", "> 0.95", "> 95"),
             ("alerts-watch-the-bad-side",), blind=True),
    Mutation("milliseconds compared as seconds", EDGE,
             expression("callers", "first-transcript-slow", "> 1000", "> 1"),
             ("alerts-watch-the-bad-side",), blind=True),
    Mutation("seconds compared as milliseconds", EDGE, expression("agents", "turn-slow", "> 2.5", "> 2500"),
             ("alerts-watch-the-bad-side",)),
    Mutation("free slots alerted on when there are some", EDGE,
             expression("callers", "asr-slots-exhausted", " < 1", " > 1"), ("alerts-watch-the-bad-side",), blind=True),
    Mutation("alert on a Deployment that is not there", EDGE,
             expression("voxtral", "service-down-voxtral", '"voxtral"', '"voxtrall"'),
             ("queries-read-published-metrics",), blind=True),
    Mutation("alert for a day", EDGE, alert("cluster", "service-down-router", **{"for": "P1D"}),
             ("alerts-reach-operators",), blind=True),
    Mutation("alert that tells nobody", EDGE, alert("cluster", "service-down-router", actions=[]),
             ("alerts-reach-operators",), blind=True),
    Mutation("scaling at 80 of a share", WORKLOADS, threshold("voxtral", "kv-cache", "80"),
             ("scaling-thresholds-are-reachable",), blind=True),
    Mutation("scaling of one service by another", WORKLOADS,
             query("voxtral", 'voice_service="voxtral"', 'voice_service="speech"'),
             ("scaling-reads-its-target",), blind=True),
    Mutation("speech scaled by its stages", WORKLOADS, query("speech", "vllm_omni:num", "vllm:num"),
             ("queries-read-published-metrics",)),
    Mutation("scaling that never adds a pod", CALLERS, never_ready, ("scaling-can-grow",)),
    Mutation("scaling that falls back to nothing", WORKLOADS, fallback, ("scaling-can-grow",)),
    Mutation("metric that the agent drops", WORKLOADS, dropped_metric, ("cluster-metrics-are-kept",), blind=True),
    Mutation("dashboard of a metric that is not published", EDGE,
             dashboard("vllm:num_requests_waiting", "vllm:num_requests_queued"),
             ("queries-read-published-metrics",), blind=True),
    Mutation("scaling that may not read metrics", EDGE, without_resource("RoleAssignment", "keda-reads-metrics"),
             ("identities-may-work",), blind=True),
    Mutation("tier that the store does not know", EDGE, without_resource("AccessPolicyAssignment", "asr-uses-state"),
             ("identities-may-work",), blind=True),
    Mutation("tier without a trusted account", EDGE, without_resource("FederatedIdentityCredential", "gateway-pods"),
             ("identities-may-work",), blind=True),
    # Amounts
    Mutation("fewer requests admitted than run", WORKLOADS, flags("voxtral", "engine", max_num_queued_reqs="100"),
             ("batches-fit-kv-cache",), blind=True),
    Mutation("speech in batches that nobody measured", WORKLOADS, wide_stages, ("batches-fit-kv-cache",), blind=True),
    Mutation("chunks of half a block", WORKLOADS,
             lambda graph: flag(graph.container(CELL, "lmcache"), "--chunk-size", "200"),
             ("chunks-fit-prompts",), blind=True),
    Mutation("decoded bytes of vLLM's own limit", WORKLOADS, no_variable("voxtral", "VLLM_MAX_AUDIO_DECODE_BYTES"),
             ("engines-decode-their-audio",), blind=True),
    Mutation("gateways full before they are scaled", CALLERS, set_variable(GATEWAY, "VOICE_MAX_CONNECTIONS", "100"),
             ("scaling-thresholds-are-reachable",), blind=True),
    Mutation("agents full before they are scaled", CALLERS, set_variable(AGENT, "VOICE_CONVERSATIONS", "4"),
             ("scaling-thresholds-are-reachable",), blind=True),
    Mutation("model cache on disks of one node", WORKLOADS,
             lambda graph: graph.props("StorageClass", "model-cache").update(provisioner="disk.csi.azure.com"),
             ("claims-serve-their-pods",), blind=True),
    Mutation("local disks bound before their node is known", WORKLOADS,
             lambda graph: graph.props("StorageClass", "local-nvme").update(volumeBindingMode="Immediate"),
             ("local-disks-are-local",), blind=True),
    Mutation("agents that speak by a model of text", CALLERS, set_variable(AGENT, "VOICE_SPEECH_MODEL", "qwen3-8b"),
             ("clients-find-their-model",), blind=True),
    Mutation("transcription by a model that is not served", CALLERS, set_variable(ASR, "VOICE_VLLM_MODEL",
             "voxtral-mini"),
             ("clients-find-their-model",), blind=True),
    Mutation("state store in shards", EDGE, database(clusteringPolicy="OSSCluster"),
             ("state-store-keeps-sessions",), blind=True),
    Mutation("state store on one machine", EDGE, change("RedisEnterprise", "state", highAvailability="Disabled"),
             ("state-store-keeps-sessions",)),
)  # fmt: skip
