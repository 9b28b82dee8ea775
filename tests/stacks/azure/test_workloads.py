"""Workloads of the cluster: objects are valid, pools are used, and open ports are in the contract."""

import pytest
import yaml

from tests.blueprint.documents import load_text
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import (
    GIB,
    Manifest,
    manifests,
    pod,
    pods,
    problems,
    production,
    quantity,
    variables,
    workloads,
)
from tests.stacks.azure.recorded import edit_deployment, inputs
from voice_blueprint import catalog
from voice_blueprint.azure.contract import COMPONENT_LABEL, NAMESPACE, Component
from voice_blueprint.azure.names import (
    POOL_LABEL,
    SYSTEM_TAINT,
    Taint,
    build_engine_workload_name,
    list_nvme_pools,
    list_pool_taints,
    list_service_pool_names,
)
from voice_blueprint.checks.azure.pools import WORKLOAD_NAMES
from voice_blueprint.file.model.azure import SYSTEM_POOL_NAME, Azure, ChatService
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.recorder import RunMode

PRODUCTION = production()
WITH_LMCACHE = production({"azure.services.1.lmcache": {"l1_gib": 100}})
CUSTOM = {"ScaledObject", "TriggerAuthentication", "PodMonitor"}


@pytest.fixture(scope="module", params=["production", "held back", "with LMCache"])
def graph(request: pytest.FixtureRequest) -> Graph:
    files = {"production": PRODUCTION, "held back": edit_deployment({}), "with LMCache": WITH_LMCACHE}
    return workloads(files[request.param])


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Azure:
    return load_text(PRODUCTION, tmp_path_factory.mktemp("azure")).azure


# --- Every object is one that Kubernetes takes -----------------------------------------------------------


def test_every_object_matches_the_kubernetes_schema(graph: Graph) -> None:
    core = [each for each in manifests(graph) if each["kind"] not in CUSTOM]
    assert len(core) > 40
    assert {(each["kind"], each["metadata"]["name"]): problems(each) for each in core if problems(each)} == {}


@pytest.mark.parametrize(
    ("place", "value"),
    [(("limits", "memory"), "400Gb"), (("limits", "memory"), "lots"), (("requets", "cpu"), "1")],
)
def test_an_invalid_object_does_not_match_the_schema(place: tuple[str, str], value: str) -> None:
    wrong: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wrong"},
        "spec": {"containers": [{"name": "a", "image": "b", "resources": {place[0]: {place[1]: value}}}]},
    }
    assert problems(wrong)


@pytest.mark.parametrize(("text", "value"), [("200Gi", 200 * GIB), ("34", 34), ("100m", "0.1"), ("1.5Mi", 1572864)])
def test_quantities_are_exact(text: str, value: str | int) -> None:
    assert quantity(text) == type(quantity(text))(value)


def test_pod_monitors_have_the_required_fields(graph: Graph) -> None:
    ports = {
        port["name"] for each in pods(graph) for container in each.containers for port in container.get("ports") or []
    }
    for monitor in manifests(graph, "PodMonitor"):
        assert monitor["apiVersion"] == "azmonitoring.coreos.com/v1"
        assert monitor["spec"]["selector"]["matchLabels"]
        assert monitor["spec"]["podMetricsEndpoints"]
        assert {"labelLimit", "labelNameLengthLimit", "labelValueLengthLimit"} <= monitor["spec"].keys()
    scraped = [end["port"] for each in manifests(graph, "PodMonitor") for end in each["spec"]["podMetricsEndpoints"]]
    assert ports - set(scraped) == {"front"}  # it would repeat its decode engine
    assert set(scraped) - ports == set()


def test_every_workload_that_is_no_engine_has_a_reserved_name(graph: Graph, azure: Azure) -> None:
    engines = {
        build_engine_workload_name(service, pool)
        for service in azure.services
        for pool in list_service_pool_names(service)
    }
    for kind in ("Deployment", "ServiceAccount", "PodDisruptionBudget", "ScaledObject"):
        names = {
            each["metadata"]["name"] for each in manifests(graph, kind) if each["metadata"]["namespace"] == NAMESPACE
        }
        assert engines <= names
        assert names - engines <= set(WORKLOAD_NAMES)


