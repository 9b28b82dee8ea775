"""Real programs as child processes over the real protocol."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.isolation import unshare
from tests.sandbox.azure.programs import CLUSTER, POLICY, WORKLOADS, sample, workloads, write
from voice_sandbox.azure.errors import DependencyError, ProgramError, ProjectError, ResourceError
from voice_sandbox.azure.graph import shorten_type
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import PreexistingResources, RunMode
from voice_sandbox.azure.run import RUN_TIMEOUT_S, run_modes, run_project
from voice_sandbox.azure.values import UNKNOWN, Secret, contains_secret

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120
"""Timeout for the start of a program, which takes seconds on an idle machine because of Pulumi's modules."""
EACH_MODE = pytest.mark.parametrize("mode", list(RunMode), ids=lambda mode: mode.value)


@EACH_MODE
def test_every_resource_is_registered_once_with_its_parent_and_dependencies(mode: RunMode) -> None:
    graph = sample(mode).graph
    assert shorten_type(graph.resources[0].type) == "Stack"
    assert graph.count_by_type() == {
        "resources:ResourceGroup": 1,
        "managedidentity:UserAssignedIdentity": 1,
        "containerservice:ManagedCluster": 1,
        "containerservice:AgentPool": 1,
        "authorization:RoleAssignment": 1,
    }
    pool, cluster = graph.get_resource("gpu", "containerservice:AgentPool"), graph.get_resource("aks")
    component = graph.get_resource("gpu", "sample:cluster:Pool")
    assert (pool.parent, component.custom) == (component.urn, False)
    assert graph.list_children(component.urn) == [pool]
    assert pool.urn.endswith("::sample:cluster:Pool$azure-native:containerservice:AgentPool::gpu")
    assert pool.property_dependencies["resourceName"] == (cluster.urn,)
    assert pool.delete_before_replace is True
    assert pool.inputs["kubeletConfig"]["topologyManagerPolicy"] == "best-effort"
    assert graph.get_resource("identity").urn in graph.find_all_dependencies(pool.urn)


def test_a_resource_has_aliases_for_other_api_versions() -> None:
    cluster = sample(RunMode.PREVIEW).graph.get_resource("aks")
    assert len(cluster.aliases) > 10
    assert all(alias.endswith("::aks") and "containerservice/v20" in alias for alias in cluster.aliases)


def test_a_failed_run_ends_the_parallel_one(tmp_path: Path) -> None:
    project = write(tmp_path, "import time\nif pulumi.runtime.is_dry_run(): 1 / 0\ntime.sleep(600)")
    start = time.monotonic()
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        run_modes(project, (RunMode.UP, RunMode.PREVIEW))
    assert time.monotonic() - start < RUN_TIMEOUT_S / 2


def test_outputs_computed_by_azure_are_unknown_in_a_preview() -> None:
    graph = sample(RunMode.PREVIEW).graph
    cluster, identity, reader = (
        graph.get_resource("aks"),
        graph.get_resource("identity"),
        graph.get_resource("reader"),
    )
    assert cluster.id is None
    assert cluster.inputs["identity"]["userAssignedIdentities"] == [UNKNOWN]
    assert cluster.outputs["identity"]["userAssignedIdentities"] is UNKNOWN
    assert (identity.outputs["principalId"], reader.inputs["scope"]) == (UNKNOWN, UNKNOWN)
    assert graph.outputs["cluster"] == "sample-aks"
    assert graph.outputs["issuer"] is UNKNOWN


def test_an_up_simulates_outputs_of_azure() -> None:
    graph = sample(RunMode.UP).graph
    cluster, identity, reader = (
        graph.get_resource("aks"),
        graph.get_resource("identity"),
        graph.get_resource("reader"),
    )
    group = graph.get_resource("group").id
    assert group
    assert cluster.id == f"{group}/providers/Microsoft.ContainerService/managedClusters/sample-aks"
    assert cluster.outputs["identity"]["userAssignedIdentities"][identity.id] == {
        "clientId": identity.outputs["clientId"],
        "principalId": identity.outputs["principalId"],
    }
    assert reader.inputs["principalId"] == identity.outputs["principalId"]
    assert str(reader.id).startswith(f"{cluster.id}/providers/Microsoft.Authorization/roleAssignments/")
    assert identity.outputs["location"] == "westeurope"
    assert identity.inputs["resourceName"].startswith("identity")
    assert str(graph.outputs["issuer"]).startswith("https://westeurope.oic.prod-aks.azure.com/")


