"""The catalogue: every row is valid, has a source, and is consistent with similar rows."""

import itertools
import re
from collections.abc import Callable, Mapping
from importlib import resources

import pytest
import yaml
from pydantic import ValidationError

from tests.nonempty import nonempty
from voice_blueprint import catalog
from voice_blueprint.catalog import CacheNodeType, InstanceType, Region, ServicePrice, VcpuQuota

TYPES = tuple(catalog.instance_types().values())
NODES = tuple(catalog.cache_node_types().values())
Sourced = InstanceType | CacheNodeType | VcpuQuota | Region | ServicePrice
FILES: dict[str, tuple[str, Callable[[], Mapping[str, Sourced]]]] = {
    "instance_types.yaml": ("name", catalog.instance_types),
    "cache_node_types.yaml": ("name", catalog.cache_node_types),
    "quotas.yaml": ("code", catalog.quotas),
    "regions.yaml": ("name", catalog.regions),
    "prices.yaml": ("item", catalog.service_prices),
}
QUOTA_FAMILY = {"c": "standard", "g": "g-vt", "inf": "inf", "p": "p", "trn": "trn"}
ACCELERATOR_QUOTAS = {"neuron": {"inf", "trn"}, "gpu": {"p", "g-vt"}}


def family(name: str) -> str:
    """Return ``cache.r7g`` for ``cache.r7g.large``, ``c8g`` for ``c8g.metal-24xl``."""
    return name.rpartition(".")[0]


def is_metal(name: str) -> bool:
    return ".metal" in name


def accelerators(row: InstanceType) -> int:
    return row.accelerator.count if row.accelerator else 0


def size_pairs() -> list[tuple[InstanceType, InstanceType]]:
    """Return every (smaller, larger) pair by vCPU, without metal, whose price and queues follow other rules.

    The 16xlarge of a g type has one GPU and its 12xlarge four, so neither is larger.
    """
    return [
        (small, large)
        for small, large in itertools.permutations(TYPES, 2)
        if family(small.name) == family(large.name)
        and is_metal(small.name) == is_metal(large.name)
        and small.vcpus < large.vcpus
        and accelerators(small) <= accelerators(large)
    ]


def regions_of_types(*names: str) -> set[str]:
    return set.intersection(*(set(catalog.instance_types()[name].regions) for name in names))


@pytest.mark.parametrize("file", FILES)
def test_keys_of_rows_are_unique(file: str) -> None:
    key, load = FILES[file]
    text = resources.files(catalog).joinpath(file).read_text(encoding="utf-8")
    keys = [row[key] for row in yaml.safe_load(text)]
    assert len(keys) == len(set(keys))
    assert keys == list(load())


@pytest.mark.parametrize("file", FILES)
def test_no_yaml_anchor_is_defined_twice(file: str) -> None:
    # YAML allows duplicate anchors, and an alias silently refers to the later one.
    text = resources.files(catalog).joinpath(file).read_text(encoding="utf-8")
    anchors = [token.value for token in yaml.scan(text) if isinstance(token, yaml.AnchorToken)]
    assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize("file", FILES)
def test_every_row_names_its_source(file: str) -> None:
    for key, row in nonempty(FILES[file][1]().items()):
        assert len(row.source.split()) > 1 or "/" in row.source, key


def test_rows_reject_values_of_another_type() -> None:
    with pytest.raises(ValidationError):
        Region.model_validate({"name": 3, "ena_express_across_zones": "yes", "source": "x"})


