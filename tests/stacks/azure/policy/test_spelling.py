"""Properties that a policy reads or a mutation sets exist in the SDK."""

import pytest

from tests.blueprint.documents import load_text
from tests.stacks.azure import recorded
from tests.stacks.azure.policy import (
    granted_mutations,
    invented_mutations,
    later_mutations,
    mutations,
    reviewed_mutations,
)
from tests.stacks.azure.policy.graphs import (
    CLUSTER,
    DIGESTS,
    WORKLOADS,
    Mutation,
    deployment,
    emit,
    policy_resources,
    workloads,
)
from tests.stacks.azure.policy.spelling import RecordedReads, names_in_policies, record_reads
from voice_sandbox.azure.inputs import find_input_problems
from voice_stacks.azure.policy.pack import RULES
from voice_stacks.azure.policy.rules import Resource, Rule, Stack, Violation
from voice_stacks.azure.policy.values import Value

MUTATIONS = (*mutations.MUTATIONS, *later_mutations.MUTATIONS)
OTHER_MUTATIONS = (
    *reviewed_mutations.REVIEWED_MUTATIONS,
    *reviewed_mutations.DRAIN_MUTATIONS,
    *invented_mutations.INVENTED_MUTATIONS,
    *granted_mutations.PERMISSION_MUTATIONS,
    *granted_mutations.ROUTE_MUTATIONS,
    *granted_mutations.REFERENCE_MUTATIONS,
)
LAUNCH_OPTIONS = {
    "base_path", "connectors", "kv_connector", "kv_connector_extra_config", "kv_role", "lmcache.mp.port",
    "max_capacity_gb",
}  # fmt: skip
"""Keys of the engines' JSON options, which other tests compare with the published tables."""
STAGE_FILE = {"devices", "gpu_memory_utilization", "max_num_seqs", "stage_id", "stages"}
"""Keys of vLLM-Omni's configuration file in a config map."""
DASHBOARD_FILE = {"expr", "panels", "targets", "title"}
"""Keys of Grafana's dashboard JSON."""
NO_PROPERTIES = {"vllm", "vllm-for-omni", "registry", "Value", "OpenSockets", "SlotsTaken"}
"""Literals that are not properties: names of engines, a regular expression group, a type, and metrics."""


def unknown_inputs(mutation: Mutation) -> list[str]:
    clean = {resource.urn: resource.props.raw for resource in emit(mutation.project).resources}
    return [
        f"{resource.name}: {problem}"
        for resource in mutation.mutated_graph().resources
        if isinstance(resource.props.raw, dict) and clean.get(resource.urn) != resource.props.raw
        for problem in find_input_problems(resource.type, resource.props.raw)
        if problem.startswith("unknown input")
    ]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutated_resources_have_properties_of_the_sdk(mutation: Mutation) -> None:
    assert unknown_inputs(mutation) == []


def test_misspelled_property_of_a_mutation_is_reported() -> None:
    damage = mutations.pool("h100", capacityReservationGroupId="/subscriptions/s/c")
    assert unknown_inputs(Mutation("misspelt", CLUSTER, damage, ())) == [
        "h100: unknown input capacityReservationGroupId; did you mean capacityReservationGroupID?"
    ]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> RecordedReads:
    """Return the reads of all rules on the programs' output, and of each rule on the mistakes planted for it."""
    found = RecordedReads()
    rules = {rule.name: rule for rule in RULES}
    for project in (CLUSTER, WORKLOADS):
        stack = Stack(tuple(emit(project).resources), deployment())
        for rule in RULES:
            record_reads(rule, stack, found)
    callers = recorded.edit_deployment(DIGESTS, "production-azure")
    cluster = recorded.record(CLUSTER, callers)
    with_callers = load_text(callers, tmp_path_factory.mktemp("callers"))
    for graph in (cluster, workloads(callers, cluster)):
        for rule in RULES:
            record_reads(rule, Stack(tuple(policy_resources(graph)), with_callers), found)
    for mutation in (*MUTATIONS, *OTHER_MUTATIONS):
        planted = mutation.mutated_graph()
        record_reads(rules[mutation.rules[0]], Stack(tuple(planted.resources), deployment(file=planted.file)), found)
    return found


def test_policies_read_properties_that_exist(reads: RecordedReads) -> None:
    assert reads.misspelled == set()


def test_every_property_name_in_a_policy_is_checked(reads: RecordedReads) -> None:
    assert names_in_policies() - reads.names - LAUNCH_OPTIONS - STAGE_FILE - DASHBOARD_FILE == NO_PROPERTIES


@pytest.mark.parametrize(
    "path", ["capacityReservationGroupId", "kubeletConfig.topologyManagerpolicy"], ids=lambda path: path
)
def test_misspelled_property_of_a_policy_is_reported(path: str) -> None:
    def find_violations(stack: Stack) -> list[Violation]:
        return [Violation(r.urn, "") for r in stack.find_resources(":AgentPool") if r.props.get(*path.split("."))]

    found = RecordedReads()
    rule = Rule("misspelt", "", "", "", lambda stack: iter(find_violations(stack)))
    record_reads(rule, Stack((Resource("urn", "azure-native:containerservice:AgentPool", "p", Value({})),)), found)
    assert found.misspelled == {("misspelt", path)}
