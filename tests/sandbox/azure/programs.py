"""Small Pulumi programs for tests, from projects/ or written by a test."""

from functools import cache
from pathlib import Path
from textwrap import dedent

from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import PreexistingResources, RunMode
from voice_sandbox.azure.run import RunResult, run_project

PROJECTS = Path(__file__).parent / "projects"
CLUSTER = PROJECTS / "cluster"
WORKLOADS = PROJECTS / "workloads"
POLICY = PROJECTS / "policy"


@cache
def sample(mode: RunMode, vm_size: str = "Standard_NC96ads_A100_v4") -> RunResult:
    """Run the sample cluster."""
    return run_project(Project.load(CLUSTER, "dev", {"vm-size": vm_size}), mode)


@cache
def workloads(mode: RunMode) -> Graph:
    """Run the sample workloads on the created sample cluster."""
    existing = PreexistingResources().with_stack("local/sample-cluster/dev", sample(RunMode.UP).graph)
    return run_project(Project.load(WORKLOADS, "dev"), mode, existing).graph


def write(folder: Path, text: str) -> Project:
    """Write a project with this program."""
    (folder / "Pulumi.yaml").write_text("name: written\nruntime: python\n")
    (folder / "__main__.py").write_text(
        "import pulumi\nfrom pulumi_azure_native import containerservice, managedidentity, resources\n" + dedent(text)
    )
    return Project.load(folder, "test")
