"""Engine pods fit their nodes, start in order, stop without dropping requests, and scale on their metrics."""

import math
from collections.abc import Callable

import pytest

from tests.blueprint.documents import load_text
from tests.blueprint.engines.rules import check_endpoint, check_metric
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import (
    GIB,
    Pod,
    engine_pods,
    manifests,
    pod,
    pods,
    production,
    quantity,
    requested_amount,
    service_for,
    variables,
    vm_size_for,
    workloads,
)
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint import catalog
from voice_blueprint.azure.contract import GPU_RESOURCE
from voice_blueprint.azure.metrics import EngineMetric, build_sum_query
from voice_blueprint.azure.names import POOL_LABEL
from voice_blueprint.azure.rollout import DRAIN_MARGIN_S
from voice_blueprint.engines.launch.lmcache import LMCACHE_PROGRAM
from voice_blueprint.engines.launch.router import REMOVAL_DELAY_S
from voice_blueprint.engines.launch.services import (
    create_aggregated_processes,
    create_cell_processes,
    create_chat_launcher,
    create_tts_launcher,
)
from voice_blueprint.engines.published.release import load_published_table
from voice_blueprint.engines.sizing.host import calculate_allocatable_gib
from voice_blueprint.engines.sizing.service import size_service
from voice_blueprint.file.model.azure import AggregatedService, Azure, ChatService, PrefillDecodeCell, TtsService
from voice_constructs.azure.kubernetes.gpu_nodes import IMAGE_WITHOUT_DIGEST_LABEL
from voice_sandbox.azure.graph import Graph

PRODUCTION = production()
WITH_LMCACHE = production({"azure.services.1.lmcache": {"l1_gib": 100}})
CELL = "voxtral-cells"
NC96 = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
SHARED_MEMORY = "/dev/shm"  # noqa: S108  a volume of the pod


@pytest.fixture(scope="module", params=["production", "with LMCache"])
def graph(request: pytest.FixtureRequest) -> Graph:
    return workloads({"production": PRODUCTION, "with LMCache": WITH_LMCACHE}[request.param])


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Azure:
    return load_text(PRODUCTION, tmp_path_factory.mktemp("azure")).azure


# --- They fit --------------------------------------------------------------------------------------------


def test_the_gpus_of_a_node_limit_its_pods(graph: Graph, azure: Azure) -> None:
    for each in nonempty(engine_pods(graph)):
        size = vm_size_for(each, azure)
        per_node = size.gpu_count // int(each.requested(GPU_RESOURCE))
        assert per_node >= 1
        assert (
            per_node * each.requested("cpu") <= size.vcpus - 2
        )  # reserved for the kubelet and the daemons of the node
        memory_gib = per_node * float(each.requested("memory")) / GIB
        assert memory_gib <= calculate_allocatable_gib(size)


def test_requests_of_pods_fit_the_node(graph: Graph) -> None:
    for each in nonempty(engine_pods(graph)):
        for container in each.containers:
            assert container["resources"]["requests"] == container["resources"]["limits"]


def test_shared_memory_matches_sizing_and_is_within_the_memory_limit(graph: Graph, azure: Azure) -> None:
    for each in nonempty(engine_pods(graph)):
        (volume,) = (one["emptyDir"] for one in each.spec["volumes"] if one["name"] == "shared-memory")
        (sized,) = (
            one for one in size_service(azure, service_for(each, azure)).pools if one.pool == each.labels[POOL_LABEL]
        )
        assert volume["medium"] == "Memory"
        needed = sized.host.shared_memory_gib / sized.replicas_per_node * GIB
        assert needed <= quantity(volume["sizeLimit"]) <= each.requested("memory")
        engines = [one for one in each.main if "vllm" in one["command"]]
        assert all(SHARED_MEMORY in {mount["mountPath"] for mount in one["volumeMounts"]} for one in engines)


def test_lmcache_servers_have_the_memory_of_their_pools(graph: Graph) -> None:
    servers = [one for each in engine_pods(graph) for one in each.containers if LMCACHE_PROGRAM in one["command"]]
    assert servers
    for server in servers:
        pool_gib = float(server["command"][server["command"].index("--l1-size-gb") + 1])
        assert requested_amount(server, "memory") > pool_gib * GIB