def test_secrets_remain_marked_as_secret() -> None:
    graph = sample(RunMode.UP).graph
    assert isinstance(graph.get_resource("aks").inputs["tags"]["token"], Secret)
    assert contains_secret(graph.get_resource("aks").outputs["tags"])
    kubeconfig = graph.outputs["kubeconfig"]
    assert isinstance(kubeconfig, Secret)
    assert "sample-d" in str(kubeconfig.value)
    assert "hunter2" not in repr(workloads(RunMode.UP))
    assert contains_secret(workloads(RunMode.UP).get_resource("token").inputs["stringData"])


def test_outputs_of_another_stack_are_passed() -> None:
    graph = workloads(RunMode.UP)
    reference, provider = (
        graph.find_resources_of_type("StackReference")[0],
        graph.find_resources_of_type("pulumi:providers:kubernetes")[0],
    )
    assert reference.external
    assert reference.outputs["secretOutputNames"] == ["kubeconfig"]
    assert provider.inputs["kubeconfig"] == sample(RunMode.UP).graph.outputs["kubeconfig"]
    assert graph.outputs["issuer"] == sample(RunMode.UP).graph.outputs["issuer"]
    deployment = graph.get_resource("asr", "apps/v1:Deployment")
    assert (deployment.provider, deployment.id) == (provider.urn, "voice/asr")
    assert graph.get_resource("asr", "keda.sh/v1alpha1:ScaledObject").inputs["spec"]["scaleTargetRef"] == {
        "name": "asr"
    }
    assert str(graph.outputs["address"]).startswith("198.51.100.")


def test_a_reference_to_a_nonexistent_stack_is_reported() -> None:
    with pytest.raises(ResourceError, match="there is no stack local/sample-cluster/dev; stacks with outputs: none"):
        run_project(Project.load(WORKLOADS, "dev"), RunMode.PREVIEW, PreexistingResources())


@EACH_MODE
def test_two_runs_give_the_same_graph(mode: RunMode) -> None:
    again = run_project(Project.load(CLUSTER, "dev", {"vm-size": "Standard_NC96ads_A100_v4"}), mode).graph
    before = sample(mode).graph
    # Independent resources are registered in any order.
    assert (again.resources_by_urn, again.outputs) == (before.resources_by_urn, before.outputs)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "def broken():\n    raise KeyError('shape')\nbroken()",
            r"the program failed\n.*in broken.*\nKeyError: 'shape'",
        ),
        ("raise pulumi.RunError('the file has no azure section')", r"failed\nthe file has no azure section$"),
        ("pulumi.Output.from_input(1).apply(lambda one: one / 0)", r"ZeroDivisionError"),
        ("resources.ResourceGroup('g', locaton='x')", r"TypeError: .*locaton"),
        ("import sys; sys.exit(3)", r"SystemExit: 3"),
    ],
)
def test_a_failing_program_is_reported_once(program: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=f"(?s)^written: .*{expected}") as caught:
        run_project(write(tmp_path, program), RunMode.PREVIEW)
    assert "site-packages" not in str(caught.value)
    assert "voice_sandbox/azure" not in str(caught.value)


def test_a_program_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ProgramError, match=r"did not end within 2 s, after [01] resources; it was stopped"):
        run_project(write(tmp_path, "import time; time.sleep(600)"), RunMode.PREVIEW, timeout_s=2)
    assert time.monotonic() - start < PATIENCE_S


