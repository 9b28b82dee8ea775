"""Mistakes in permissions on a cluster and in connections between programs.

They were written after all of ``invented_mutations`` were refused. The existing rules already refused those that are
``blind``.
"""

from tests.stacks.azure.policy.graphs import CALLERS, EDGE, WORKLOADS, Damage, Emitted, Mutation, flag
from tests.stacks.azure.policy.invented_mutations import change, set_variable
from tests.stacks.azure.policy.mutations import change_cluster, flags, without_resource
from tests.stacks.azure.policy.reviewed_mutations import no_variable, service

VAULT_READER = "azureKeyvaultSecretsProvider"


def other_secret(graph: Emitted) -> None:
    parameters = graph.props("SecretProviderClass", "hub-secrets")["spec"]["parameters"]
    parameters["objects"] = parameters["objects"].replace("hub-token", "hub-tokens")


def other_vault(graph: Emitted) -> None:
    graph.props("SecretProviderClass", "gateway-secrets")["spec"]["parameters"]["keyvaultName"] = "another"


def no_media_port(graph: Emitted) -> None:
    spec = graph.props("Service", "gateway")["spec"]
    spec["ports"] = [port for port in spec["ports"] if port["port"] != 8083]


def no_sidecar(tier: str, name: str) -> Damage:
    """Remove a sidecar."""

    def damage(graph: Emitted) -> None:
        pod = graph.pod(tier)
        kept = [container for container in pod["initContainers"] if container["name"] != name]
        assert len(kept) < len(pod["initContainers"])
        pod["initContainers"] = kept

    return damage


