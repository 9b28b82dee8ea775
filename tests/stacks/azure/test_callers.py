"""Caller tiers on Azure: network access, limits, variables, and authentication to the state store."""

import re
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from tests.blueprint.documents import ABSENT, Edits, load_text
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import DIGESTS, GIB, Manifest, manifests, pod, pods, quantity, workloads
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_agent.settings import AgentSettings
from voice_blueprint.azure.contract import (
    AGENT_FLOWS,
    AGENT_NODE_HEALTH,
    CALLER_FLOWS,
    COMPONENT_LABEL,
    GATEWAY_HEALTH,
    REDIS,
    VAD_NODE_HEALTH,
    Component,
)
from voice_blueprint.azure.names import SERVICE_ACCOUNT_BY_TIER
from voice_blueprint.azure.ranges import (
    calculate_agent_address,
    calculate_gateway_address,
    calculate_infrastructure_ranges,
    calculate_nodes_range,
)
from voice_blueprint.capacity.cpu_pods import SIDECAR_CPUS, SIDECAR_MEMORY_GIB, build_cpu_pods_by_tier
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.contract.environment import DRAIN_TIMEOUT_S, VALKEY_HOST, VALKEY_PASSWORD
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import CONTROL_SOCKET, ENGINE_METRICS_PATH
from voice_blueprint.contract.network import AGENT_HTTP, ENGINE_HEALTH, GATEWAY_HTTP, PROMETHEUS, VAD_HEALTH
from voice_blueprint.contract.session_api import HEALTH_PATH, LIVENESS_PATH, MAX_FILE_BYTES
from voice_blueprint.engines.launch.base import ANY_ADDRESS
from voice_blueprint.environment import VARIABLES_BY_IMAGE
from voice_blueprint.file.errors import DeploymentFileError
from voice_blueprint.observability.azure.scaling import add_zero_default
from voice_gateway.settings import GatewaySettings
from voice_gateway.state_token import TokenSettings
from voice_runtime.store import StoreSettings
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.rehearsals.azure_outages import find_outages
from voice_telemetry.settings import Settings as TelemetrySettings
from voice_whisper.settings import EngineSettings, ModelSettings

FILE = edit_deployment({"images": DIGESTS}, "production-azure")
CIDR = "10.60.0.0/16"
TIERS = {
    Component.GATEWAY: Image.GATEWAY,
    Component.VAD: Image.VAD_DATAPLANE,
    Component.ASR: Image.WHISPER_ENGINE,
    Component.AGENT: Image.AGENT,
}
HEALTH_PORTS = (GATEWAY_HEALTH, VAD_NODE_HEALTH, AGENT_NODE_HEALTH)
ROOT = Path(__file__).parents[3]
DATA_PLANE = ROOT / "images/vad-dataplane/src/config/config.cpp"


@pytest.fixture(scope="module")
def cloud() -> Graph:
    return cluster(FILE)


@pytest.fixture(scope="module")
def pods_graph() -> Graph:
    return workloads(FILE)


def _only_resource(graph: Graph, kind: str, name: str | None = None) -> Resource:
    (found,) = (each for each in graph.find_resources_of_type(kind) if name in (None, each.name))
    return found


def _allowed_flows(cloud: Graph, group: str) -> set[tuple[str, str, str, str]]:
    rules = inputs(_only_resource(cloud, "network:NetworkSecurityGroup", group))["securityRules"]
    return {
        (rule["sourceAddressPrefix"], rule["destinationAddressPrefix"], rule["protocol"], rule["destinationPortRange"])
        for rule in rules
        if rule["access"] == "Allow"
    }


def test_the_cpu_pool_is_sized_for_the_requests_of_its_pods(pods_graph: Graph, tmp_path: Path) -> None:
    azure = load_text(FILE, tmp_path).azure
    sized = build_cpu_pods_by_tier(azure.callers, azure.agents)
    assert sized.keys() == {tier.value for tier in TIERS}
    for name, each in sized.items():
        found = pod(pods_graph, name)
        cpus, memory_gib = float(found.requested("cpu")), float(found.requested("memory")) / GIB
        assert each.cpus - SIDECAR_CPUS < cpus <= each.cpus
        assert each.memory_gib - SIDECAR_MEMORY_GIB < memory_gib <= each.memory_gib