def test_the_namespace_quota_allows_the_maximum_of_the_file(graph: Graph) -> None:
    (quota,) = manifests(graph, "ResourceQuota")
    most = {each["metadata"]["name"]: each["spec"]["maxReplicaCount"] for each in manifests(graph, "ScaledObject")}
    for resource in ("cpu", "memory", GPU_RESOURCE):
        hard = quantity(quota["spec"]["hard"][f"requests.{resource}"])
        for_engines = sum(
            (most[each.name] + each.owner["spec"]["strategy"]["rollingUpdate"]["maxSurge"]) * each.requested(resource)
            for each in engine_pods(graph)
        )
        others = [each for each in pods(graph) if each.name == "router" or each.name.startswith("fetch-")]
        for_others = sum((each.owner["spec"].get("replicas", 0) + 1) * each.requested(resource) for each in others)
        assert for_engines <= hard <= for_engines + for_others


def test_every_engine_on_several_gpus_is_checked(graph: Graph) -> None:
    for each in nonempty(engine_pods(graph)):
        assert bool(each.init) == (each.requested(GPU_RESOURCE) > 1)


# --- Starting and stopping -------------------------------------------------------------------------------


def test_engines_have_every_probe_and_their_release_answers_it(graph: Graph) -> None:
    for each in nonempty(engine_pods(graph)):
        for one in each.main:
            if one["name"] == "gpus":
                continue
            table = load_published_table("vllm-omni" if "--omni" in one["command"] else "vllm")
            port = one["ports"][0]["containerPort"]
            start = one["startupProbe"]
            assert start["httpGet"]["port"] == port == int(one["command"][one["command"].index("--port") + 1])
            assert not list(check_endpoint(table, "GET", start["httpGet"]["path"]))
            assert start["periodSeconds"] * start["failureThreshold"] >= 1200


def test_pods_are_killed_after_their_engines_have_drained_and_before_their_node_is(graph: Graph, azure: Azure) -> None:
    for each in nonempty(engine_pods(graph)):
        grace_s = each.spec["terminationGracePeriodSeconds"]
        for one in each.main:
            if "--shutdown-timeout" in one["command"]:
                drain_s = int(one["command"][one["command"].index("--shutdown-timeout") + 1])
                serves_s = one["lifecycle"]["preStop"]["sleep"]["seconds"]
                assert serves_s > REMOVAL_DELAY_S, "the router still sends requests when it stops to take them"
                assert serves_s + drain_s < grace_s
        assert grace_s <= service_for(each, azure).drain_timeout_s + DRAIN_MARGIN_S


def test_the_router_outlives_its_requests(graph: Graph) -> None:
    longest = max(each.spec["terminationGracePeriodSeconds"] for each in engine_pods(graph))
    assert pod(graph, "router").spec["terminationGracePeriodSeconds"] >= longest


def test_at_most_one_pod_is_disrupted_at_a_time(graph: Graph) -> None:
    """Only a pool without surge nodes has no room for a replacement, so all pods of a node are evicted together."""
    budgets = {each["metadata"]["name"]: each["spec"] for each in manifests(graph, "PodDisruptionBudget")}
    for each in [*engine_pods(graph), pod(graph, "router")]:
        limit = budgets[each.name]["maxUnavailable"]
        assert limit == (8 if each.name == "speech" else 1)
        annotations = each.owner["spec"]["template"]["metadata"].get("annotations", {})
        keeps_node = annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false"
        assert keeps_node == (limit > 1), "the autoscaler must not stop all replicas of a node"
        assert budgets[each.name]["selector"]["matchLabels"].items() <= each.labels.items()
        update = each.owner["spec"]["strategy"]["rollingUpdate"]
        assert update["maxSurge"] + update["maxUnavailable"] == 1


def test_selectors_do_not_overlap(graph: Graph) -> None:
    deployments = manifests(graph, "Deployment")
    for one in nonempty(deployments):
        selector = one["spec"]["selector"]["matchLabels"].items()
        matched = [other for other in pods(graph) if selector <= other.labels.items()]
        assert [other.name for other in matched] == [one["metadata"]["name"]]


# --- What they run ---------------------------------------------------------------------------------------