GROUP = "g = resources.ResourceGroup('g', resource_group_name='rg', location='eastus')\n"
REFUSED_PROGRAMS = {
    "an unknown type": (
        "pulumi.CustomResource('azure-native:containerservice:AgentPol', 'x', {})",
        r'containerservice:AgentPol "x": .* no such type; did you mean azure-native:containerservice:AgentPool\?',
    ),
    "an unknown package": (
        "pulumi.CustomResource('random:index:Password', 'x', {})",
        r"no provider for 'random' is installed",
    ),
    "a duplicate": (GROUP + GROUP, r'resources:ResourceGroup "g": declared twice'),
    "a missing input": (
        "pulumi.CustomResource('azure-native:containerservice:AgentPool', 'x', {'resourceGroupName': 'rg'})",
        r"missing required input resourceName",
    ),
    "an unknown key": (
        """
        containerservice.AgentPool(
            'p', resource_group_name='rg', resource_name_='c', kubelet_config={'topologyManagerPolcy': 'none'}
        )
        """,
        r"unknown input kubeletConfig.topologyManagerPolcy; did you mean topologyManagerPolicy\?",
    ),
    "a remote component": (
        "import pulumi_kubernetes as k8s\nk8s.helm.v4.Chart('c', chart='x')",
        r"runs inside the provider's process",
    ),
    "an unanswered call": (
        "pulumi.runtime.invoke('azure-native:compute:listNothing', {})",
        r"azure-native:compute:listNothing: the local engine does not support this function",
    ),
}


@pytest.mark.parametrize("case", REFUSED_PROGRAMS)
def test_refusals_match_the_provider(case: str, tmp_path: Path) -> None:
    program, expected = REFUSED_PROGRAMS[case]
    with pytest.raises(ResourceError, match=expected):
        run_project(write(tmp_path, program), RunMode.PREVIEW)


def test_a_cloud_name_cannot_be_used_twice(tmp_path: Path) -> None:
    program = GROUP + "resources.ResourceGroup('h', resource_group_name='RG', location='eastus')"
    with pytest.raises(ResourceError, match=r'ResourceGroup "h": resources:ResourceGroup "g" already has this name'):
        run_project(write(tmp_path, program), RunMode.UP)


def test_a_call_before_its_resource_exists_is_an_order_error(tmp_path: Path) -> None:
    program = "containerservice.list_managed_cluster_user_credentials(resource_group_name='rg', resource_name='aks')"
    with pytest.raises(DependencyError, match=r'needs containerservice:ManagedCluster "aks", which does not exist yet'):
        run_project(write(tmp_path, program), RunMode.UP)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "Pulumi.yaml: this file does not exist"),
        ({"Pulumi.yaml": "runtime: python\n"}, "a project needs a name"),
        ({"Pulumi.yaml": "name: x\nruntime: nodejs\n"}, "the local engine only supports python"),
        ({"Pulumi.yaml": "name: x\nruntime: python\n"}, "has no __main__.py"),
        ({"Pulumi.yaml": "name: [x\n"}, "Pulumi.yaml: while parsing"),
    ],
)
def test_a_folder_without_a_project_is_reported(files: dict[str, str], expected: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ProjectError, match=expected):
        Project.load(tmp_path, "test")


def test_no_network_is_needed() -> None:
    """Runs in a network namespace with only the loopback device, which the engine uses."""
    script = (
        "import fcntl, socket, struct\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 0x1 | 0x40))\n"  # SIOCSIFFLAGS: up and running
        "from tests.sandbox.azure.programs import *\n"
        "print(len(workloads(RunMode.UP)))\n"
    )
    command = [*unshare("--net"), sys.executable, "-c", script]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert result.stdout.strip() == str(len(workloads(RunMode.UP))), result.stderr


def test_no_process_remains_after_an_interrupt_or_a_crash(tmp_path: Path) -> None:
    write(
        tmp_path,
        f"""
        import os, time
        if pulumi.runtime.is_dry_run():  # of the two runs, one says where it is
            open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    script = (
        "from pathlib import Path\nfrom voice_sandbox.rehearsals.azure import Rehearsal\n"
        f"with Rehearsal('test', {{}}, [Path({str(tmp_path)!r})], Path({str(POLICY)!r})) as both:\n    both.run()\n"
    )
    for ending in (signal.SIGINT, signal.SIGKILL):
        parent = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler)\n{script}"],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        child = _wait_for_pid(tmp_path / "pid")
        parent.send_signal(ending)
        parent.wait(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while _is_running(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _is_running(child), ending


def _wait_for_pid(file: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(file.read_text())
    file.unlink()
    return pid


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
