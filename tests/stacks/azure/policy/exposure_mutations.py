"""Mistakes in network peers that allow the whole internet, by one range or by several."""

from tests.stacks.azure.policy.graphs import CALLERS, CLUSTER, WORKLOADS, Damage, Emitted, Mutation
from tests.stacks.azure.policy.mutations import change_cluster

PEERS, API, CLOSED = ("policies-name-their-peers",), ("api-server-is-closed",), ("network-is-closed",)
FILES = ("firewalls-pass-files",)
HALVES = ("0.0.0.0/1", "128.0.0.0/1")


def peers(policy: str, direction: str, *to: dict[str, object]) -> Damage:
    """Replace the peers of a network policy."""

    def damage(graph: Emitted) -> None:
        side = "from" if direction == "ingress" else "to"
        graph.props("NetworkPolicy", policy)["spec"][direction][0][side] = list(to)

    return damage


def blocks(*ranges: str) -> tuple[dict[str, object], ...]:
    return tuple({"ipBlock": {"cidr": cidr}} for cidr in ranges)


def half_in_each(graph: Emitted) -> None:
    """Open one half of the internet in each of two policies of the same pods."""
    peers("voice-engine-from-router", "ingress", *blocks(HALVES[0]))(graph)
    peers("voice-engine-from-monitoring", "ingress", *blocks(HALVES[1]))(graph)


def more_ports(graph: Emitted) -> None:
    """Open SSH to the whole internet for pods that may fetch models."""
    ports = graph.props("NetworkPolicy", "voice-model-fetch-to-internet")["spec"]["egress"][0]["ports"]
    ports.append({"port": 22, "protocol": "TCP"})


def halves_of_ssh(graph: Emitted) -> None:
    """Allow each half of the internet by a separate rule."""
    rule = {"direction": "Inbound", "access": "Allow", "protocol": "Tcp", "destinationPortRange": "22"}
    rules = graph.props("NetworkSecurityGroup", "nodes")["securityRules"]
    rules += [rule | {"name": half, "sourceAddressPrefix": half} for half in HALVES]


def firewall(**settings: object) -> Damage:
    """Add a web firewall with these settings."""

    def damage(graph: Emitted) -> None:
        graph.add("azure-native:network:WebApplicationFirewallPolicy", "waf", {"policySettings": settings})

    return damage


def api(*ranges: str) -> Damage:
    return change_cluster(apiServerAccessProfile={"enablePrivateCluster": False, "authorizedIPRanges": list(ranges)})


MUTATIONS = (
    Mutation("router that reaches everybody", WORKLOADS,
             peers("voice-router-to-engine", "egress", *blocks("0.0.0.0/0")), PEERS, ("any destination",)),
    Mutation("egress without a peer", WORKLOADS, peers("voice-router-to-engine", "egress"), PEERS,
             ("any destination",)),
    Mutation("egress by two halves", WORKLOADS, peers("voice-router-to-engine", "egress", *blocks(*HALVES)), PEERS,
             HALVES),
    Mutation("egress to every namespace", WORKLOADS,
             peers("voice-router-to-engine", "egress", {"namespaceSelector": {}}), PEERS),
    Mutation("fetching models by any port", WORKLOADS, more_ports, PEERS),
    Mutation("agents that reach everybody's Redis", CALLERS, peers("voice-agent-to-state", "egress",
             *blocks("0.0.0.0/0")), PEERS),
    Mutation("ingress by two halves", WORKLOADS, peers("voice-engine-from-router", "ingress", *blocks(*HALVES)), PEERS,
             HALVES),
    Mutation("ingress by a half in each of two policies", WORKLOADS, half_in_each, PEERS, HALVES),
    Mutation("API server for both halves", CLUSTER, api(*HALVES), API, HALVES),
    Mutation("API server for IPv6", CLUSTER, api("::/0"), API),
    Mutation("API server for a continent", CLUSTER, api("203.0.113.0/24", "8.0.0.0/6"), API),
    Mutation("firewall with Azure's own limit", CLUSTER, firewall(mode="Prevention"), FILES, ("above 100 MB", "134")),
    Mutation("firewall below the promise", CLUSTER,
             firewall(fileUploadLimitInMb=134, requestBodyEnforcement=False), FILES, ("above 134 MB",)),
    Mutation("firewall with Azure's own limit of bodies", CLUSTER, firewall(fileUploadLimitInMb=135), FILES,
             ("request bodies above 128 KB",)),
    Mutation("firewall with Azure's largest limit of bodies", CLUSTER,
             firewall(fileUploadEnforcement=False, maxRequestBodySizeInKb=2000), FILES,
             ("request bodies above 2000 KB",)),
    Mutation("SSH for each half by a rule of its own", CLUSTER, halves_of_ssh, CLOSED, HALVES),
)  # fmt: skip