def launched_environments(each: Pod, azure: Azure) -> dict[str, Callable[[], dict[str, str]]]:
    match service_for(each, azure):
        case PrefillDecodeCell() as service:
            cell = create_cell_processes(azure, service)
            return {
                "prefill": cell.prefill.build_environment,
                "decode": cell.decode.build_environment,
                "lmcache": cell.lmcache_prefill.build_environment,
                "lmcache-decode": cell.lmcache_decode.build_environment,
            }
        case AggregatedService() as service:
            return {"engine": create_aggregated_processes(azure, service).engine.build_environment}
        case ChatService() as service:
            return {"engine": create_chat_launcher(azure, service, each.labels[POOL_LABEL]).build_environment}
        case TtsService() as service:
            return {"engine": create_tts_launcher(azure, service).build_environment}


def test_every_variable_is_set_by_a_launcher(azure: Azure) -> None:
    for each in nonempty(engine_pods(workloads(PRODUCTION))):
        for name, environment in launched_environments(each, azure).items():
            added = variables(each.container(name)).items() - environment().items()
            assert dict(added).keys() <= {"NVIDIA_VISIBLE_DEVICES", "TRANSPORT_EXPECTED"}


def test_caches_and_weights_are_on_mounted_volumes(graph: Graph) -> None:
    for each in [*engine_pods(graph), *(one for one in pods(graph) if one.name.startswith("fetch-"))]:
        for one in nonempty(each.main):
            mounts = [mount["mountPath"] for mount in one["volumeMounts"]]
            for name, value in variables(one).items():
                if name in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
                    assert any(value == mount or value.startswith(f"{mount}/") for mount in mounts)


def test_every_served_model_is_downloaded_first(graph: Graph) -> None:
    fetched = {each.main[0]["command"][2] for each in pods(graph) if each.name.startswith("fetch-")}
    served = set()
    for each in engine_pods(graph):
        for one in each.main:
            if "serve" in one["command"]:
                assert variables(one)["HF_HUB_OFFLINE"] == "1"
                served.add(one["command"][one["command"].index("serve") + 1])
    assert fetched == served


def test_a_pinned_model_is_downloaded_at_its_commit() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    graph = workloads(production({"azure.services.2.revision": commit}))
    fetched = [each.main[0]["command"] for each in pods(graph) if each.name.startswith("fetch-")]
    assert [command[command.index("--revision") + 1] for command in fetched if "--revision" in command] == [commit]


def test_engines_wait_for_every_revision_of_a_model() -> None:
    graph = workloads(production({"azure.services.1.revision": "0123456789abcdef0123456789abcdef01234567"}))
    jobs = {each.urn for each in graph.find_resources_of_type("batch/v1:Job")}
    engines = [each for each in graph.find_resources_of_type("apps/v1:Deployment") if each.name != "router"]
    assert len(jobs) == 4
    for engine in nonempty(engines):
        assert jobs <= set(graph.find_all_dependencies(engine.urn)), engine.name


# --- Scaling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "vllm-omni"])
@pytest.mark.parametrize("metric", [EngineMetric.RUNNING, EngineMetric.WAITING, EngineMetric.KV_USAGE])
def test_engines_publish_the_scaling_metrics(engine: str, metric: EngineMetric) -> None:
    assert not list(check_metric(load_published_table(engine), metric))


def test_a_sum_of_metrics_is_valid_promql() -> None:
    assert (
        build_sum_query(EngineMetric.RUNNING, voice_role="decode")
        == 'sum(vllm:num_requests_running{voice_role="decode"})'
    )


def test_every_deployment_of_engines_is_scaled_within_the_files_bounds(graph: Graph, azure: Azure) -> None:
    scaled = {each["spec"]["scaleTargetRef"]["name"]: each for each in manifests(graph, "ScaledObject")}
    assert scaled.keys() == {each.name for each in engine_pods(graph)}
    for each in engine_pods(graph):
        spec, bounds = scaled[each.name]["spec"], service_for(each, azure).get_replica_bounds(each.labels[POOL_LABEL])
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (bounds.min, bounds.max)
        # https://keda.sh/docs/2.17/reference/scaledobject-spec/#fallback: an outage of Prometheus adds no GPU.
        assert spec["fallback"] == {"failureThreshold": 4, "behavior": "currentReplicas", "replicas": bounds.max}
        for trigger in spec["triggers"]:
            assert trigger["type"] == "prometheus"
            assert trigger["metricType"] == "AverageValue"  # the only kind with a fallback
            assert {"serverAddress", "query", "threshold"} <= trigger["metadata"].keys()
            # https://keda.sh/docs/2.17/scalers/prometheus: otherwise ended series count as 0, and replicas are removed.
            assert trigger["metadata"]["ignoreNullValues"] == ("false" if bounds.min else "true")
            assert trigger["authenticationRef"]["name"] == "prometheus"
            own = f'voice_pool="{each.labels[POOL_LABEL]}"' in trigger["metadata"]["query"]
            assert own or each.name == "qwen-h100spot"