def test_references_exist(graph: Graph) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests(graph)}
    for each in nonempty(pods(graph)):
        assert ("ServiceAccount", each.spec["serviceAccountName"]) in there
        volumes = {volume["name"]: volume for volume in each.spec["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
            if "ephemeral" in volume:
                wanted = volume["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"]
                assert ("StorageClass", wanted) in there
        mounted = {mount["name"] for container in each.containers for mount in container["volumeMounts"]}
        assert mounted == set(volumes)


def test_the_nvme_driver_runs_on_the_pools_that_need_it(graph: Graph) -> None:
    (local,) = (each for each in manifests(graph, "StorageClass") if each["metadata"]["name"] == "local-nvme")
    affinity = yaml.safe_load(local["metadata"]["annotations"]["storageoperator.acstor.io/nodeAffinity"])
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (chosen,) = term["matchExpressions"]
    wanted = {
        each.labels[POOL_LABEL] for each in pods(graph) for volume in each.spec["volumes"] if "ephemeral" in volume
    }
    assert wanted
    assert (chosen["key"], set(chosen["values"])) == ("kubernetes.azure.com/agentpool", wanted)


def test_the_autoscaler_knows_the_nvme_of_nodes_that_do_not_exist_yet(graph: Graph, azure: Azure) -> None:
    """The scheduler, which the autoscaler simulates, accepts a node if an object of its labels has enough capacity."""
    stated = {each["nodeTopology"]["matchLabels"][POOL_LABEL]: each for each in manifests(graph, "CSIStorageCapacity")}
    sizes = {pool.name: catalog.vm_sizes()[pool.vm_size] for pool in azure.pools}
    wanted = set(list_nvme_pools(azure))
    assert set(stated) == wanted != set()
    for name, each in stated.items():
        assert each["storageClassName"] == "local-nvme"
        assert each["capacity"] == f"{sizes[name].nvme_gib * 1024}Mi"


def test_mounted_files_are_in_their_config_map(graph: Graph) -> None:
    maps = {each["metadata"]["name"]: each["data"] for each in manifests(graph, "ConfigMap")}
    for each in nonempty(pods(graph)):
        names = [volume["configMap"]["name"] for volume in each.spec["volumes"] if "configMap" in volume]
        mounts = [mount for container in each.containers for mount in container["volumeMounts"] if mount.get("subPath")]
        assert bool(names) == bool(mounts)
        assert all(maps[names[0]][mount["subPath"]] for mount in mounts)


def test_nothing_is_created_before_its_dependencies(graph: Graph) -> None:
    made = {resource.urn: resource for resource in graph.iter_managed_resources()}
    for resource in nonempty(made.values()):
        needed = {graph[urn].type for urn in graph.find_all_dependencies(resource.urn)}
        namespaced = dict(resource.inputs).get("metadata", {}).get("namespace", "kube-system") != "kube-system"
        assert not namespaced or "kubernetes:core/v1:Namespace" in needed
        if resource.type.endswith("Deployment") and resource.name != "router":
            assert {"kubernetes:batch/v1:Job", "kubernetes:apps/v1:DaemonSet"} <= needed
        if resource.type.endswith("Job"):
            assert "kubernetes:core/v1:PersistentVolumeClaim" in needed


def test_a_preview_declares_what_an_up_creates() -> None:
    assert {r.urn for r in workloads(PRODUCTION, RunMode.PREVIEW).resources} == {
        r.urn for r in workloads(PRODUCTION).resources
    }


# --- Pools and workloads ---------------------------------------------------------------------------------


def test_another_address_of_the_cluster_replaces_no_object(graph: Graph) -> None:
    """Without an identifier, Pulumi replaces the provider and all its objects if the kubeconfig's server changes."""
    provider = inputs(graph.get_resource("cluster", "pulumi:providers:kubernetes"))
    assert provider["clusterIdentifier"].startswith("https://")


def test_every_pool_has_a_workload_and_every_workload_a_pool(graph: Graph, azure: Azure) -> None:
    selected = {
        each.spec["nodeSelector"][POOL_LABEL] for each in pods(graph) if POOL_LABEL in each.spec.get("nodeSelector", {})
    }
    assert selected == {*(pool.name for pool in azure.pools), SYSTEM_POOL_NAME}
    wanted = {
        (service.name, pool)
        for service in azure.services
        for pool in (service.pools if isinstance(service, ChatService) else (service.pool,))
    }
    engines = [each for each in pods(graph) if each.labels[COMPONENT_LABEL] == Component.ENGINE]
    assert {(each.labels["voice-serve/service"], each.labels[POOL_LABEL]) for each in engines} == wanted
    assert len(engines) == len(wanted)


def test_pods_tolerate_exactly_the_taints_of_their_nodes(graph: Graph, azure: Azure) -> None:
    taints = {pool.name: set(list_pool_taints(azure, pool)) for pool in azure.pools} | {
        SYSTEM_POOL_NAME: {SYSTEM_TAINT}
    }
    for each in nonempty(pods(graph)):
        tolerated = {Taint(one["key"], one["value"], one["effect"]) for one in each.spec["tolerations"]}
        pool = each.spec.get("nodeSelector", {}).get(POOL_LABEL)
        gpu_taints = {taint for pool in azure.pools for taint in list_pool_taints(azure, pool)}
        assert tolerated == (taints[pool] if pool else gpu_taints)


def test_the_device_plugin_sets_the_devices_of_a_container() -> None:
    """Otherwise a reload of systemd removes access to GPUs that only a hook had granted."""
    plugin = pod(workloads(PRODUCTION), "device-plugin")
    assert variables(plugin.containers[0])["PASS_DEVICE_SPECS"] == "true"