def test_a_rollout_adds_one_pod_to_each_tier_before_it_stops_one(pods_graph: Graph) -> None:
    """A tier keeps its capacity during a rollout, which needs room for a single additional pod."""
    for tier in TIERS:
        rolling = pod(pods_graph, tier).owner["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 1, "maxUnavailable": 0}, tier


# --- The way in ------------------------------------------------------------------------------------------


def test_security_groups_allow_exactly_the_flows_of_the_contract(cloud: Graph) -> None:
    ranges, nodes = calculate_infrastructure_ranges(CIDR), calculate_nodes_range(CIDR)
    rtp = str(_only_resource(cloud, "network:PublicIPAddress", "rtp").outputs["ipAddress"])
    ends = {
        (Component.INTERNET, Component.EDGE): ("edge", "Internet", ranges.edge),
        (Component.INTERNET, Component.VAD): ("nodes", "Internet", rtp),
        (Component.EDGE, Component.GATEWAY): ("nodes", ranges.edge, f"{calculate_gateway_address(CIDR)}/32"),
        (Component.EDGE, Component.AGENT): ("nodes", ranges.edge, f"{calculate_agent_address(CIDR)}/32"),
    }
    wanted: dict[str, set[tuple[str, str, str, str]]] = {"edge": set(), "nodes": set()}
    for flow in CALLER_FLOWS + AGENT_FLOWS:
        if (flow.source, flow.destination) in ends:
            group, source, destination = ends[flow.source, flow.destination]
            wanted[group].add((source, destination, flow.port.protocol.capitalize(), str(flow.port.number)))
    azure = {("AzureLoadBalancer", nodes, "Tcp", str(port.number)) for port in HEALTH_PORTS}
    inside = {each for each in _allowed_flows(cloud, "nodes") if "/" in each[0] and each[0] != ranges.edge}
    assert _allowed_flows(cloud, "nodes") - inside == wanted["nodes"] | azure
    prescribed = {("GatewayManager", "*", "Tcp", "65200-65535"), ("AzureLoadBalancer", "*", "*", "*")}
    assert _allowed_flows(cloud, "edge") == wanted["edge"] | prescribed
    assert (nodes, ranges.endpoints, "Tcp", str(REDIS.number)) in _allowed_flows(cloud, "endpoints")


def test_the_edge_routes_each_name_to_its_port_of_gateway_and_agents(cloud: Graph, pods_graph: Graph) -> None:
    edge = inputs(_only_resource(cloud, "network:ApplicationGateway"))
    assert (
        edge["autoscaleConfiguration"]["maxCapacity"]
        < IPv4Network(calculate_infrastructure_ranges(CIDR).edge).num_addresses - 5
    )
    services = {each["metadata"]["name"]: each for each in manifests(pods_graph, "Service")}
    for pool in edge["backendAddressPools"]:
        annotations = services[pool["name"]]["metadata"]["annotations"]
        (backend,) = pool["backendAddresses"]
        assert backend["ipAddress"] == annotations["service.beta.kubernetes.io/azure-load-balancer-ipv4"]
        assert annotations["service.beta.kubernetes.io/azure-load-balancer-internal"] == "true"
    ports = {each["name"]: each["port"] for each in edge["backendHttpSettingsCollection"]}
    listeners = {each["name"]: each for each in edge["httpListeners"]}
    routed = {}
    for rule in edge["requestRoutingRules"]:
        listener = listeners[rule["httpListener"]["id"].rpartition("/")[2]]
        routed[listener["hostName"]] = ports[rule["backendHttpSettings"]["id"].rpartition("/")[2]]
        assert listener["protocol"] == "Https"
        agent_alerts = listener["hostName"].startswith("agent.")
        assert rule["backendAddressPool"]["id"].endswith("agent" if agent_alerts else "gateway")
    told, agent = (_environment(pod(pods_graph, tier).container(tier)) for tier in ("gateway", "agent"))
    assert routed == {
        "api.voice.example.com": int(told["VOICE_HTTP_PORT"]),
        told["VOICE_MEDIA_HOST"]: int(told["VOICE_MEDIA_PORT"]),
        "agent.voice.example.com": int(agent["VOICE_HTTP_PORT"]),
    }
    assert edge["globalConfiguration"]["enableResponseBuffering"] is False, "events pass as they come"
    assert all(
        each["requestTimeout"] > max(int(one["VOICE_IDLE_TIMEOUT_S"]) for one in (told, agent))
        for each in edge["backendHttpSettingsCollection"]
    )


def test_references_between_edge_resources_exist(cloud: Graph) -> None:
    resource = _only_resource(cloud, "network:ApplicationGateway")
    edge = inputs(resource)
    lists = {
        key: {part["name"] for part in value}
        for key, value in edge.items()
        if isinstance(value, list) and key != "zones"
    }
    references = re.findall(r"applicationGateways/[\w-]+/(\w+)/([\w-]+)", str(edge))
    assert len(references) >= 2 * 5
    assert str(resource.id) in str(edge), "by its own id"
    for kind, name in references:
        found = next(names for key, names in lists.items() if key.lower() == kind.lower())
        assert name in found


def test_the_edge_accepts_the_documented_maximum_file_size(cloud: Graph) -> None:
    (firewall,) = (
        each for each in cloud.iter_managed_resources() if each.type.endswith(":WebApplicationFirewallPolicy")
    )
    settings = inputs(firewall)["policySettings"]
    assert settings["fileUploadEnforcement"]
    assert MAX_FILE_BYTES <= settings["fileUploadLimitInMb"] * 10**6 <= MAX_FILE_BYTES * 1.1
    assert settings["requestBodyEnforcement"] is False, "bodies above 2 MB without multipart/form-data are rejected"
    promised = re.search(r"of up to an hour and (\d+) MiB", (ROOT / "docs/clients.md").read_text(encoding="utf-8"))
    assert promised is not None
    assert int(promised[1]) << 20 == MAX_FILE_BYTES


def test_removing_callers_requires_the_load_balancer_to_be_removed_before_its_address(cloud: Graph) -> None:
    """The load balancer belongs to the other project, so the order of the graph does not contain it."""
    without = cluster(edit_deployment({"azure.callers": ABSENT, "azure.agents": ABSENT}, "production-azure"))
    steps = diff_graphs(cloud, without)
    outages = {each.name: each.format_summary() for each in find_outages(steps)}
    assert "Deploy `workloads` before `cluster`" in outages["rtp"]
    assert "edge" in outages, "the address of the application gateway is deleted after it, and needs no entry"
    assert sum("PublicIPAddress" in summary for summary in outages.values()) == 1
    assert "rtp" not in {each.name for each in find_outages(steps, ["rtp"])}


def test_the_udp_load_balancer_has_the_published_address(cloud: Graph, pods_graph: Graph) -> None:
    (service,) = (each for each in manifests(pods_graph, "Service") if each["metadata"]["name"] == "vad")
    address = inputs(_only_resource(cloud, "network:PublicIPAddress", "rtp"))
    annotations = service["metadata"]["annotations"]
    assert annotations["service.beta.kubernetes.io/azure-pip-name"] == address["publicIpAddressName"]
    assert annotations["service.beta.kubernetes.io/azure-load-balancer-resource-group"] == address["resourceGroupName"]
    assert [(each["port"], each["protocol"]) for each in service["spec"]["ports"]] == [(5004, "UDP")]
    assert service["spec"]["sessionAffinity"] == "ClientIP", "a caller whose NAT changes its port stays with its pod"
    exported = cloud.outputs["edgeAddresses"]
    assert exported["rtp"] == _only_resource(cloud, "network:PublicIPAddress", "rtp").outputs["ipAddress"]
    assert (
        exported["api"]
        == exported["media"]
        == _only_resource(cloud, "network:PublicIPAddress", "edge").outputs["ipAddress"]
    )


# --- What each tier is told ------------------------------------------------------------------------------


def _environment(container: Manifest) -> dict[str, str]:
    """Return the environment of a container, with sample values for references."""
    looked_up = {"metadata.name": "gateway-0", "status.podIP": "10.244.0.7"}
    told = {}
    for entry in container["env"]:
        source = entry.get("valueFrom") or {}
        field = source.get("fieldRef", {}).get("fieldPath")
        told[entry["name"]] = looked_up[field] if field else "k" * 64 if source else entry["value"]
    return told


@pytest.mark.parametrize("tier", TIERS)
def test_every_variable_of_the_contract_is_set(pods_graph: Graph, tier: Component) -> None:
    told = _environment(pod(pods_graph, tier.value).container(tier.value))
    of_files = {VALKEY_HOST, VALKEY_PASSWORD}
    wanted = {variable.name for variable in VARIABLES_BY_IMAGE[TIERS[tier]] if variable not in of_files}
    assert wanted - set(told) <= {"VOICE_ZONE"}, "no zone is told: pods of all zones are as near"


def test_programs_accept_their_configuration(pods_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: dict[Component, tuple[type[Any], ...]] = {
        Component.GATEWAY: (GatewaySettings, StoreSettings),
        Component.ASR: (EngineSettings, ModelSettings, StoreSettings),
        Component.AGENT: (AgentSettings, StoreSettings),
    }
    for tier, kinds in programs.items():
        with monkeypatch.context() as patch:
            for name, value in _environment(pod(pods_graph, tier.value).container(tier.value)).items():
                patch.setenv(name, value)
            for kind in kinds:
                kind()
    for tier in (Component.VAD, Component.ASR):
        with monkeypatch.context() as patch:
            for name, value in _environment(pod(pods_graph, tier.value).container("telemetry")).items():
                patch.setenv(name, value)
            told, _ = TelemetrySettings(), StoreSettings()
        assert (told.fleet, told.region) == (tier, ""), "no CloudWatch is told"
    sidecar = pod(pods_graph, "vad").container("state-token")
    for name, value in _environment(sidecar).items():
        monkeypatch.setenv(name, value)
    assert (
        str(TokenSettings().voice_state_token_file)
        == _environment(pod(pods_graph, "vad").container("vad"))["VOICE_VALKEY_PASSWORD_FILE"]
    )


def test_the_data_plane_has_its_variables(pods_graph: Graph) -> None:
    told = _environment(pod(pods_graph, "vad").container("vad"))
    asked = dict(re.findall(r'Variable\{"(\w+)", (nullptr|"[^"]*")\}', DATA_PLANE.read_text(encoding="utf-8")))
    assert {name for name, fallback in asked.items() if fallback == "nullptr"} <= set(told)
    assert set(told) <= set(asked)
    assert told["VOICE_DATA_PATH"] == "socket", "an ordinary user has no other"


@pytest.mark.parametrize("tier", [tier for tier in TIERS if tier is not Component.AGENT])
def test_metrics_of_a_tier_are_scraped_at_its_metrics_port(pods_graph: Graph, tier: Component) -> None:
    (monitor,) = (each for each in manifests(pods_graph, "PodMonitor") if each["metadata"]["name"] == tier)
    each = pod(pods_graph, tier.value)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= each.labels.items()
    (asked,) = monitor["spec"]["podMetricsEndpoints"]
    ((container, port),) = (
        (one, port["containerPort"])
        for one in each.containers
        for port in one.get("ports", [])
        if port["name"] == asked["port"]
    )
    told = _environment(container)
    assert told["VOICE_PROMETHEUS_PORT"] == str(port)
    if container["name"] == "telemetry":
        assert told["VOICE_PROMETHEUS_ADDRESS"] == ANY_ADDRESS, "it is asked from outside the pod"
    (policy,) = (
        one for one in manifests(pods_graph, "NetworkPolicy") if one["metadata"]["name"] == f"{tier}-from-monitoring"
    )
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]


LIVENESS = {
    Component.GATEWAY: (GATEWAY_HTTP, LIVENESS_PATH),
    Component.AGENT: (AGENT_HTTP, LIVENESS_PATH),
    Component.ASR: (ENGINE_HEALTH, ENGINE_METRICS_PATH),
    Component.VAD: (VAD_HEALTH, HEALTH_PATH),
}
"""Liveness endpoint of each program, which the tests of its image check."""


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.value)
def test_a_hanging_tier_is_restarted_and_a_draining_one_is_not_killed(pods_graph: Graph, tier: Component) -> None:
    found = pod(pods_graph, tier.value)
    main = found.container(tier.value)
    port, path = LIVENESS[tier]
    assert main["livenessProbe"]["httpGet"] == {"path": path, "port": port.number}
    # Not shorter than the load balancer's timeout for a loaded pod, and not before the start.
    assert main["livenessProbe"]["periodSeconds"] * main["livenessProbe"]["failureThreshold"] >= 60
    assert main["livenessProbe"]["timeoutSeconds"] >= 5
    assert main["startupProbe"]
    drain_s = next(int(each["value"]) for each in main["env"] if each["name"] == DRAIN_TIMEOUT_S.name)
    before = main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert found.spec["terminationGracePeriodSeconds"] >= before + drain_s + 15


