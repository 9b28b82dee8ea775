"""The unmodified programs pass every rule; each planted mistake is refused with a readable reason."""

import pytest

from sandbox.azure.recorder import Mode
from stacks.azure.policy.pack import RULES
from stacks.azure.policy.rules import Stack
from tests.stacks.azure.policy import later_mutations, mutations, relations
from tests.stacks.azure.policy.graphs import (
    CLUSTER,
    WORKLOADS,
    Mutation,
    emitted,
    found_in,
    violations,
)

MUTATIONS = (*mutations.MUTATIONS, *later_mutations.MUTATIONS, *relations.RELATIONS, *relations.DERIVED)


@pytest.mark.parametrize("outputs", [False, True], ids=["inputs", "outputs"])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("project", [CLUSTER, WORKLOADS])
def test_what_the_programs_emit_is_clean(project: str, mode: Mode, outputs: bool) -> None:
    found = found_in(emitted(project, mode, outputs=outputs))
    assert [(rule.name, violation.message) for rule, violation in found] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mistake_is_refused(mutation: Mutation) -> None:
    graph = mutation.planted()
    found = found_in(graph)
    assert {violation.urn for _, violation in found} <= {resource.urn for resource in graph.resources}
    messages = [violation.message for rule, violation in found if rule.name == mutation.rules[0]]
    assert messages, [(rule.name, violation.message) for rule, violation in found]
    for words in mutation.says:
        assert any(words in message for message in messages), messages


@pytest.mark.parametrize("shares", [("0.5", "0.5"), ("0.6", "0.3")])
def test_engines_may_share_a_gpu_that_has_room_for_both(shares: tuple[str, str]) -> None:
    graph = emitted(WORKLOADS)
    relations.twins("qwen-a100", *shares)(graph)
    about_gpus = {"engine-has-its-gpus", "engines-share-their-gpus"}
    assert [violation.message for rule, violation in found_in(graph) if rule.name in about_gpus] == []


def test_a_type_of_kv_cache_is_taken_where_a_kernel_of_the_release_takes_it() -> None:
    """Until 0.30 vLLM kept NVFP4 on Blackwell alone; 0.33 does on an A100 too."""
    graph = emitted(WORKLOADS)
    mutations.flags("qwen-a100", "engine", kv_cache_dtype="nvfp4", block_size="48")(graph)
    assert [violation.message for rule, violation in found_in(graph) if rule.name == "kernels-take-the-cache"] == []


def test_a_node_of_one_engine_takes_few_pods() -> None:
    graph = emitted(CLUSTER)
    mutations.pool("cells", maxPods=16)(graph)
    assert found_in(graph) == []


def test_rules_have_names_and_sources() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.about.endswith(".")
        assert rule.source


def test_mutations_have_names_of_their_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_every_rule_is_tried() -> None:
    tried = {name for mutation in MUTATIONS for name in mutation.rules}
    assert {rule.name for rule in RULES} - tried == {"deployment-is-known"}


def test_pods_with_gpus_need_a_deployment() -> None:
    found = violations(Stack(tuple(emitted(WORKLOADS).resources)))
    assert [rule.name for rule, _ in found] == ["deployment-is-known"]


@pytest.mark.parametrize(
    ("invented", "caught", "of"),
    [(later_mutations.FIRST, 8, 26), (later_mutations.SECOND, 1, 16), (relations.RELATIONS, 7, 17)],
    ids=["first", "second", "relations"],
)
def test_what_the_rules_were_worth_against_new_mistakes(invented: tuple[Mutation, ...], caught: int, of: int) -> None:
    assert (sum(mutation.blind for mutation in invented), len(invented)) == (caught, of)
