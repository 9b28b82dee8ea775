"""The unmodified programs pass every rule; each planted mistake is refused with a readable reason."""

import pytest

from tests.stacks.azure.policy import (
    answer_mutations,
    caller_mutations,
    exposure_mutations,
    granted_mutations,
    invented_mutations,
    later_mutations,
    mutations,
    relations,
    reviewed_mutations,
)
from tests.stacks.azure.policy.graphs import (
    CALLERS,
    CLUSTER,
    EDGE,
    WORKLOADS,
    Mutation,
    emit,
    findings_in,
    violations,
)
from voice_sandbox.azure.recorder import RunMode
from voice_stacks.azure.policy.pack import RULES
from voice_stacks.azure.policy.rules import Stack

MUTATIONS = (
    *mutations.MUTATIONS,
    *later_mutations.MUTATIONS,
    *relations.RELATION_MUTATIONS,
    *relations.DERIVED_MUTATIONS,
    *answer_mutations.ANSWERS,
    *caller_mutations.MUTATIONS,
    *exposure_mutations.MUTATIONS,
    *reviewed_mutations.REVIEWED_MUTATIONS,
    *reviewed_mutations.DRAIN_MUTATIONS,
    *invented_mutations.INVENTED_MUTATIONS,
    *granted_mutations.PERMISSION_MUTATIONS,
    *granted_mutations.ROUTE_MUTATIONS,
    *granted_mutations.REFERENCE_MUTATIONS,
)


@pytest.mark.parametrize("outputs", [False, True], ids=["inputs", "outputs"])
@pytest.mark.parametrize("mode", RunMode)
@pytest.mark.parametrize("project", [CLUSTER, WORKLOADS, EDGE, CALLERS])
def test_the_output_of_the_program_is_valid(project: str, mode: RunMode, outputs: bool) -> None:
    found = findings_in(emit(project, mode, outputs=outputs))
    assert [(rule.name, violation.message) for rule, violation in found] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mistake_is_refused(mutation: Mutation) -> None:
    graph = mutation.mutated_graph()
    found = findings_in(graph)
    assert {violation.urn for _, violation in found} <= {resource.urn for resource in graph.resources}
    messages = [violation.message for rule, violation in found if rule.name == mutation.rules[0]]
    assert messages, [(rule.name, violation.message) for rule, violation in found]
    for words in mutation.says:
        assert any(words in message for message in messages), messages


@pytest.mark.parametrize("shares", [("0.5", "0.5"), ("0.6", "0.3")])
def test_engines_may_share_a_gpu_that_has_room_for_both(shares: tuple[str, str]) -> None:
    graph = emit(WORKLOADS)
    relations.identical_services("qwen-a100", *shares)(graph)
    about_gpus = {"engine-has-its-gpus", "engines-share-their-gpus"}
    assert [violation.message for rule, violation in findings_in(graph) if rule.name in about_gpus] == []


def test_a_kv_cache_type_is_accepted_if_a_kernel_of_the_release_supports_it() -> None:
    """Until 0.30 vLLM supported NVFP4 on Blackwell only; 0.33 also does on an A100."""
    graph = emit(WORKLOADS)
    mutations.flags("qwen-a100", "engine", kv_cache_dtype="nvfp4", block_size="48")(graph)
    assert [violation.message for rule, violation in findings_in(graph) if rule.name == "kernels-take-the-cache"] == []


def test_a_single_engine_node_accepts_few_pods() -> None:
    graph = emit(CLUSTER)
    mutations.pool("cells", maxPods=16)(graph)
    assert findings_in(graph) == []


def test_rules_have_names_and_sources() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.summary.endswith(".")
        assert rule.source


def test_mutations_have_unique_names() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_every_rule_has_a_mutation() -> None:
    tried = {name for mutation in MUTATIONS for name in mutation.rules}
    assert {rule.name for rule in RULES} - tried == {"deployment-is-known"}


def test_pods_with_gpus_need_a_deployment() -> None:
    found = violations(Stack(tuple(emit(WORKLOADS).resources)))
    assert [rule.name for rule, _ in found] == ["deployment-is-known"]


@pytest.mark.parametrize(
    ("invented", "caught", "of"),
    [
        (later_mutations.WORKLOAD_MUTATIONS, 8, 26),
        (later_mutations.CLUSTER_MUTATIONS, 1, 16),
        (relations.RELATION_MUTATIONS, 7, 17),
        (reviewed_mutations.REVIEWED_MUTATIONS, 0, 14),
        (invented_mutations.INVENTED_MUTATIONS, 54, 72),
        (granted_mutations.PERMISSION_MUTATIONS, 0, 28),
        (granted_mutations.ROUTE_MUTATIONS, 0, 12),
    ],
    ids=["first", "second", "relations", "reviewed", "invented", "granted", "routed"],
)
def test_mistakes_that_no_test_case_covers_are_detected(invented: tuple[Mutation, ...], caught: int, of: int) -> None:
    assert (sum(mutation.blind for mutation in invented), len(invented)) == (caught, of)
