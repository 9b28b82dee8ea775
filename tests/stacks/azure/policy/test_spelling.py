"""A property that a policy reads, or a planted mistake sets, is one that the SDK emits."""

import pytest

from sandbox.azure.inputs import problems
from stacks.azure.policy.pack import RULES
from stacks.azure.policy.rules import Found, Resource, Rule, Stack
from stacks.azure.policy.values import Value
from tests.blueprint.documents import load_text
from tests.stacks.azure import recorded
from tests.stacks.azure.policy import later_mutations, mutations
from tests.stacks.azure.policy.graphs import (
    CLUSTER,
    DIGESTS,
    WORKLOADS,
    Mutation,
    deployment,
    emitted,
    travelled,
    workloads,
)
from tests.stacks.azure.policy.spelling import Reads, watch, written

MUTATIONS = (*mutations.MUTATIONS, *later_mutations.MUTATIONS)
LAUNCH_OPTIONS = {
    "base_path", "connectors", "kv_connector", "kv_connector_extra_config", "kv_role", "lmcache.mp.port",
    "max_capacity_gb",
}  # fmt: skip
"""Read from engines' JSON options, which the published engines' own tables are held against."""
STAGE_FILE = {"devices", "gpu_memory_utilization", "stages"}
"""Of vLLM-Omni's own file, in a config map: the mistake is planted in the one that the program emits."""
NO_PROPERTIES = {"vllm", "vllm-for-omni", "registry", "Value"}
"""Names of engines, a group of a regular expression, and a type."""


def unknown_inputs(mutation: Mutation) -> list[str]:
    clean = {resource.urn: resource.props.raw for resource in emitted(mutation.project).resources}
    return [
        f"{resource.name}: {problem}"
        for resource in mutation.planted().resources
        if isinstance(resource.props.raw, dict) and clean.get(resource.urn) != resource.props.raw
        for problem in problems(resource.type, resource.props.raw)
        if problem.startswith("unknown input")
    ]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mistake_is_one_that_the_sdk_could_emit(mutation: Mutation) -> None:
    assert unknown_inputs(mutation) == []


def test_misspelt_property_of_a_mistake_is_named() -> None:
    damage = mutations.pool("h100", capacityReservationGroupId="/subscriptions/s/c")
    assert unknown_inputs(Mutation("misspelt", CLUSTER, damage, ())) == [
        "h100: unknown input capacityReservationGroupId; did you mean capacityReservationGroupID?"
    ]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """What all rules read of what the programs emit, and each rule of the mistakes that were planted for it."""
    found = Reads()
    rules = {rule.name: rule for rule in RULES}
    for project in (CLUSTER, WORKLOADS):
        stack = Stack(tuple(emitted(project).resources), deployment())
        for rule in RULES:
            watch(rule, stack, found)
    callers = recorded.edited(DIGESTS, "production-azure")
    cluster = recorded.record(CLUSTER, callers)
    with_callers = load_text(callers, tmp_path_factory.mktemp("callers"))
    for graph in (cluster, workloads(callers, cluster)):
        for rule in RULES:
            watch(rule, Stack(tuple(travelled(graph)), with_callers), found)
    for mutation in MUTATIONS:
        watch(rules[mutation.rules[0]], Stack(tuple(mutation.planted().resources), deployment()), found)
    return found


def test_policies_read_properties_that_exist(reads: Reads) -> None:
    assert reads.misspelt == set()


def test_every_name_in_a_policy_was_read(reads: Reads) -> None:
    assert written() - reads.names - LAUNCH_OPTIONS - STAGE_FILE == NO_PROPERTIES


@pytest.mark.parametrize(
    "path", ["capacityReservationGroupId", "kubeletConfig.topologyManagerpolicy"], ids=lambda path: path
)
def test_misspelt_property_of_a_policy_is_named(path: str) -> None:
    def examine(stack: Stack) -> list[Found]:
        return [Found(r.urn, "") for r in stack.of(":AgentPool") if r.props.at(*path.split("."))]

    found = Reads()
    rule = Rule("misspelt", "", "", "", lambda stack: iter(examine(stack)))
    watch(rule, Stack((Resource("urn", "azure-native:containerservice:AgentPool", "p", Value({})),)), found)
    assert found.misspelt == {("misspelt", path)}