def test_a_later_pool_scales_on_the_load_beyond_earlier_pools(graph: Graph, azure: Azure) -> None:
    (spot,) = (each["spec"] for each in manifests(graph, "ScaledObject") if each["metadata"]["name"] == "qwen-h100spot")
    earlier, later = size_service(azure, next(s for s in azure.services if s.name == "qwen")).pools
    assert (spot["minReplicaCount"], spot["maxReplicaCount"]) == (0, 4)
    requests = spot["triggers"][0]["metadata"]
    running, waiting = (
        build_sum_query(metric, voice_service="qwen") for metric in (EngineMetric.RUNNING, EngineMetric.WAITING)
    )
    whole = f"{running} + {waiting}"
    assert requests["query"] == f"clamp_min({whole} - {earlier.sessions * 0.8:g}, 0)"
    assert requests["threshold"] == f"{later.engine.sessions * 0.8:g}"


def test_a_rollout_has_a_free_node_or_replaces_in_place(graph: Graph, azure: Azure) -> None:
    """At its maximum a pool has GPUs for the additional pods of a rollout."""
    most = {each["metadata"]["name"]: each["spec"]["maxReplicaCount"] for each in manifests(graph, "ScaledObject")}
    for pool in nonempty(azure.pools):
        here = [each for each in engine_pods(graph) if each.labels[POOL_LABEL] == pool.name]
        gpus = sum(
            each.requested(GPU_RESOURCE)
            * (most[each.name] + each.owner["spec"]["strategy"]["rollingUpdate"]["maxSurge"])
            for each in here
        )
        assert gpus <= pool.nodes.max * catalog.vm_sizes()[pool.vm_size].gpu_count, pool.name


def test_thresholds_follow_sizing(graph: Graph, azure: Azure) -> None:
    scaled = {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in manifests(graph, "ScaledObject")}
    for each in nonempty(engine_pods(graph)):
        (sized,) = (
            one for one in size_service(azure, service_for(each, azure)).pools if one.pool == each.labels[POOL_LABEL]
        )
        for trigger in scaled[each.name]["triggers"]:
            most = 1.0 if "kv_cache" in trigger["metadata"]["query"] else sized.engine.sessions
            threshold = float(trigger["metadata"]["threshold"])
            assert 0 < threshold < most
            assert math.isclose(threshold / most, 0.8) or trigger["name"] == "prefill-waiting"


def test_keda_reads_metrics_as_its_workload_identity(graph: Graph) -> None:
    (authentication,) = manifests(graph, "TriggerAuthentication")
    assert authentication["spec"]["podIdentity"]["provider"] == "azure-workload"
    assert authentication["spec"]["podIdentity"]["identityId"]


# --- Images without a digest -----------------------------------------------------------------------------


def test_workloads_without_an_image_have_no_replicas() -> None:
    held = workloads(edit_deployment({}))
    for each in engine_pods(held):
        assert each.owner["spec"]["replicas"] == 0
    for scaled in manifests(held, "ScaledObject"):
        assert scaled["metadata"]["annotations"]["autoscaling.keda.sh/paused-replicas"] == "0"
    assert all(job["spec"]["suspend"] for job in manifests(held, "Job"))
    assert all(
        IMAGE_WITHOUT_DIGEST_LABEL in each["spec"]["template"]["spec"]["nodeSelector"]
        for each in manifests(held, "DaemonSet")
    )
    assert pod(held, "router").owner["spec"]["replicas"] == 0


def test_workloads_with_a_digest_are_deployed(graph: Graph, azure: Azure) -> None:
    for each in engine_pods(graph):
        assert (
            each.owner["spec"]["replicas"] == service_for(each, azure).get_replica_bounds(each.labels[POOL_LABEL]).min
        )
    assert not any(each["metadata"].get("annotations") for each in manifests(graph, "ScaledObject"))
    assert not any(job["spec"]["suspend"] for job in manifests(graph, "Job"))
    assert not any(each["spec"]["template"]["spec"].get("nodeSelector") for each in manifests(graph, "DaemonSet"))