def test_every_used_type_exists() -> None:
    graviton = {
        "medium",
        "large",
        *(f"{n}xlarge" for n in ("", 2, 4, 8, 12, 16, 24, 48)),
        "metal-24xl",
        "metal-48xl",
    }
    for name in ("c8g", "c8gn"):
        assert {row.name for row in TYPES if family(row.name) == name} == {f"{name}.{size}" for size in graviton}
    assert {row.name for row in TYPES if row.accelerator} >= {
        *(f"inf2.{n}xlarge" for n in ("", 8, 24, 48)),
        *("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"),
        *("p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"),
    }


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_instance_type_has_known_regions_and_the_quota_of_its_family(row: InstanceType) -> None:
    assert row.regions
    assert list(row.regions) == sorted(set(row.regions))
    assert set(row.regions) <= set(catalog.regions()), "add the region to voice_blueprint/catalog/regions.yaml"
    assert set(row.usd_per_hour) <= set(row.regions)
    letters = "".join(itertools.takewhile(str.isalpha, row.name))
    assert catalog.quotas()[row.quota_code].family == QUOTA_FAMILY[letters]


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_instance_type_fields_are_consistent(row: InstanceType) -> None:
    assert (row.price_date is None) == (not row.usd_per_hour)
    assert all(usd > 0 for usd in row.usd_per_hour.values())
    assert row.network_burst_gbps is None or row.network_burst_gbps > row.network_gbps
    assert 1 <= row.network_queues <= row.network_queues_max
    assert (row.instance_store_gb > 0) == (row.instance_store_disks > 0)
    assert row.ena_express_note is None or row.ena_express
    # Capacity Blocks sell accelerators only.
    assert row.accelerator or not row.capacity_blocks
    # A g after the generation means Graviton: c8g, c8gn, r8gd.
    assert (row.architecture == "arm64") == bool(re.match(r"[a-z]+\d+g", row.name))


@pytest.mark.parametrize("row", [row for row in TYPES if row.accelerator], ids=lambda row: row.name)
def test_accelerators_count_against_an_accelerator_quota(row: InstanceType) -> None:
    assert row.accelerator
    assert catalog.quotas()[row.quota_code].family in ACCELERATOR_QUOTAS[row.accelerator.kind]


def test_types_without_accelerators_count_against_the_standard_quota() -> None:
    assert {catalog.quotas()[row.quota_code].family for row in TYPES if not row.accelerator} == {"standard"}


def test_graviton4_compute_has_2_gib_per_vcpu() -> None:
    for row in TYPES:
        if family(row.name) in {"c8g", "c8gn"}:
            assert row.memory_gib == 2 * row.vcpus, row.name


def test_a_larger_size_never_has_fewer_resources() -> None:
    def amounts(row: InstanceType) -> list[float]:
        burst = row.network_burst_gbps or row.network_gbps
        return [
            *(row.memory_gib, row.network_gbps, burst, row.network_queues, row.network_queues_max),
            *(row.ena_express, row.efa, row.instance_store_gb, row.instance_store_disks, accelerators(row)),
        ]

    for small, large in nonempty(size_pairs()):
        for less, more in zip(amounts(small), amounts(large), strict=True):
            assert less <= more, (small.name, large.name)


def test_price_grows_with_vcpus() -> None:
    for small, large in nonempty(size_pairs()):
        for region in small.usd_per_hour.keys() & large.usd_per_hour.keys():
            assert small.usd_per_hour[region] < large.usd_per_hour[region], (small.name, large.name, region)


def test_metal_has_the_resources_of_the_virtual_size_and_costs_no_less() -> None:
    for name in ("c8g", "c8gn"):
        for size in ("24xl", "48xl"):
            metal = catalog.instance_types()[f"{name}.metal-{size}"]
            virtual = catalog.instance_types()[f"{name}.{size}arge"]
            assert (metal.vcpus, metal.memory_gib) == (virtual.vcpus, virtual.memory_gib)
            assert metal.network_gbps == virtual.network_gbps
            assert metal.usd_per_hour["us-east-1"] >= virtual.usd_per_hour["us-east-1"]


def test_the_four_original_types_share_three_regions() -> None:
    shared = regions_of_types("c8g.4xlarge", "inf2.48xlarge", "trn1.2xlarge", "p5.4xlarge")
    assert shared == {"us-east-1", "us-east-2", "us-west-2"}


def test_ena_express_starts_at_8xlarge_on_c8g_and_4xlarge_on_c8gn() -> None:
    for row in TYPES:
        if family(row.name) in {"c8g", "c8gn"}:
            assert row.ena_express == (row.vcpus >= {"c8g": 32, "c8gn": 16}[family(row.name)]), row.name


