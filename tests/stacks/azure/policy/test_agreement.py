"""`voice plan` and `voice preview azure` refuse the same files for the same reasons."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, event, example, given, seed, settings
from hypothesis import strategies as st
from pulumi_policy import EnforcementLevel

from tests.blueprint.checks.azure_cases import CASES, CELLS, RESERVATION, SPOT_PURCHASE, public
from tests.blueprint.checks.cases import Case
from tests.blueprint.documents import DEPLOYMENTS, Edits, edit_document
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.agreement import SHARED_CHECKS, compare_programs
from tests.stacks.azure.policy.graphs import DIGESTS
from voice_blueprint import catalog
from voice_blueprint.file.errors import DeploymentFileError
from voice_blueprint.file.model.azure import TopologyPolicy
from voice_stacks.azure.policy import pack

POOLS, SERVICES = range(5), range(4)
CELL, PAIR, SPEECH, QWEN = (f"azure.services.{index}" for index in SERVICES)
SIZES = st.sampled_from(sorted(catalog.vm_sizes()))
COUNTS = st.builds(lambda low, more: {"min": low, "max": low + more}, st.integers(0, 4), st.integers(1, 8))
POLICIES = st.sampled_from([str(policy) for policy in TopologyPolicy])
MODELS = st.sampled_from(sorted(catalog.models()))


def _pool_edits() -> list[st.SearchStrategy[Edits]]:
    pool = st.sampled_from([f"azure.pools.{index}" for index in POOLS])
    return [
        st.builds(lambda at, value: {f"{at}.vm_size": value}, pool, SIZES),
        st.builds(lambda at, value: {f"{at}.nodes": value}, pool, COUNTS),
        st.builds(lambda at, value: {f"{at}.purchase": value}, pool, st.sampled_from([RESERVATION, SPOT_PURCHASE])),
        st.builds(lambda at, value: {f"{at}.topology_policy": value}, pool, POLICIES),
        st.builds(lambda at, value: {f"{at}.availability_zones": [value]}, pool, st.sampled_from(["1", "2", "4"])),
    ]


def _service_edits() -> list[st.SearchStrategy[Edits]]:
    service = st.sampled_from([CELL, PAIR, SPEECH, QWEN])
    pool = st.sampled_from(["cells", "h100", "h200", "a100", "h100spot"])
    return [
        st.builds(lambda at, value: {f"{at}.model": value}, service, MODELS),
        st.builds(lambda at, value: {f"{at}.replicas": value}, service, COUNTS),
        st.builds(lambda at, value: {f"{at}.cpus": value}, service, st.integers(1, 100)),
        st.builds(lambda at, value: {f"{at}.pool": value}, st.sampled_from([CELL, PAIR, SPEECH]), pool),
        st.builds(lambda value: {f"{QWEN}.pools": value}, st.lists(pool, min_size=1, max_size=3, unique=True)),
        st.builds(lambda value: {f"{PAIR}.tensor_parallel": value}, st.integers(1, 8)),
        st.builds(
            lambda at, l1, l2: {f"{at}.lmcache": {"l1_gib": l1, "l2_nvme_gib": l2}},
            st.sampled_from([CELL, PAIR]), st.integers(1, 900), st.sampled_from([0, 500, 1750, 3400, 3500]),
        ),
        st.builds(lambda at, value: {f"{at}.load.context_tokens": value}, st.sampled_from([CELL, PAIR, QWEN]),
                  st.sampled_from([2048, 32768, 65536])),
        st.builds(lambda at, value: {f"{at}.kv_cache_type": value}, st.sampled_from([PAIR, QWEN]), st.just("fp8")),
    ]  # fmt: skip


def _deployment_edits() -> list[st.SearchStrategy[Edits]]:
    agreement = {"model": "voxtral-4b-tts", "reference": "contract 2026-17 with the owner"}
    return [
        st.builds(lambda value: {"azure.location": value}, st.sampled_from(["westindia", "westus3", "eastus"])),
        st.builds(lambda value: {"azure.availability_zones": value}, st.sampled_from([["1"], ["1", "4"], ["2", "3"]])),
        st.builds(lambda low: {"azure.system_pool.nodes": {"min": low, "max": 6}}, st.integers(0, 3)),
        st.builds(lambda value: {"azure.system_pool.vm_size": value}, SIZES),
        st.builds(lambda value: {"azure.model_cache_gib": value}, st.integers(100, 300)),
        st.builds(lambda more: {"azure.commercial": True, "azure.model_agreements": more},
                  st.sampled_from([[], [agreement]])),
        st.builds(lambda value: public(*value), st.sampled_from([["0.0.0.0/0"], ["203.0.113.0/24"]])),
    ]  # fmt: skip


EDITS = st.lists(st.one_of(*_pool_edits(), *_service_edits(), *_deployment_edits()), min_size=1, max_size=3).map(
    lambda several: {key: value for edits in several for key, value in edits.items()}
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
@example(edits={"azure.commercial": True})
@example(edits={f"{PAIR}.cpus": 76, f"{PAIR}.lmcache": {"l1_gib": 560, "l2_nvme_gib": 0}})
@example(edits={f"{CELL}.lmcache": {"l1_gib": 200, "l2_nvme_gib": 3500}, f"{CELLS}.nodes": {"min": 0, "max": 1}})
@example(edits={"azure.pools.3.topology_policy": "single-numa-node"})
def test_plan_and_preview_agree(edits: Edits) -> None:
    _agree(edits)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_plan_and_preview_agree_on_many_files(part: int) -> None:
    """Two hundred files, split into parts that run in parallel with different seeds."""

    @seed(part)
    @settings(max_examples=20, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(edits=EDITS)
    def agree(edits: Edits) -> None:
        _agree(edits)

    agree()


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.at}")
def test_plan_and_preview_agree_on_every_check(case: Case) -> None:
    found = compare_programs(edit_document(case.trips, case.base))
    assert found.preview is None or found.preview == found.plan & SHARED_CHECKS


def _agree(edits: Edits) -> None:
    try:
        found = compare_programs(recorded.edit_deployment({**DIGESTS, **edits}))
    except DeploymentFileError:
        event("no deployment file")
        return
    event("refused for good" if found.preview is None else "accepted")
    assert found.preview is None or found.preview == found.plan & SHARED_CHECKS


def test_accepted_findings_are_advisory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "accepting.yaml"
    ids = ("licence-allows-use", "load-fits-gpus", "ranges-nest")
    document = yaml.safe_load((DEPLOYMENTS / "production-azure.yaml").read_text(encoding="utf-8"))
    document["accepted_checks"] = [{"id": each, "reason": "asked for by a test"} for each in ids]
    file.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"voice-workloads:deployment": str(file)}))
    advising = {policy.name for policy in pack.policies() if policy.enforcement_level is EnforcementLevel.ADVISORY}
    # The second cannot be accepted, and the third cannot be expressed in a file.
    assert advising == {"licence-allows-use"}