def test_agents_have_the_addresses_of_their_engines(pods_graph: Graph) -> None:
    told = _environment(pod(pods_graph, "agent").container("agent"))
    services = {each["metadata"]["name"]: each for each in manifests(pods_graph, "Service")}
    for variable, service, path in (
        ("VOICE_GATEWAY_URL", "gateway", ""),
        ("VOICE_CHAT_URL", "router", f"/{told['VOICE_CHAT_MODEL']}/v1"),
        ("VOICE_SPEECH_URL", "router", f"/{told['VOICE_SPEECH_MODEL']}/v1"),
    ):
        found = services[service]
        ports = {
            f"http://{service}.{found['metadata']['namespace']}:{port['port']}{path}" for port in found["spec"]["ports"]
        }
        assert told[variable] in ports
    served = {
        argument
        for each in pods(pods_graph)
        if each.name.startswith(("qwen", "speech"))
        for argument in each.container("engine")["command"]
    }
    assert {told["VOICE_CHAT_MODEL"], told["VOICE_SPEECH_MODEL"]} <= served


def test_secrets_of_agents_are_only_in_the_vault() -> None:
    endpoint = {"kind": "endpoint", "url": "https://engines.callers.dev/v1", "model": "any", "key_secret": "engine-key"}
    edits: Edits = {
        "azure.agents.prompt": ABSENT,
        "azure.agents.prompt_secret": "house-prompt",
        "azure.agents.speech": endpoint,
        "azure.agents.tools_key_secret": "tools-key",
        "azure.agents.twilio": {"account": f"AC{'0' * 32}", "token_secret": "twilio-token"},
    }
    graph = workloads(edit_deployment({"images": DIGESTS, **edits}, "production-azure"))
    (provider,) = (
        each for each in manifests(graph, "SecretProviderClass") if each["metadata"]["name"] == "agent-secrets"
    )
    brought = set(re.findall(r"objectName: (\S+)", provider["spec"]["parameters"]["objects"]))
    container = pod(graph, "agent").container("agent")
    looked_up = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]["key"]
        for entry in container["env"]
        if "secretKeyRef" in (entry.get("valueFrom") or {})
    }
    assert looked_up == {
        "VOICE_TOKEN_KEY": "session-token-key",
        "VOICE_PROMPT": "house-prompt",
        "VOICE_SPEECH_KEY": "engine-key",
        "VOICE_TOOLS_KEY": "tools-key",
        "VOICE_TWILIO_TOKEN": "twilio-token",
    }
    assert brought == set(looked_up.values())
    assert all("value" not in entry for entry in container["env"] if entry["name"] in looked_up)