def test_inferentia_and_trainium_have_no_ena_express_at_any_size() -> None:
    assert not any(row.ena_express for row in TYPES if row.accelerator and row.accelerator.kind == "neuron")


def test_uncertain_ena_express_support_is_noted() -> None:
    assert {row.name for row in TYPES if row.ena_express_note} == {
        "c8g.8xlarge",
        "c8gn.4xlarge",
        "p5.4xlarge",
    }


def test_efa_support() -> None:
    assert not any(row.efa for row in TYPES if family(row.name) == "inf2")
    assert not catalog.instance_types()["trn1.2xlarge"].efa
    for row in TYPES:
        if family(row.name) in {"c8g", "c8gn"}:
            assert row.efa == (row.vcpus >= {"c8g": 96, "c8gn": 64}[family(row.name)]), row.name


def test_only_c8gn_has_flexible_queues() -> None:
    queues = {row.name: (row.network_queues, row.network_queues_max) for row in TYPES}
    assert all(default == most for name, (default, most) in queues.items() if family(name) != "c8gn")
    assert queues["c8g.4xlarge"] == (8, 8)
    assert [queues[f"c8gn.{size}xlarge"] for size in (4, 8, 12)] == [(8, 16), (8, 32), (16, 64)]


def test_p5_4xlarge_row() -> None:
    row = catalog.instance_types()["p5.4xlarge"]
    assert row.accelerator == catalog.Accelerator(kind="gpu", model="H100", count=1, memory_gib=80)
    assert (row.vcpus, row.memory_gib, row.network_gbps) == (16, 256, 100)
    assert (row.instance_store_disks, row.instance_store_gb) == (1, 3800)
    assert row.efa


def test_inf2_48xlarge_row() -> None:
    row = catalog.instance_types()["inf2.48xlarge"]
    assert row.accelerator
    assert (row.vcpus, row.memory_gib, row.instance_store_gb) == (192, 768, 0)
    assert row.accelerator.count * row.accelerator.memory_gib == 384


def test_ena_express_is_limited_to_one_zone_in_three_regions() -> None:
    inside = {name for name, row in catalog.regions().items() if not row.ena_express_across_zones}
    assert inside == {"sa-east-1", "me-south-1", "me-central-1"}


def test_regions_and_instance_types_refer_to_the_same_regions() -> None:
    offered = {region for row in TYPES for region in row.regions} | {"me-south-1"}
    assert set(catalog.regions()) - offered == set(), (
        "voice_blueprint/catalog/instance_types.yaml has no type for these"
    )
    assert offered - set(catalog.regions()) == set(), "add these to voice_blueprint/catalog/regions.yaml"


def test_a_larger_cache_node_costs_more_and_never_has_fewer_resources() -> None:
    for small, large in nonempty(itertools.pairwise(NODES)):
        if family(small.name) == family(large.name):
            assert small.vcpus <= large.vcpus
            assert small.memory_gib < large.memory_gib
            for region in small.usd_per_hour.keys() & large.usd_per_hour.keys():
                assert small.usd_per_hour[region] < large.usd_per_hour[region]


def test_r_family_cache_nodes_have_the_most_memory() -> None:
    nodes = catalog.cache_node_types()
    assert {family(name) for name in nodes} == {"cache.t4g", "cache.m7g", "cache.r7g", "cache.r8g"}
    for size in ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge"):
        assert nodes[f"cache.m7g.{size}"].memory_gib < nodes[f"cache.r7g.{size}"].memory_gib
        assert nodes[f"cache.r7g.{size}"].memory_gib < nodes[f"cache.r8g.{size}"].memory_gib
    assert all(set(row.usd_per_hour) <= set(catalog.regions()) for row in NODES)


def test_service_prices_have_a_known_region_and_a_date() -> None:
    azure = {"global"}.union(*(row.regions for row in catalog.vm_sizes().values()), {"centralus"})
    for row in nonempty(catalog.service_prices().values()):
        assert row.region in ({"global", *catalog.regions()} if row.cloud == "aws" else azure)
        assert row.date[:4].isdigit()
        assert row.date[4] == "-"
