"""Helpers of the rules: quantities, unknown values, and flags of engines."""

from decimal import Decimal

import pytest

from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.quantities import QuantityError, parse_gib, parse_quantity
from voice_stacks.azure.policy.rules import Resource, Stack
from voice_stacks.azure.policy.values import UNKNOWN_SENTINELS, Value

UNKNOWN = min(UNKNOWN_SENTINELS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"), ("1", "1"), ("1.5", "1.5"), (".5", "0.5"), ("-2", "-2"), ("500m", "0.5"), ("100n", "1e-7"),
        ("2k", "2000"), ("1M", "1000000"), ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("400G", "4e11"), ("1e3", "1000"),
        ("1E3", "1000"), ("1E", "1e18"), ("2Ei", "2305843009213693952"),
    ],
)  # fmt: skip
def test_quantities_are_parsed(text: str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "400Gb", "400GB", "4 Gi", "Gi", "1K", "1gi", "1Gib", "0x10", "1_000", "1e", "½", "1Gi\n"]
)
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)
    assert parse_gib(text) == 0


def test_refusal_suggests_the_intended_name() -> None:
    with pytest.raises(QuantityError, match="write 400Gi"):
        parse_quantity("400Gb")


def test_values_inside_an_unknown_are_unknown() -> None:
    value = Value({"known": {"a": [1, 2.0, True]}, "later": UNKNOWN})
    assert value.get("later", "deep", "down").is_unknown
    assert not value["later"]
    assert not value["later"].is_enabled
    assert not value["later"].is_disabled
    assert value.get("known", "b").is_missing
    assert value.get("known", "b").is_disabled
    assert [item.text for item in value.get("known", "a")] == ["1", "2", ""]
    assert list(value["later"]) == []


def engine_for(*argv: str, **environment: str) -> Resource:
    container = {
        "name": "engine",
        "command": list(argv),
        "env": [{"name": k, "value": v} for k, v in environment.items()],
    }
    return Resource("urn", "kubernetes:core/v1:Pod", "pod", Value({"spec": {"containers": [container]}}))


def test_engine_is_read_from_its_arguments() -> None:
    resource = engine_for(
        "numactl", "--cpunodebind=0,1", "--", "/usr/bin/vllm", "serve", "Qwen/Qwen3-8B", "--tensor-parallel-size=2",
        "--enable-prefix-caching", "--kv-cache-dtype", "fp8", CUDA_VISIBLE_DEVICES="2,3,0,1",
    )  # fmt: skip
    (engine,) = list_engines(Stack((resource,)))
    assert engine.repository == "Qwen/Qwen3-8B"
    assert engine.model
    assert engine.model.name == "qwen3-8b"
    assert engine.tensor_parallel_size == 2
    assert engine.used_gpus == (2, 3)
    assert engine.flags["--enable-prefix-caching"] == ""
    assert engine.flags["--kv-cache-dtype"] == "fp8"
    assert not engine.is_omni


def test_other_programs_are_not_engines() -> None:
    assert list(list_engines(Stack((engine_for("vllm", "bench", "serve"), engine_for("sleep", "infinity"))))) == []