def test_an_added_secret_is_stored_in_another_kubernetes_secret() -> None:
    """The driver does not change the keys of an existing secret, so a pod with an added key would not start.

    A secret of other variables with the same names in the vault needs no new one.
    """

    def secret_of(**edits: object) -> str:
        agents: Edits = {f"azure.agents.{key}": value for key, value in edits.items()}
        graph = workloads(edit_deployment({"images": DIGESTS, **agents}, "production-azure"))
        (provider,) = (
            each for each in manifests(graph, "SecretProviderClass") if each["metadata"]["name"] == "agent-secrets"
        )
        (synced,) = provider["spec"]["secretObjects"]
        container = pod(graph, "agent").container("agent")
        read = {
            entry["valueFrom"]["secretKeyRef"]["name"]
            for entry in container["env"]
            if "secretKeyRef" in (entry.get("valueFrom") or {})
        }
        assert read == {synced["secretName"]}
        return str(synced["secretName"])

    before, after = secret_of(), secret_of(tools_key_secret="tools-key")
    assert before != after
    assert before == secret_of()


def test_agents_scale_on_conversations_and_wait_for_their_end(pods_graph: Graph) -> None:
    each = pod(pods_graph, "agent")
    told = _environment(each.container("agent"))
    (scaled,) = (one for one in manifests(pods_graph, "ScaledObject") if one["metadata"]["name"] == "agent")
    (trigger,) = (one["metadata"] for one in scaled["spec"]["triggers"])
    assert trigger["query"] == add_zero_default("sum(voice_agent_conversations)", "agent")
    assert float(trigger["threshold"]) == pytest.approx(int(told["VOICE_CONVERSATIONS"]) * TARGET_UTILIZATION)
    sleeps = each.container("agent")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert each.spec["terminationGracePeriodSeconds"] > sleeps + int(told["VOICE_DRAIN_TIMEOUT_S"])
    (budget,) = (one for one in manifests(pods_graph, "PodDisruptionBudget") if one["metadata"]["name"] == "agent")
    assert budget["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("tier", "query", "admits", "share"),
    [
        ("gateway", "sum(voice_open_sockets)", "VOICE_MAX_CONNECTIONS", None),
        ("vad", 'sum(voice_slots_taken{Fleet="vad"})', "VOICE_MAX_SESSIONS", 100),
        ("asr", 'sum(voice_slots_taken{Fleet="asr"})', "VOICE_SESSIONS", 100),
    ],
)
def test_tiers_scale_first_by_their_admission_limit(
    pods_graph: Graph, tier: str, query: str, admits: str, share: int | None
) -> None:
    """A full pod refuses calls even if its CPU load is low, and a polling core always has full load."""
    (scaled,) = (one for one in manifests(pods_graph, "ScaledObject") if one["metadata"]["name"] == tier)
    first, *others = (one["metadata"] for one in scaled["spec"]["triggers"])
    told = int(_environment(pod(pods_graph, tier).container(tier))[admits])
    assert told > 0
    assert first["query"] == add_zero_default(query, tier)
    assert float(first["threshold"]) == pytest.approx((share or told) * TARGET_UTILIZATION, abs=0.5)
    assert {one["ignoreNullValues"] for one in (first, *others)} == {"false"}, "a metric that ends is no idle pod"
    assert ["container_cpu_usage" in one["query"] for one in others] == ([] if tier == "vad" else [True])


