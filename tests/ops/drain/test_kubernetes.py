"""`voice drain` of a node or pod of AKS: prints the commands for kubectl."""

import json
import shlex

from tests.ops.drain.conftest import drain

NODE = "aks-cells-12345678-vmss00000a"
POD = "voxtral-7c9d8b6f5-x2x4k"


def test_a_node_is_cordoned_and_its_pods_evicted() -> None:
    result = drain(NODE, "--print", deployment="production-azure")
    assert result.exit_code == 0
    cordon, evict, left = result.stdout.splitlines()
    assert cordon == f"kubectl cordon {NODE}"
    assert evict.startswith(f"kubectl drain {NODE} --ignore-daemonsets --delete-emptydir-data --timeout=")
    assert "--force" not in evict
    assert "--disable-eviction" not in evict
    assert left.endswith(f"spec.nodeName={NODE}")


def test_a_pod_is_evicted_not_deleted() -> None:
    result = drain(POD, "--print", deployment="production-azure")
    evict, wait = result.stdout.splitlines()
    _, body, _, *create = shlex.split(evict)
    assert json.loads(body) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": POD, "namespace": "voice"},
    }
    assert f"/api/v1/namespaces/voice/pods/{POD}/eviction" in create
    assert f"--for=delete pod/{POD}" in wait


def test_without_print_it_reports_that_nothing_was_done() -> None:
    result = drain(NODE, deployment="production-azure")
    assert result.exit_code == 1
    assert "nothing was drained" in result.stderr


def test_json_contains_the_commands() -> None:
    told = json.loads(drain(NODE, "--print", "--json", deployment="production-azure").stdout)
    assert told["host"] == NODE
    assert len(told["commands"]) == 3


def test_an_instance_id_is_refused_on_azure() -> None:
    result = drain("i-0123456789abcdef0", deployment="production-azure")
    assert result.exit_code == 2
    assert "which is on Azure" in result.stderr
