"""The prefill/decode cell: one pod whose containers share a node's GPUs, CPUs and processes as designed."""

import pytest

from tests.blueprint.documents import load_text
from tests.blueprint.engines.rules import check_endpoint
from tests.stacks.azure.manifests import (
    GIB,
    Manifest,
    Pod,
    pod,
    production,
    quantity,
    requested_amount,
    service_for,
    variables,
    vm_size_for,
    workloads,
)
from voice_blueprint import catalog
from voice_blueprint.azure.contract import GPU_RESOURCE
from voice_blueprint.azure.topology import ContainerRequest, admit_pods, calculate_empty_node_resources
from voice_blueprint.engines.cell import validate_cell_cpus
from voice_blueprint.engines.published.release import load_published_table
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.azure import Azure, PrefillDecodeCell, TopologyPolicy

PRODUCTION = production()
CELL = "voxtral-cells"
NC96 = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Azure:
    return load_text(PRODUCTION, tmp_path_factory.mktemp("azure")).azure


@pytest.fixture(scope="module")
def cell() -> Pod:
    return pod(workloads(PRODUCTION), CELL)


@pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED])
@pytest.mark.parametrize("reserved_cpus", [1, 2])
def test_the_kubelet_pins_each_engine_to_cpus_near_its_gpus(
    cell: Pod, azure: Azure, policy: TopologyPolicy, reserved_cpus: int
) -> None:
    def request(container: Manifest) -> ContainerRequest:
        cpus = requested_amount(container, "cpu")
        return ContainerRequest(
            int(requested_amount(container, GPU_RESOURCE)), int(cpus) if cpus == int(cpus) else None
        )

    size = vm_size_for(cell, azure)
    containers = [*cell.sidecars, *cell.main]  # the GPUs of the check are reused by the container that requests them
    answers = dict(
        zip(
            (one["name"] for one in containers),
            admit_pods(
                size, [request(one) for one in containers], policy, calculate_empty_node_resources(size, reserved_cpus)
            ),
            strict=True,
        )
    )
    assert all(answer.is_admitted for answer in answers.values())
    for name in ("prefill", "decode"):
        binding = next(one for one in cell.container(name)["command"] if one.startswith("--cpunodebind="))
        bound = {int(node) for node in binding.partition("=")[2].split(",")}
        assert answers[name].nodes == bound
        own = [int(gpu) for gpu in variables(cell.container(name))["CUDA_VISIBLE_DEVICES"].split(",")[:2]]
        assert {node for gpu in own for node, numa in enumerate(size.numa_nodes) if gpu in numa.gpus} == bound


def test_one_container_of_a_cell_requests_all_gpus_and_the_others_can_access_them(cell: Pod, azure: Azure) -> None:
    holders = [one["name"] for one in cell.running if requested_amount(one, GPU_RESOURCE)]
    assert holders == ["gpus"]
    assert requested_amount(cell.container("gpus"), GPU_RESOURCE) == vm_size_for(cell, azure).gpu_count
    for name in ("prefill", "decode", "lmcache", "lmcache-decode"):
        assert variables(cell.container(name))["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert cell.spec["shareProcessNamespace"] is True


def test_container_memory_covers_runtime_hooks_of_a_sleep(cell: Pod) -> None:
    """GPU runtime hooks count towards the memory of the container, whose limit once was only 64 MiB."""
    assert quantity(cell.container("gpus")["resources"]["limits"]["memory"]) == 256 * 2**20


def test_a_cell_is_checked_before_anything_starts(cell: Pod, azure: Azure) -> None:
    first = cell.spec["initContainers"][0]
    assert first["name"] == "check-topology"
    assert requested_amount(first, GPU_RESOURCE) == vm_size_for(cell, azure).gpu_count
    assert first["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_proxies_outlive_the_engines(cell: Pod) -> None:
    assert [one["name"] for one in cell.sidecars] == ["lmcache", "lmcache-decode", "pd-router", "front"]
    assert {one["name"] for one in cell.main} == {"prefill", "decode", "gpus"}


def test_proxies_do_not_delay_the_engines(cell: Pod) -> None:
    # Kubernetes waits for sidecars with a startup probe, and these sidecars wait for the engines.
    for name in ("pd-router", "front"):
        assert "startupProbe" not in cell.container(name)
        assert "livenessProbe" not in cell.container(name)
        assert "readinessProbe" in cell.container(name)


def test_two_cells_never_share_a_node(cell: Pod) -> None:
    (term,) = cell.spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= cell.labels.items()


def test_an_nvme_volume_is_large_enough_for_both_servers(cell: Pod, azure: Azure) -> None:
    (volume,) = (one for one in cell.spec["volumes"] if "ephemeral" in one)
    asked = quantity(volume["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"])
    service = service_for(cell, azure)
    assert isinstance(service, PrefillDecodeCell)
    assert service.lmcache.l2_nvme_gib * GIB < asked <= vm_size_for(cell, azure).nvme_gib * GIB


@pytest.mark.parametrize("cpus", [5, 20, 78, 97])
@pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED])
def test_cpus_distant_from_the_gpus_of_an_engine_are_refused(cpus: int, policy: TopologyPolicy) -> None:
    with pytest.raises(DoesNotFitError) as refused:
        validate_cell_cpus(NC96, cpus, policy)
    assert refused.value.remedy == "79 to 95 cpus"
    for enough in (79, 95):
        validate_cell_cpus(NC96, enough, policy)


def test_no_cell_fits_one_numa_node() -> None:
    with pytest.raises(DoesNotFitError, match="best-effort"):
        validate_cell_cpus(NC96, 80, TopologyPolicy.SINGLE_NUMA_NODE)


def test_a_topology_policy_without_alignment_refuses_nothing() -> None:
    validate_cell_cpus(NC96, 20, TopologyPolicy.NONE)


def test_lmcache_answers_its_probes(cell: Pod) -> None:
    for name in ("lmcache", "lmcache-decode"):
        path = cell.container(name)["startupProbe"]["httpGet"]["path"]
        assert not list(check_endpoint(load_published_table("lmcache"), "GET", path))