def test_agents_metrics_are_not_public(pods_graph: Graph) -> None:
    """Metrics have a separate port, which no load balancer uses."""
    told = _environment(pod(pods_graph, "agent").container("agent"))
    (balancer,) = (
        one for one in manifests(pods_graph, "Service")
        if one["spec"].get("type") == "LoadBalancer" and one["spec"]["selector"][COMPONENT_LABEL] == "agent"
    )  # fmt: skip
    assert told["VOICE_PROMETHEUS_PORT"] == str(PROMETHEUS.number)
    assert told["VOICE_HTTP_PORT"] != told["VOICE_PROMETHEUS_PORT"]
    assert [each["targetPort"] for each in balancer["spec"]["ports"]] == [AGENT_HTTP.number]


def test_without_agents_no_route_to_them_exists() -> None:
    text = edit_deployment({"images": DIGESTS, "azure.agents": ABSENT}, "production-azure")
    for graph in (cluster(text), workloads(text)):
        assert not [each for each in graph.iter_managed_resources() if "agent" in each.name]
    assert len(inputs(_only_resource(cluster(text), "network:ApplicationGateway"))["httpListeners"]) == 2


def test_telemetry_mounts_the_socket_of_the_data_plane(pods_graph: Graph) -> None:
    each, folder = pod(pods_graph, "vad"), str(Path(CONTROL_SOCKET).parent)
    volumes = {
        mount["name"]
        for name in ("vad", "telemetry")
        for mount in each.container(name)["volumeMounts"]
        if mount["mountPath"] == folder
    }
    assert volumes == {"run"}


