"""Shipped files are accepted, and each row of the table refuses exactly its case."""

import re
from dataclasses import replace

import pytest

from tests.stacks.azure.recorded import cluster, edit_deployment
from tests.stacks.azure.refusals import clusters, gateways, links, monitoring, networks, pools, stores, unchangeable
from tests.stacks.azure.refusals.planted import FILES, Case, change_graph, graphs
from voice_blueprint import catalog
from voice_blueprint.azure import names
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.refusals import REJECTION_RULES, Rejection, find_rejections
from voice_sandbox.azure.refusals import pools as sandbox_pools
from voice_sandbox.azure.refusals.roles import Role
from voice_sandbox.changes import OpType

GRANT = "authorization:RoleAssignment"
MODULES = (pools, clusters, networks, gateways, stores, links, monitoring, unchangeable)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
IDS = [f"{number}-{case.row}" for number, case in enumerate(CASES)]


@pytest.mark.parametrize("file", FILES)
def test_the_resources_of_a_shipped_file_are_accepted(file: str) -> None:
    assert find_rejections(graphs(file)) == []


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_planted_mistake_is_refused(case: Case) -> None:
    answers = [answer for answer in case.answers(case.wrong) if answer.refusal == case.row]
    assert answers, case.answers(case.wrong)
    assert any(case.says in answer.message for answer in answers), answers
    urns = {resource.urn for graph in graphs(case.file) for resource in graph.find_resources_of_type(case.kind)}
    assert any(answer.urn.startswith(tuple(urns)) for answer in answers)
    assert all(answer.code and answer.remedy and answer.source for answer in answers)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_value_at_the_limit_is_accepted(case: Case) -> None:
    assert [answer for answer in case.answers(case.right) if answer.refusal == case.row] == []


def test_the_tables_contain_the_product_roles_and_the_vcpus_of_its_sizes() -> None:
    assert [(role.name, names.Role[role.name]) for role in Role] == [(role.name, role.value) for role in Role]
    matches = {name: sandbox_pools.VCPU_PATTERN.match(name) for name in catalog.vm_sizes()}
    assert {name: int(match[1]) for name, match in matches.items() if match} == {
        name: size.vcpus for name, size in catalog.vm_sizes().items()
    }


def test_the_spot_pool_of_the_first_release_is_refused() -> None:
    """Regression: `pools.py` set both numbers of every pool, so that a deployment of the shipped files failed."""
    upgrade = {"upgradeSettings.maxSurge": "0", "upgradeSettings.maxUnavailable": "1"}
    answers = Case("", pools.POOL, "h100spot", upgrade).answers(upgrade)
    assert [(answer.refusal, answer.code) for answer in answers] == [
        ("spot-max-surge", "InvalidParameter"),
        ("spot-max-unavailable", "InvalidParameter"),
    ]
    assert {answer.resource for answer in answers} == {'containerservice:AgentPool "h100spot"'}


def test_surge_nodes_of_a_spot_pool_are_refused_rather_than_ignored() -> None:
    answers = find_rejections([cluster(edit_deployment({"azure.pools.4.surge_nodes": 1}))])
    assert [answer.message for answer in answers] == [
        'Spot pools can\'t set max surge: upgradeSettings.maxSurge is "1"; it must be omitted'
    ]
    assert answers[0].remedy == "set surge_nodes of the pool to 0"


def test_a_replaced_resource_is_checked_as_a_new_one() -> None:
    shorter = {"properties.softDeleteRetentionInDays": 30}
    case = Case("vault-retention-stays", "keyvault:Vault", "vault", shorter, update=True)
    assert [answer.refusal for answer in case.answers(shorter)] == ["vault-retention-stays"]
    assert case.answers({**shorter, "location": "westus2"}) == []


def _renamed_grant(principal: str | None = None) -> list[Rejection]:
    """Rename a role assignment, and first replace its principal in the deployed stack if one is given."""
    (new, _) = graphs("production")
    grant = new.get_resource("kubelet-pulls-images", GRANT)
    values = {**grant.inputs, **({"principalId": principal} if principal else {})}
    former = replace(grant, urn=f"{grant.urn}-former", name="former", inputs=values)
    old = replace(new, resources=tuple(former if each is grant else each for each in new.resources))
    return find_rejections([new], diff_graphs(old, new))


def test_a_role_assignment_collides_with_one_that_is_deleted_afterwards() -> None:
    (answer,) = _renamed_grant()
    assert (answer.refusal, answer.code) == ("granted-twice", "RoleAssignmentExists")
    assert answer.message.endswith("former grants the same role to the same principal on the same resource")
    assert _renamed_grant("other") == []


def test_a_role_assignment_collides_with_one_that_is_replaced() -> None:
    """Pulumi deletes the replaced assignment at the end of the update."""
    (new, _) = graphs("production")
    images, secrets = (new.get_resource(name, GRANT) for name in ("kubelet-pulls-images", "keda-reads-metrics"))
    old = replace(
        new,
        resources=tuple(
            {
                images.urn: replace(images, inputs=secrets.inputs),
                secrets.urn: replace(secrets, inputs=images.inputs),
            }.get(each.urn, each)
            for each in new.resources
        ),
    )
    found = [(each.refusal, each.urn) for each in find_rejections([new], diff_graphs(old, new))]
    assert sorted(found) == sorted(("granted-twice", each.urn) for each in (images, secrets))


def test_a_role_assignment_that_is_replaced_with_its_identity_does_not_collide() -> None:
    """Pulumi deletes an identity with a fixed name, and the role assignments that depend on it, before the new one."""
    (new, _) = graphs("production")
    old = change_graph(new, "managedidentity:UserAssignedIdentity", "kubelet", {"location": "westeurope"})
    steps = diff_graphs(old, new)
    assert (OpType.REPLACE, "kubelet-pulls-images") in {(step.op, step.resource.name) for step in steps}
    assert find_rejections([new], steps) == []


def test_every_row_has_a_case() -> None:
    assert {row.name for row in REJECTION_RULES} == {case.row for case in CASES}


def test_every_row_has_a_name_a_public_source_and_a_remedy() -> None:
    assert len({row.name for row in REJECTION_RULES}) == len(REJECTION_RULES) >= 40
    for row in REJECTION_RULES:
        assert re.match(r"https://(learn\.microsoft\.com|github\.com)/", row.source), row.name
        assert row.code.isalnum(), row.name
        assert row.reason[0].isupper(), row.name
        assert not row.reason.endswith("."), row.name
        assert row.remedy, row.name


def test_every_row_refers_to_a_deployed_type() -> None:
    emitted = {
        resource.type.partition(":")[2]
        for file in FILES
        for graph in graphs(file)
        for resource in graph.iter_managed_resources()
    }
    assert {row.kind for row in REJECTION_RULES} <= emitted
