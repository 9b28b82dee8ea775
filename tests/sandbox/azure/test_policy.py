"""A real `pulumi-policy` pack on recorded graphs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.azure.programs import POLICY, sample, workloads
from voice_sandbox.azure.errors import PolicyPackError
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.policy import PolicyPack
from voice_sandbox.azure.recorder import RunMode


def change_pool(graph: Graph, **options: object) -> Graph:
    pool = graph.get_resource("gpu", "containerservice:AgentPool")
    return replace(graph, resources=tuple(replace(r, **options) if r is pool else r for r in graph.resources))  # type: ignore[arg-type]


def test_each_resource_is_checked_before_the_stack() -> None:
    graph = sample(RunMode.PREVIEW).graph
    pool = graph.get_resource("gpu", "containerservice:AgentPool")
    with PolicyPack(POLICY) as pack:
        assert pack.list_policy_names() == ["small-pools", "tagged", "pool-in-cluster"]
        [advice] = pack.check(graph)
        assert (advice.policy, advice.mandatory, advice.resource) == (
            "tagged",
            False,
            'resources:ResourceGroup "group"',
        )
        big = pack.check(change_pool(graph, inputs={**pool.inputs, "count": 9}))
        lonely = pack.check(change_pool(graph, dependencies=()))
        assert pack.check(workloads(RunMode.PREVIEW)) == []
    refused = [violation for violation in big if violation.mandatory]
    assert [(v.policy, v.resource, v.pack) for v in refused] == [
        ("small-pools", 'containerservice:AgentPool "gpu"', "sample")
    ]
    assert "9" in refused[0].message
    assert [v.policy for v in lonely if v.mandatory] == ["pool-in-cluster"]
    assert lonely[-1].urn == pool.urn


def test_a_folder_without_a_policy_pack_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PolicyPackError, match=r"no PulumiPolicy\.yaml and no __main__\.py there"):
        PolicyPack(tmp_path)


def test_a_pack_that_does_not_start_reports_the_reason(tmp_path: Path) -> None:
    (tmp_path / "PulumiPolicy.yaml").write_text("runtime: python\n")
    (tmp_path / "__main__.py").write_text("raise ValueError('no catalogue')\n")
    with PolicyPack(tmp_path) as pack, pytest.raises(PolicyPackError, match=r"(?s)did not start.*"):
        pack.list_policy_names()


def test_an_exception_in_a_policy_is_reported(tmp_path: Path) -> None:
    (tmp_path / "PulumiPolicy.yaml").write_text("runtime: python\n")
    (tmp_path / "__main__.py").write_text(
        "from pulumi_policy import *\n"
        "def check(args, report):\n    raise LookupError('no such size')\n"
        "PolicyPack('p', [ResourceValidationPolicy('broken', 'It breaks.', check)])\n"
    )
    with PolicyPack(tmp_path) as pack, pytest.raises(PolicyPackError, match=r"a policy failed: .*no such size"):
        pack.check(sample(RunMode.PREVIEW).graph)