def test_every_configured_path_of_a_tier_is_mounted(pods_graph: Graph) -> None:
    for tier in TIERS:
        each = pod(pods_graph, tier.value)
        for container in nonempty(each.running):
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            paths = [value for name, value in _environment(container).items() if name.endswith("_FILE")]
            assert paths
            assert all(any(path.startswith(f"{mount}/") for mount in mounts) for path in paths)


# --- Who signs in to the state store ---------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_only_signs_in_with_its_own_identity(cloud: Graph, pods_graph: Graph, tier: Component) -> None:
    each = pod(pods_graph, tier.value)
    identity = _only_resource(cloud, "managedidentity:UserAssignedIdentity", tier.value)
    trust = inputs(_only_resource(cloud, "managedidentity:FederatedIdentityCredential", f"{tier}-pods"))
    assert trust["subject"] == f"system:serviceaccount:{each.namespace}:{each.spec['serviceAccountName']}"
    assert trust["resourceName"] == identity.outputs["name"]
    assert SERVICE_ACCOUNT_BY_TIER[tier].subject == trust["subject"]
    assert _environment(each.container("state-token"))["AZURE_CLIENT_ID"] == identity.outputs["clientId"]
    assignment = inputs(_only_resource(cloud, "redisenterprise:AccessPolicyAssignment", f"{tier}-uses-state"))
    user = _environment(each.container(tier.value))["VOICE_VALKEY_USER"]
    assert assignment["user"]["objectId"] == user == identity.outputs["principalId"]


