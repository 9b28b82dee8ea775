"""The catalogue of Azure and inference: each row is consistent, and rows match each other."""

from collections.abc import Callable, Mapping
from importlib import resources

import pytest
import yaml

from tests.nonempty import nonempty
from voice_blueprint import catalog
from voice_blueprint.catalog import Gpu, ModelCard, VmSize
from voice_blueprint.catalog.inference import ModelArchitecture

SIZES = tuple(catalog.vm_sizes().values())
Row = VmSize | Gpu | ModelCard
FILES: dict[str, Callable[[], Mapping[str, Row]]] = {
    "vm_sizes.yaml": catalog.vm_sizes,
    "gpus.yaml": catalog.gpus,
    "models.yaml": catalog.models,
}


def names(rows: tuple[VmSize, ...]) -> list[str]:
    return [row.name for row in rows]


@pytest.mark.parametrize("file", FILES)
def test_keys_of_rows_are_unique_and_every_row_names_its_source(file: str) -> None:
    text = resources.files(catalog).joinpath(file).read_text(encoding="utf-8")
    assert [row["name"] for row in yaml.safe_load(text)] == list(FILES[file]())
    anchors = [token.value for token in yaml.scan(text) if isinstance(token, yaml.AnchorToken)]
    assert len(anchors) == len(set(anchors))
    for name, row in FILES[file]().items():
        assert len(row.source.split()) > 3 or "/" in row.source, name


def test_the_requested_rows_exist() -> None:
    assert {
        "Standard_NC24ads_A100_v4",
        "Standard_NC48ads_A100_v4",
        "Standard_NC96ads_A100_v4",
        "Standard_NC40ads_H100_v5",
        "Standard_NC80adis_H100_v5",
        "Standard_ND96isr_H200_v5",
        "Standard_NV36ads_A10_v5",
        "Standard_NV72ads_A10_v5",
    } <= set(names(SIZES))
    assert {"A100-80", "H100", "H100-NVL", "H200", "A10", "A4500"} <= set(catalog.gpus())


def test_every_gpu_of_a_vm_size_is_in_the_catalogue() -> None:
    assert {size.gpu for size in SIZES if size.gpu} <= set(catalog.gpus())
    accelerators = [row.accelerator for row in catalog.instance_types().values()]
    models = {accelerator.model for accelerator in accelerators if accelerator and accelerator.kind == "gpu"}
    assert models <= set(catalog.gpus())


@pytest.mark.parametrize("size", SIZES, ids=names(SIZES))
def test_topology_matches_the_vm_size(size: VmSize) -> None:
    assert (size.gpu is None) == (size.gpu_count == 0)
    if size.numa_nodes:
        assert sum(node.vcpus for node in size.numa_nodes) == size.vcpus
        assert sorted(gpu for node in size.numa_nodes for gpu in node.gpus) == list(range(size.gpu_count))
    linked = [gpu for domain in size.nvlink_domains for gpu in domain]
    assert len(linked) == len(set(linked))
    assert set(linked) <= set(range(size.gpu_count))
    assert all(len(domain) > 1 for domain in size.nvlink_domains)
    if size.gpu:
        assert size.topology_note
        assert not linked or catalog.gpus()[size.gpu].nvlink_gb_per_s


def test_nc96_has_a_gpu_for_each_numa_node_and_two_pairs() -> None:
    size = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
    assert [(node.vcpus, node.gpus) for node in size.numa_nodes] == [(24, (gpu,)) for gpu in range(4)]
    assert [size.find_nvlink_domain(gpu) for gpu in range(4)] == [(0, 1), (0, 1), (2, 3), (2, 3)]


@pytest.mark.parametrize("size", SIZES, ids=names(SIZES))
def test_regions_and_prices_match(size: VmSize) -> None:
    assert not set(size.usd_per_hour) & set(size.unpriced_regions)
    assert {"southcentralus", "westus3"} <= set(size.regions)
    assert all(price > 0 for price in size.usd_per_hour.values())
    assert (size.nvme_gib == 0) == (size.nvme_disks == 0)


def test_only_infiniband_sizes_have_rdma() -> None:
    assert [size.name for size in SIZES if size.rdma] == ["Standard_ND96isr_H200_v5"]


def test_prices_grow_with_the_size_and_are_for_linux() -> None:
    # NC48 and NC96 are two and four NC24; Windows adds 0.046 USD for every vCPU.
    small, pair, large = (catalog.vm_sizes()[f"Standard_NC{n}ads_A100_v4"] for n in (24, 48, 96))
    for region in nonempty(small.regions):
        assert pair.usd_per_hour[region] == pytest.approx(2 * small.usd_per_hour[region], rel=0.001)
        assert large.usd_per_hour[region] == pytest.approx(4 * small.usd_per_hour[region], rel=0.001)


@pytest.mark.parametrize("model", catalog.models().values(), ids=catalog.models())
def test_model_shapes_are_consistent(model: ModelCard) -> None:
    assert model.attention_heads % model.kv_heads == 0
    assert (model.architecture is ModelArchitecture.ENCODER_DECODER) == (model.cross_attention_tokens > 0)
    assert model.bf16_only_gib < model.weights_gib / 2


def test_only_the_speech_model_forbids_commercial_use() -> None:
    closed = [model for model in catalog.models().values() if not model.commercial_use]
    assert [(model.name, model.licence, model.served_by) for model in closed] == [
        ("voxtral-4b-tts", "CC-BY-NC-4.0", "vllm-omni")
    ]


def test_gpus_report_less_memory_than_advertised() -> None:
    boxes = {"A100-80": 80, "H100": 80, "H100-NVL": 94, "H200": 141, "L40S": 48, "L4": 24, "A10": 24, "A10G": 24,
             "A4500": 20}  # fmt: skip
    for name, gpu in nonempty(catalog.gpus().items()):
        assert boxes[name] * 0.9 < gpu.memory_gib < boxes[name]


def test_gpus_compute_in_fp8_since_ada() -> None:
    ada_and_newer = {"H100", "H100-NVL", "H200", "L40S", "L4"}
    assert {name for name, gpu in catalog.gpus().items() if gpu.supports_fp8} == ada_and_newer
