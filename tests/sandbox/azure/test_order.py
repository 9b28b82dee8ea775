"""Nothing is created before its dependencies, or deleted before its dependents."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.azure.programs import sample, workloads, write
from voice_sandbox.azure.errors import DependencyError
from voice_sandbox.azure.graph import Graph, Resource, make_urn
from voice_sandbox.azure.order import find_implied_dependencies, plan_teardown, validate_creation_order
from voice_sandbox.azure.recorder import PreexistingResources, Recorder, RunMode
from voice_sandbox.azure.run import run_project

STACK = Resource(make_urn("s", "p", None, "pulumi:pulumi:Stack", "p-s"), "pulumi:pulumi:Stack", "p-s", custom=False)
GROUP_TYPE = "azure-native:resources:ResourceGroup"


def group(name: str, *, depends_on: tuple[str, ...] = ()) -> Resource:
    urn = make_urn("s", "p", STACK.urn, GROUP_TYPE, name)
    return Resource(
        urn, GROUP_TYPE, name, STACK.urn, inputs={"resourceGroupName": name}, dependencies=depends_on, id=f"/x/{name}"
    )


def test_a_dependency_that_does_not_exist_yet_is_an_error_with_both_names() -> None:
    recorder = Recorder("p", "s", RunMode.UP, PreexistingResources())
    recorder.register(STACK)
    with pytest.raises(DependencyError) as caught:
        recorder.register(group("a", depends_on=(group("b").urn,)))
    assert str(caught.value) == (
        'resources:ResourceGroup "a" is declared before resources:ResourceGroup "b" exists, but it depends on it'
    )


MISSING_DEPENDENCIES = {
    "a name written out": (
        """
        resources.ResourceGroup('g', resource_group_name='rg', location='eastus')
        managedidentity.UserAssignedIdentity('i', resource_group_name='rg')
        """,
        r'UserAssignedIdentity "i" (may be|is) created before resources:ResourceGroup "g": it lies in',
    ),
    "an id written out": (
        """
        g = resources.ResourceGroup('g', resource_group_name='rg', location='eastus')
        managedidentity.UserAssignedIdentity('i', resource_group_name=g.name, resource_name_='id')
        identity = g.id.apply(lambda group: group + '/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id')
        containerservice.ManagedCluster(
            'c', resource_group_name=g.name, dns_prefix='c',
            identity={'type': 'UserAssigned', 'user_assigned_identities': [identity]},
        )
        """,
        r'ManagedCluster "c" (may be|is) created before managedidentity:UserAssignedIdentity "i": one of its inputs',
    ),
    "a namespace written out": (
        """
        import pulumi_kubernetes as k8s
        k8s.core.v1.Namespace('n', metadata={'name': 'voice'})
        k8s.core.v1.ConfigMap('m', metadata={'namespace': 'voice'})
        """,
        r'ConfigMap "m" (may be|is) created before core/v1:Namespace "n": it is in the namespace voice',
    ),
}


@pytest.mark.parametrize("case", MISSING_DEPENDENCIES)
def test_a_missing_dependency_is_detected_during_up(case: str, tmp_path: Path) -> None:
    program, expected = MISSING_DEPENDENCIES[case]
    project = write(tmp_path, program)
    run_project(project, RunMode.PREVIEW)
    with pytest.raises(DependencyError, match=expected):
        run_project(project, RunMode.UP)


def test_dependencies_are_inferred_from_input_values() -> None:
    graph = sample(RunMode.UP).graph
    found = {(graph[need.resource].name, graph[need.dependency].name) for need in find_implied_dependencies(graph)}
    assert {("aks", "identity"), ("aks", "group"), ("gpu", "aks"), ("reader", "aks"), ("reader", "identity")} <= found
    validate_creation_order(graph)


def test_names_with_a_common_prefix_are_distinguished() -> None:
    graph = sample(RunMode.UP).graph
    cluster = graph.get_resource("aks")
    twin = replace(cluster, urn=f"{cluster.urn}-2", name="aks-2", id=f"{cluster.id}-2")
    both = Graph("p", "s", (*graph.resources, twin))
    assert all(need.dependency != cluster.urn for need in find_implied_dependencies(both) if need.resource == twin.urn)


def test_teardown_deletes_both_stacks_in_reverse_order() -> None:
    plan = plan_teardown([sample(RunMode.UP).graph, workloads(RunMode.UP)])
    names = [resource.name for resource in plan.deleted]
    assert names[-1] == "group"
    assert names.index("voice") < names.index("gpu") < names.index("aks") < names.index("identity")
    assert (plan.retained, plan.removed_from_state, len(names)) == ((), (), 10)


def test_the_wrong_order_of_stacks_is_refused() -> None:
    with pytest.raises(DependencyError, match=r"would be deleted before .*, which needs it"):
        plan_teardown([workloads(RunMode.UP), sample(RunMode.UP).graph])


def test_protected_resources_are_retained_with_their_dependencies() -> None:
    graph = sample(RunMode.UP).graph
    protected = Graph("p", "s", tuple(replace(r, protect=r.name == "identity") for r in graph.resources))
    plan = plan_teardown([protected])
    assert [(resource.name, reason) for resource, reason in plan.retained] == [
        ("group", 'needed by managedidentity:UserAssignedIdentity "identity"'),
        ("identity", "protected"),
    ]
    assert {resource.name for resource in plan.deleted} == {"gpu", "aks", "reader"}


def test_retained_resources_are_listed() -> None:
    graph = sample(RunMode.UP).graph
    retained = Graph("p", "s", tuple(replace(r, retain_on_delete=r.name == "reader") for r in graph.resources))
    assert [resource.name for resource in plan_teardown([retained]).removed_from_state] == ["reader"]