@pytest.mark.parametrize("tier", TIERS)
def test_only_the_sidecar_has_the_identity_token(pods_graph: Graph, tier: Component) -> None:
    each = pod(pods_graph, tier.value)
    (volume,) = (volume["name"] for volume in each.spec["volumes"] if "projected" in volume)
    holders = [one["name"] for one in each.containers if volume in {mount["name"] for mount in one["volumeMounts"]}]
    # The gateway authenticates to the archive itself.
    assert sorted(holders) == (["gateway", "state-token"] if tier is Component.GATEWAY else ["state-token"])
    sidecar = each.container("state-token")
    assert sidecar["startupProbe"]["exec"]["command"][-1] == _environment(sidecar)["VOICE_STATE_TOKEN_FILE"]


def test_the_store_has_no_access_keys_and_the_configured_address(cloud: Graph, pods_graph: Graph) -> None:
    database = inputs(_only_resource(cloud, "redisenterprise:Database"))
    assert database["accessKeysAuthentication"] == "Disabled"
    assert database["clusteringPolicy"] == "NoCluster", "programs are not told of shards, and transactions span keys"
    (config,) = (each for each in manifests(pods_graph, "ConfigMap") if each["metadata"]["name"] == "state")
    assert config["data"]["host"] == cloud.outputs["stateHost"]
    for tier in TIERS:
        assert _environment(pod(pods_graph, tier.value).container(tier.value))["VOICE_VALKEY_PORT"] == str(
            database["port"]
        )


# --- Pods and nodes --------------------------------------------------------------------------------------


def test_the_data_plane_has_exclusive_cores(cloud: Graph, pods_graph: Graph) -> None:
    """With the static policy the kubelet pins whole CPUs of pods whose requests equal their limits."""
    pool = inputs(_only_resource(cloud, "containerservice:AgentPool", "cpu"))
    assert pool["kubeletConfig"]["cpuManagerPolicy"] == "static"
    assert "gpuProfile" not in pool
    each = pod(pods_graph, "vad")
    assert all(one["resources"]["requests"] == one["resources"]["limits"] for one in each.containers)
    cpus = quantity(each.container("vad")["resources"]["requests"]["cpu"])
    assert cpus == int(cpus)
    assert int(_environment(each.container("vad"))["VOICE_RX_QUEUES"]) == cpus - 1


REFUSED_EDITS: list[tuple[Edits, str]] = [
    ({"azure.cpu_pool": ABSENT}, "`callers` need a `cpu_pool`"),
    ({"azure.callers.asr.model": "qwen3-8b"}, "served by no aggregated service"),
    ({"azure.pools.0.name": "cpu", "azure.services.0.pool": "cpu"}, "cpu is the name of `cpu_pool`"),
]


@pytest.mark.parametrize(("edits", "answer"), REFUSED_EDITS)
def test_callers_without_required_settings_are_refused(edits: Edits, answer: str, tmp_path: Path) -> None:
    with pytest.raises(DeploymentFileError, match=answer):
        load_text(edit_deployment(edits, "production-azure"), tmp_path)