def hasty(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["autoScalerProfile"]["maxNodeProvisionTime"] = "5m"


def no_vault_reader(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["addonProfiles"][VAULT_READER]["enabled"] = False


def no_policies(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["networkProfile"].update(networkPolicy="none", networkDataplane="azure")


def no_identity(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["securityProfile"]["workloadIdentity"]["enabled"] = False


def slow_scrape(graph: Emitted) -> None:
    for endpoint in graph.props("PodMonitor", "gateway-monitor")["spec"]["podMetricsEndpoints"]:
        endpoint["interval"] = "5m"


def literal_address(graph: Emitted) -> None:
    flag(graph.container("voxtral-pairs", "lmcache"), "--http-host", "127.0.0.1")


PERMISSION_MUTATIONS = (
    Mutation("engine that asks the hub", WORKLOADS, no_variable("voxtral", "HF_HUB_OFFLINE"), ("weights-are-fetched",)),
    Mutation("audio's name that the edge has not", CALLERS, set_variable("gateway", "VOICE_MEDIA_HOST",
             "media.example.org"),
             ("programs-use-edge-names",)),
    Mutation("token that the vault has not", WORKLOADS, other_secret, ("secrets-are-brought",)),
    Mutation("secrets of another vault", CALLERS, other_vault, ("secrets-are-brought",)),
    Mutation("audio's port that the service has not", CALLERS, no_media_port, ("balancers-have-their-ports",)),
    Mutation("audio at another port of the load balancer", CALLERS,
             service("vad", ports=[{"name": "rtp", "port": 5005, "targetPort": 5004, "protocol": "UDP"}]),
             ("balancers-have-their-ports",)),
    Mutation("engine that the router cannot ask", WORKLOADS, flags("voxtral", "engine", port="8010"),
             ("servers-listen-to-others",)),
    Mutation("engine on the loopback", WORKLOADS, flags("voxtral", "engine", host="127.0.0.1"),
             ("servers-listen-to-others",)),
    Mutation("cache that only its pod can ask", CALLERS, literal_address, ("servers-listen-to-others",)),
    Mutation("tier without what fetches its token", CALLERS, no_sidecar("gateway", "state-token"),
             ("tiers-are-themselves",)),
    Mutation("tier without what publishes its metrics", CALLERS, no_sidecar("asr", "telemetry"),
             ("monitors-scrape-pods",)),
    Mutation("scrape that a rate cannot see", CALLERS, slow_scrape, ("monitors-scrape-pods",)),
    Mutation("node given up before its driver is there", EDGE,
             hasty,
             ("cluster-grants-what-runs",)),
    Mutation("cluster without KEDA", EDGE, change_cluster(workloadAutoScalerProfile={"keda": {"enabled": False}}),
             ("cluster-grants-what-runs",)),
    Mutation("cluster without Prometheus", EDGE, change_cluster(azureMonitorProfile={"metrics": {"enabled": False}}),
             ("cluster-grants-what-runs",)),
    Mutation("cluster that reads no vault", EDGE, no_vault_reader, ("cluster-grants-what-runs",)),
    Mutation("cluster without workload identity", EDGE, no_identity, ("cluster-grants-what-runs",)),
    Mutation("cluster that enforces no network policy", EDGE, no_policies, ("cluster-grants-what-runs",)),
    Mutation("local disks that nothing joins", EDGE, without_resource("Extension", "acstor"),
             ("cluster-grants-what-runs",)),
    Mutation("metrics that no rule collects", EDGE,
             without_resource("DataCollectionRuleAssociation", "ContainerInsightsMetricsExtension"),
             ("cluster-grants-what-runs",)),
    Mutation("store whose name does not resolve", EDGE, without_resource("VirtualNetworkLink", "state"),
             ("closed-stores-have-names",)),
    Mutation("registry without its name in the zone", EDGE, without_resource("PrivateDnsZoneGroup", "registry"),
             ("closed-stores-have-names",)),
    Mutation("alerts that reach nobody", EDGE, change("ActionGroup", "operators", emailReceivers=[]),
             ("alerts-reach-operators",)),
    *(
        Mutation(f"metric alert {name}", EDGE, change("MetricAlert", "redis-memory-high", **values),
                 ("alerts-reach-operators",), (says,))
        for name, values, says in (
            ("that notifies no operator", {"actions": []}, "redis-memory-high notifies no"),
            ("that is switched off", {"enabled": False}, "redis-memory-high is disabled"),
            ("on a day", {"windowSize": "P1D"}, "redis-memory-high only fires after P1D"),
        )
    ),
    Mutation("edge of one instance", EDGE,
             change("ApplicationGateway", "edge", autoscaleConfiguration={"minCapacity": 1, "maxCapacity": 1}),
             ("edge-carries-the-load",)),
    Mutation("model cache that nodes cannot reach", EDGE, change("Subnet", "nodes", serviceEndpoints=[]),
             ("cluster-grants-what-runs",)),
)  # fmt: skip


def change_route(old: str, new: str) -> Damage:
    """Change the router's configuration."""

    def damage(graph: Emitted) -> None:
        name = next(r.name for r in graph.resources if r.type.endswith(":ConfigMap") and r.name.startswith("router"))
        data = graph.props("ConfigMap", name)["data"]
        assert old in data["etc.voice.haproxy.cfg"]
        data["etc.voice.haproxy.cfg"] = data["etc.voice.haproxy.cfg"].replace(old, new)

    return damage


ROUTE_MUTATIONS = (
    Mutation("router that looks for a service that is not there", CALLERS,
             change_route("engines-voxtral.voice", "engines-voxtrall.voice"), ("routers-find-engines",)),
    Mutation("router that asks engines on another port", CALLERS, change_route(":8000", ":8001"),
             ("routers-find-engines",)),
    Mutation("router with fewer slots than pods", CALLERS, change_route("pod-speech- 1-8", "pod-speech- 1-4"),
             ("routers-find-engines",)),
    Mutation("engines that no backend has", CALLERS,
             change_route("  server-template pod-voxtral- 1-4 engines-voxtral.voice.svc.cluster.local:8000 "
                    "resolvers cluster init-addr none\n", ""), ("routers-find-engines",)),
    Mutation("model that leads to another model's engines", CALLERS,
             change_route("engines-qwen.voice", "engines-voxtral.voice"), ("routers-find-engines",)),
    Mutation("backend that is not there", CALLERS, change_route("backend qwen3-8b", "backend qwen3"),
             ("routers-find-engines",)),
    Mutation("engines behind one address", CALLERS, service("engines-speech", clusterIP="10.61.0.77"),
             ("routers-find-engines",)),
    Mutation("no service of the engines", CALLERS, without_resource("Service", "engines-qwen"),
             ("routers-find-engines",)),
    Mutation("router that listens elsewhere", CALLERS, change_route("bind :8080", "bind :8081"),
             ("routers-find-engines",)),
    Mutation("router that ends before engines have answered", CALLERS,
             change_route("hard-stop-after 600s", "hard-stop-after 30s"), ("routers-outlive-engines",)),
    Mutation("client that asks for another model's path", CALLERS,
             set_variable("agent", "VOICE_CHAT_URL", "http://router.voice:8080/qwen3/v1"), ("clients-find-their-model",
                          )),
    Mutation("silence that ends long answers", CALLERS, change_route("timeout server 1800s", "timeout server 4s"),
             ("routers-outlive-engines",)),
)  # fmt: skip
"""Change the configuration file of the router."""


def read_from(kind: str) -> Damage:
    """Let an engine take all of its variables from a missing object."""
    return lambda graph: graph.container("voxtral").update(envFrom=[{kind: {"name": "settings"}}])


def pulling(graph: Emitted) -> None:
    graph.pod("voxtral")["imagePullSecrets"] = [{"name": "registry-login"}]


def mount_missing(**source: object) -> Damage:
    """Mount a missing object."""

    def damage(graph: Emitted) -> None:
        graph.pod("voxtral")["volumes"].append({"name": "settings", **source})

    return damage


def missing_variable_source(kind: str) -> Damage:
    """Take one variable from a missing object."""

    def damage(graph: Emitted) -> None:
        source = {kind: {"name": "settings", "key": "token"}}
        graph.container("voxtral")["env"].append({"name": "TOKEN", "valueFrom": source})

    return damage


def bound(graph: Emitted) -> None:
    graph.add(
        "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding",
        "router",
        {
            "metadata": {"name": "router", "namespace": "voice"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "router"},
            "subjects": [{"kind": "ServiceAccount", "name": "routers", "namespace": "voice"}],
        },
    )


REFERENCE_MUTATIONS = (
    *(Mutation(f"variables by {kind} that is not there", WORKLOADS, read_from(kind), ("names-resolve",), ("settings",))
      for kind in ("configMapRef", "secretRef")),
    *(Mutation(f"variable by {kind} that is not there", WORKLOADS, missing_variable_source(kind), ("names-resolve",),
               ("settings",)) for kind in ("configMapKeyRef", "secretKeyRef")),
    Mutation("login of a registry that is not there", WORKLOADS, pulling, ("names-resolve",), ("registry-login",)),
    Mutation("mounted secret that is not there", WORKLOADS, mount_missing(secret={"secretName": "settings"}),
             ("names-resolve",), ("Secret settings",)),
    Mutation("projected config map that is not there", WORKLOADS,
             mount_missing(projected={"sources": [{"configMap": {"name": "settings"}},
                           {"secret": {"name": "settings"}}]}),
             ("names-resolve",), ("ConfigMap settings", "Secret settings")),
    Mutation("item that a config map has not", WORKLOADS,
             mount_missing(configMap={"name": "settings", "items": [{"key": "a", "path": "a"}]}), ("names-resolve",),
             ("ConfigMap settings",)),
    Mutation("role and account that are not there", WORKLOADS, bound, ("names-resolve",),
             ("Role router", "ServiceAccount routers")),
)  # fmt: skip
"""All other references between Kubernetes objects."""
